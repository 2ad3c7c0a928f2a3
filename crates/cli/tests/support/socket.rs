//! The client's side of a WebSocket, as far as these tests need it.

use crate::server::Served;
use crate::support::PATIENCE;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

pub struct Socket(TcpStream);

impl Socket {
    pub fn open(server: &Served, key: &str) -> Socket {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let mut stream = server.open("GET /v1/responses HTTP/1.1", &headers, "");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        Socket(stream)
    }

    pub fn send(&mut self, frame: &Value) {
        let text = frame.to_string();
        let len = u16::try_from(text.len()).unwrap();
        // Final text, masked with zeros.
        let mut bytes = vec![0x81, 0x80 | 126];
        bytes.extend(len.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(text.as_bytes());
        self.0.write_all(&bytes).unwrap();
    }

    /// The next frame of this type.
    pub fn event(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next().unwrap_or_else(|| panic!("closed before {kind}"));
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    /// The next frame; nothing when the server has closed.
    pub fn next(&mut self) -> Option<Value> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).ok()?;
        let len = match head[1] {
            126 => {
                let mut len = [0; 2];
                self.0.read_exact(&mut len).unwrap();
                u64::from(u16::from_be_bytes(len))
            }
            127 => {
                let mut len = [0; 8];
                self.0.read_exact(&mut len).unwrap();
                u64::from_be_bytes(len)
            }
            short => u64::from(short),
        };
        let mut bytes = vec![0; len as usize];
        self.0.read_exact(&mut bytes).unwrap();
        (head[0] == 0x81).then(|| serde_json::from_slice(&bytes).unwrap())
    }
}
