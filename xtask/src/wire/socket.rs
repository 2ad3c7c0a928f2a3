//! One WebSocket, which asks for timings.

use super::{Duplex, delta, is_last};
use crate::Outcome;
use serde_json::Value;
use std::io::ErrorKind;
use tungstenite::client::{IntoClientRequest, client_with_config};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

/// Read at once: as many bytes are cleared before each reading, which is not what is to be measured.
const READ_BYTES: usize = 8 << 10;

pub struct Socket {
    socket: WebSocket<Box<dyn Duplex>>,
}

impl Socket {
    pub fn open(address: &str, key: &str, stream: Box<dyn Duplex>) -> Outcome<Socket> {
        let mut request = format!("ws://{address}/v1/responses").into_client_request()?;
        let headers = request.headers_mut();
        headers.insert("authorization", format!("Bearer {key}").parse()?);
        headers.insert("x-responsesapi-include-timing-metrics", "true".parse()?);
        let config = Some(WebSocketConfig::default().read_buffer_size(READ_BYTES));
        let opened = client_with_config(request, stream, config);
        let (socket, _) = opened.map_err(|error| error.to_string())?;
        Ok(Socket { socket })
    }

    pub fn send(&mut self, frame: &Value) -> Outcome {
        let mut sent = self.socket.send(Message::text(frame.to_string()));
        while interrupted(&sent) {
            sent = self.socket.flush();
        }
        Ok(sent?)
    }

    pub fn next(&mut self) -> Outcome<Value> {
        Ok(serde_json::from_str(&self.next_text()?)?)
    }

    pub fn next_text(&mut self) -> Outcome<String> {
        loop {
            let read = self.socket.read();
            if interrupted(&read) {
                continue;
            }
            match read? {
                Message::Text(text) => return Ok(text.as_str().to_owned()),
                Message::Ping(_) | Message::Pong(_) => {}
                other => return Err(format!("not an event: {other:?}").into()),
            }
        }
    }

    /// The text up to the last event of the response, and that event.
    pub fn answer(&mut self) -> Outcome<(String, Value)> {
        let mut text = String::new();
        loop {
            let event = self.next()?;
            text.push_str(delta(&event).unwrap_or_default());
            if is_last(&event) {
                return Ok((text, event));
            }
        }
    }

    /// What the turn took, which follows its last event.
    pub fn timing(&mut self) -> Outcome<Value> {
        let mut event = self.next()?;
        match event["type"].as_str() {
            Some("responsesapi.websocket_timing") => Ok(event["timing_metrics"].take()),
            _ => Err(format!("not the turn's timing: {event}").into()),
        }
    }
}

/// A signal came meanwhile: nothing is lost, it has to be gone on with.
fn interrupted<T>(result: &tungstenite::Result<T>) -> bool {
    matches!(result, Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::Interrupted)
}
