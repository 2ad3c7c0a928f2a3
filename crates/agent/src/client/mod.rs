//! The way to the model: one WebSocket that stays open, or a request for each turn where there is none.
//!
//! `create` asks, `next` tells what comes of it. A WebSocket that cannot be had is done without within a second, and tried
//! again later.

mod incoming;
mod requests;
mod socket;
mod thoughts;

pub use incoming::{Ended, How, Incoming, Refusal, Tokens};

use crate::provider::Provider;
use crate::talk::Connection;
use requests::{Stream, Wanted};
use serde_json::{Map, Value, json};
use socket::Socket;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const USER_AGENT: &str = concat!("flint/", env!("CARGO_PKG_VERSION"));

/// After this time a WebSocket that could not be had is tried again.
const SOCKET_AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClientError {
    #[error("{address} cannot be reached: {why}")]
    Unreachable { address: String, why: String },
    #[error("there is no WebSocket: {why}")]
    NoSocket { why: String },
    #[error("the connection was lost: {why}")]
    Lost { why: String },
    #[error("{}", .0.message)]
    Refused(Refusal),
}

impl ClientError {
    /// What an HTTP status and the body beside it mean.
    fn of_status(provider: &Provider, status: u16, body: Value) -> ClientError {
        let mut refusal = Refusal::read(Some(status), &body);
        if status == 401 {
            let has = if provider.key.is_some() { "the key is not accepted" } else { "there is no key" };
            refusal.message =
                format!("{has} by provider `{}` at {}: {}", provider.id, provider.base_url, refusal.message);
        }
        ClientError::Refused(refusal)
    }

    /// Trying the same again could help.
    pub fn passes(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } | ClientError::NoSocket { .. } | ClientError::Lost { .. } => true,
            ClientError::Refused(refusal) => refusal.passes(),
        }
    }
}

/// What is asked. A connection that knows what came before is sent what is new alone.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    pub fields: Map<String, Value>, // all but the input
    pub items: &'a [Value],         // the whole conversation
    pub known: Option<Known>,
}

/// What the server has: the response, and how many items of the conversation it and those before it are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub response: String,
    pub items: usize,
}

#[derive(Debug)]
pub struct Client {
    provider: Provider,
    session: String,
    link: Link,
    without_socket: Option<(Instant, String)>, // since when, and why
    last_event: Option<u64>,                   // its number in what was asked last
    stored: bool,                              // what was asked last
    author: String,                            // of what comes
}

#[derive(Debug)]
enum Link {
    None,
    Socket(Box<Socket>),
    Stream(Stream),
}

impl Client {
    pub fn new(provider: Provider, session: &str) -> Client {
        let session = session.to_owned();
        let author = thoughts::author(&provider, "");
        Client {
            provider,
            session,
            link: Link::None,
            without_socket: None,
            last_event: None,
            stored: false,
            author,
        }
    }

    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    pub fn connection(&self) -> Connection {
        match (&self.link, &self.without_socket) {
            (Link::Socket(_), _) => Connection::Open,
            (Link::None | Link::Stream(_), Some((_, why))) => Connection::Requests { why: why.clone() },
            (Link::Stream(_), None) if self.provider.websockets => {
                Connection::Requests { why: "it broke, and the answer was taken up where it was".to_owned() }
            }
            (Link::Stream(_), None) => {
                Connection::Requests { why: "the provider has no WebSocket".to_owned() }
            }
            (Link::None, None) => Connection::Connecting,
        }
    }

    /// Whether what was asked before is known at the other end: it is as long as the same WebSocket is open.
    pub fn remembers(&self) -> bool {
        matches!(self.link, Link::Socket(_))
    }

