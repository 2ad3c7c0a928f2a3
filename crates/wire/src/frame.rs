//! What a client may send on a WebSocket.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::item::{Item, input_items};
use crate::limits::ID_BYTES_MAX;
use serde_json::Value;

/// One text frame. `stream` names the lane; clients that have one conversation leave it out.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    Create(Box<Create>),
    Interrupt { stream: Option<String>, response: String },
    Cancel { stream: Option<String>, response: Option<String> },
    Steer { stream: Option<String>, previous: String, input: Vec<Item> },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Create {
    pub stream: Option<String>,
    pub body: Value, // the request, to be parsed with its own errors
}

impl Frame {
    pub fn parse(text: &str) -> Result<Frame, ApiError> {
        let json: Value = serde_json::from_str(text).map_err(|error| {
            ApiError::bad_request("invalid_json", format!("the frame is not JSON: {error}"))
        })?;
        let mut fields = Fields::top(&json)?;
        let stream = fields.short_text("stream_id", ID_BYTES_MAX)?.map(str::to_owned);
        match fields.required_text("type")? {
            "response.create" => {
                let body = body(json);
                Ok(Frame::Create(Box::new(Create { stream, body })))
            }
            "response.interrupt" => {
                Ok(Frame::Interrupt { stream, response: fields.required_text("response_id")?.to_owned() })
            }
            "response.cancel" => {
                let response = fields.short_text("response_id", ID_BYTES_MAX)?.map(str::to_owned);
                Ok(Frame::Cancel { stream, response })
            }
            "response.steer" => Ok(Frame::Steer {
                stream,
                previous: fields.required_text("previous_response_id")?.to_owned(),
                input: input_items(&mut fields)?,
            }),
            _ => Err(fields.invalid(
                "type",
                "must be response.create, response.steer, response.interrupt or response.cancel",
            )),
        }
    }
}

/// The request inside a frame: in `response`, or beside the type.
fn body(mut json: Value) -> Value {
    if let Value::Object(map) = &mut json {
        map.remove("type");
        map.remove("stream_id");
        map.remove("event_id");
        if let Some(inner @ Value::Object(_)) = map.remove("response") {
            return inner;
        }
    }
    json
}
