//! One warm WebSocket.

use super::ClientError;
use crate::limits::{FRAME_BYTES_MAX, SOCKET_READ_BYTES};
use crate::provider::Provider;
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

#[derive(Debug)]
pub struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Socket {
    /// `session` is told to the server, who then says what is used of which limit.
    pub async fn open(provider: &Provider, session: &str) -> Result<Socket, ClientError> {
        let problem = |why: String| ClientError::Unreachable { address: provider.base_url.clone(), why };
        let request = request(provider, session).map_err(|error| problem(error.to_string()))?;
        let limits = WebSocketConfig::default()
            .max_message_size(Some(FRAME_BYTES_MAX))
            .max_frame_size(Some(FRAME_BYTES_MAX))
            .read_buffer_size(SOCKET_READ_BYTES);
        let opened = timeout(provider.connect, connect_async_with_config(request, Some(limits), true)).await;
        match opened {
            Ok(Ok((stream, _))) => Ok(Socket { stream }),
            Ok(Err(Error::Http(answer))) => Err(refused(provider, &answer)),
            Ok(Err(error)) => Err(problem(error.to_string())),
            Err(_) => Err(problem(format!("no answer within {} ms", provider.connect.as_millis()))),
        }
    }

    pub async fn send(&mut self, frame: &Value) -> Result<(), ClientError> {
        let sent = self.stream.send(Message::text(frame.to_string())).await;
        sent.map_err(|error| ClientError::Lost { why: error.to_string() })
    }

    /// The next event. Whoever stops waiting loses none.
    pub async fn next(&mut self) -> Result<Value, ClientError> {
        let lost = |why: String| ClientError::Lost { why };
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => {
                    let event = serde_json::from_str(&text);
                    return event.map_err(|error| lost(format!("the server sent no JSON: {error}")));
                }
                Some(Ok(Message::Close(_))) | None => return Err(lost("the server closed it".to_owned())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(lost(error.to_string())),
            }
        }
    }
}

type Request = tokio_tungstenite::tungstenite::handshake::client::Request;

fn request(provider: &Provider, session: &str) -> Result<Request, Box<dyn std::error::Error>> {
    let mut request = provider.socket_url().into_client_request()?;
    let mut set = |name: &'static str, value: &str| -> Result<(), Box<dyn std::error::Error>> {
        let value =
            HeaderValue::from_str(value).map_err(|_| format!("{name} would hold control characters"))?;
        request.headers_mut().insert(HeaderName::from_static(name), value);
        Ok(())
    };
    if let Some(key) = &provider.key {
        set("authorization", &key.bearer())?;
    }
    set("user-agent", super::USER_AGENT)?;
    set("openai-beta", "responses_websockets=2026-02-06")?;
    set("x-codex-window-id", session)?;
    Ok(request)
}

/// What the server says instead of opening a WebSocket.
fn refused(
    provider: &Provider,
    answer: &tokio_tungstenite::tungstenite::http::Response<Option<Vec<u8>>>,
) -> ClientError {
    let status = answer.status().as_u16();
    let body = answer.body().as_deref().and_then(|body| serde_json::from_slice(body).ok());
    match status {
        401 | 403 => ClientError::of_status(provider, status, body.unwrap_or_default()),
        _ => ClientError::NoSocket { why: format!("the server answered {status}") },
    }
}