    /// Opens the connection ahead of the first request. Where there is none, the request will say so.
    pub async fn connect(&mut self) -> Result<(), ClientError> {
        let due = self.without_socket.as_ref().is_none_or(|(since, _)| since.elapsed() > SOCKET_AGAIN);
        if !self.provider.websockets || self.remembers() || !due {
            return Ok(());
        }
        match Socket::open(&self.provider, &self.session).await {
            Ok(socket) => {
                (self.link, self.without_socket) = (Link::Socket(Box::new(socket)), None);
                Ok(())
            }
            // Without a key it will not be had in another way either.
            Err(error @ ClientError::Refused(_)) => Err(error),
            Err(error) => {
                self.without_socket = Some((Instant::now(), error.to_string()));
                Ok(())
            }
        }
    }

    /// Asks. Events of what was asked before, if any are left, are not told any more.
    pub async fn create(&mut self, ask: &Ask<'_>) -> Result<(), ClientError> {
        self.connect().await?;
        (self.last_event, self.stored) = (None, ask.fields.get("store") == Some(&Value::Bool(true)));
        let model = ask.fields.get("model").and_then(Value::as_str);
        self.author = thoughts::author(&self.provider, model.unwrap_or_default());
        match &mut self.link {
            Link::Socket(socket) => socket.send(&frame(ask, &self.author)).await,
            Link::None | Link::Stream(_) => {
                let mut fields = ask.fields.clone();
                if fields.remove("generate").is_some() {
                    return Err(ClientError::NoSocket { why: "only there a prompt is made warm".to_owned() });
                }
                fields.insert("stream".to_owned(), true.into());
                fields.insert("input".to_owned(), thoughts::readable(ask.items, &self.author).into());
                let wanted = Wanted::New(Value::Object(fields));
                self.link = Link::Stream(Stream::open(&self.provider, wanted));
                Ok(())
            }
        }
    }

    /// Goes on with a response whose connection was lost, after the last event that came. False: it cannot be.
    pub fn take_up(&mut self, response: &str) -> bool {
        let Some(after) = self.last_event.filter(|_| self.stored) else { return false };
        let wanted = Wanted::Rest { response: response.to_owned(), after };
        self.link = Link::Stream(Stream::open(&self.provider, wanted));
        true
    }

    /// The next event of what was asked.
    pub async fn next(&mut self) -> Result<Incoming, ClientError> {
        let idle = self.provider.idle;
        let next = async {
            match &mut self.link {
                Link::Socket(socket) => socket.next().await,
                Link::Stream(stream) => stream.next().await,
                Link::None => Err(ClientError::Lost { why: "nothing was asked".to_owned() }),
            }
        };
        let silent = || ClientError::Lost { why: format!("the server was silent for {} s", idle.as_secs()) };
        let outcome = timeout(idle, next).await.unwrap_or_else(|_| Err(silent()));
        if matches!(outcome, Err(ClientError::Lost { .. })) {
            self.link = Link::None;
        }
        let event = outcome?;
        if let Some(why) = incoming::ended_connection(&event) {
            self.link = Link::None;
            return Err(ClientError::Lost { why });
        }
        self.last_event = event["sequence_number"].as_u64().or(self.last_event);
        let mut incoming = Incoming::read(&event);
        thoughts::sign(&mut incoming, &self.author);
        Ok(incoming)
    }

    /// Into the response that runs. False: this connection has no way to.
    pub async fn steer(&mut self, response: &str, text: &str) -> Result<bool, ClientError> {
        let frame = json!({"type": "response.steer", "previous_response_id": response,
            "input": [crate::history::user(text)]});
        self.say(frame).await
    }

    /// Ends the response that runs and keeps what it has written. False: it is given up with its connection.
    pub async fn cancel(&mut self, response: &str) -> Result<bool, ClientError> {
        let said = self.say(json!({"type": "response.cancel", "response_id": response})).await?;
        if !said {
            self.link = Link::None;
            if self.stored {
                // It would wait for somebody to come back to it.
                let (provider, response) = (self.provider.clone(), response.to_owned());
                drop(tokio::task::spawn_blocking(move || requests::cancel(&provider, &response)));
            }
        }
        Ok(said)
    }

