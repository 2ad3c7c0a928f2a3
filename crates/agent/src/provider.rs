//! Who answers: an address, a key, and how patient to be.

use std::fmt;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Provider {
    pub id: String,       // as the settings call it
    pub base_url: String, // such as http://127.0.0.1:8645/v1
    pub key: Option<Key>,
    pub websockets: bool,
    pub stream_retries: u32,
    pub idle: Duration,    // silence after which a stream is broken
    pub connect: Duration, // that opening a connection may take
}

/// A secret: it is not shown.
#[derive(Clone)]
pub struct Key(String);

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key(..)")
    }
}

impl Key {
    pub fn new(secret: impl Into<String>) -> Key {
        Key(secret.into())
    }

    /// The value of the header.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0.trim())
    }
}

impl Provider {
    /// With what holds where nothing else is said.
    pub fn new(id: &str, base_url: &str) -> Provider {
        Provider {
            id: id.to_owned(),
            base_url: base_url.trim_end_matches('/').to_owned(),
            key: None,
            websockets: false,
            stream_retries: 5,
            idle: Duration::from_secs(300),
            // A server that does not answer by then is asked without a WebSocket: nobody waits longer for a fallback.
            connect: Duration::from_millis(900),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base_url)
    }

    /// Of the WebSocket.
    pub(crate) fn socket_url(&self) -> String {
        let url = self.url("responses");
        match url.split_once("://") {
            Some(("https", rest)) => format!("wss://{rest}"),
            Some((_, rest)) => format!("ws://{rest}"),
            None => format!("ws://{url}"),
        }
    }
}