    async fn say(&mut self, frame: Value) -> Result<bool, ClientError> {
        match &mut self.link {
            Link::Socket(socket) => socket.send(&frame).await.map(|()| true),
            Link::None | Link::Stream(_) => Ok(false),
        }
    }

    /// Another connection is made for the next request.
    pub fn hang_up(&mut self) {
        self.link = Link::None;
    }

    /// A JSON document of the server.
    pub async fn get(&self, path: &str) -> Result<Value, ClientError> {
        let (provider, path) = (self.provider.clone(), path.to_owned());
        aside(move || requests::get(&provider, &path)).await
    }

    /// The same, in answer to another.
    pub fn post(
        &self,
        path: &'static str,
        said: Value,
    ) -> impl Future<Output = Result<Value, ClientError>> + Send + use<> {
        let provider = self.provider.clone();
        aside(move || requests::post(&provider, path, &said))
    }
}

/// On a thread that may wait.
async fn aside(
    request: impl FnOnce() -> Result<Value, ClientError> + Send + 'static,
) -> Result<Value, ClientError> {
    let done = tokio::task::spawn_blocking(request).await;
    done.unwrap_or_else(|error| Err(ClientError::Lost { why: error.to_string() }))
}

fn frame(ask: &Ask<'_>, author: &str) -> Value {
    let mut fields = Map::new();
    fields.insert("type".to_owned(), "response.create".into());
    fields.extend(ask.fields.clone());
    let new = match &ask.known {
        Some(Known { response, items }) => {
            fields.insert("previous_response_id".to_owned(), response.as_str().into());
            ask.items.get(*items..).unwrap_or_default()
        }
        None => ask.items,
    };
    fields.insert("input".to_owned(), thoughts::readable(new, author).into());
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Refuses the first upgrade, and takes the next.
    async fn serve(listener: TcpListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        let refusal = b"HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(refusal).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let _socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        std::future::pending::<()>().await;
    }

    /// Tells the first connection that its time is over.
    async fn serve_for_an_hour(listener: TcpListener) {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let error = json!({"type": "error", "status": 400,
            "error": {"code": "websocket_connection_limit_reached", "message": "open another one"}});
        futures_util::SinkExt::send(&mut socket, error.to_string().into()).await.unwrap();
        drop(socket);
        let (stream, _) = listener.accept().await.unwrap();
        let _socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        std::future::pending::<()>().await;
    }

    #[tokio::test]
    async fn a_connection_whose_time_is_over_is_one_that_was_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut provider = Provider::new("p", &format!("http://{}/v1", listener.local_addr().unwrap()));
        provider.websockets = true;
        tokio::spawn(serve_for_an_hour(listener));
        let mut client = Client::new(provider, "s");
        client.connect().await.unwrap();
        let error = client.next().await.unwrap_err();
        assert_eq!(error, ClientError::Lost { why: "open another one".to_owned() });
        assert!(error.passes() && !client.remembers(), "the whole conversation is sent again");
        client.connect().await.unwrap();
        assert!(client.remembers());
    }

    #[tokio::test]
    async fn a_websocket_is_done_without_and_tried_again_later() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut provider = Provider::new("p", &format!("http://{}/v1", listener.local_addr().unwrap()));
        provider.websockets = true;
        tokio::spawn(serve(listener));
        let mut client = Client::new(provider, "s");
        let began = Instant::now();
        client.connect().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(1));
        assert!(matches!(client.connection(), Connection::Requests { why } if why.contains("426")));
        // Not at once.
        client.connect().await.unwrap();
        assert!(!client.remembers());
        let (since, _) = client.without_socket.as_mut().unwrap();
        *since = since.checked_sub(SOCKET_AGAIN).unwrap();
        client.connect().await.unwrap();
        assert_eq!(client.connection(), Connection::Open);
    }
}
