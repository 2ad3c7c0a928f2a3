//! Who answers in the model's place: at once, or 2,000 words a second.

use crate::Outcome;
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use tungstenite::{Message, WebSocket};

/// Words of the long answer, and how many a second.
pub const WORDS: usize = 6_000;
pub const RATE: f64 = 2_000.0;

/// What asks for the long answer.
pub const LONG: &str = "be long";

const PATIENCE: Duration = Duration::from_secs(10);

pub struct Model {
    asked: Receiver<Instant>,
    pub spoken: Receiver<Vec<Instant>>, // when each word of the long answer was sent
}

impl Model {
    /// Where the agent looks for its server.
    pub fn listen(home: &Path) -> Outcome<Model> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let note = json!({"address": listener.local_addr()?.to_string(), "scheme": "http"});
        std::fs::write(home.join("server.json"), note.to_string())?;
        std::fs::write(home.join("key"), "sk-none")?;
        let (ask, asked) = sync_channel(1_000);
        let (speak, spoken) = sync_channel(1);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (ask, speak) = (ask.clone(), speak.clone());
                // Who goes away is not served.
                thread::spawn(move || serve(stream, &ask, &speak).ok());
            }
        });
        Ok(Model { asked, spoken })
    }

    /// When the next request came.
    pub fn asked(&self) -> Outcome<Instant> {
        self.asked.recv_timeout(PATIENCE).map_err(|_| "the agent asks for nothing".into())
    }
}

fn serve(stream: TcpStream, ask: &SyncSender<Instant>, speak: &SyncSender<Vec<Instant>>) -> Outcome {
    stream.set_nodelay(true)?;
    let mut socket = tungstenite::accept(stream).map_err(|error| error.to_string())?;
    loop {
        let Message::Text(text) = socket.read()? else { continue };
        ask.send(Instant::now())?;
        let said: Value = serde_json::from_str(&text)?;
        tell(&mut socket, &json!({"type": "response.created", "response": {"id": "resp_1"}}))?;
        let words =
            if said["input"].to_string().contains(LONG) { long(&mut socket, speak)? } else { String::new() };
        let content = json!([{"type": "output_text", "text": words}]);
        let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": content});
        let output = if words.is_empty() { json!([]) } else { json!([item]) };
        tell(
            &mut socket,
            &json!({"type": "response.completed", "response": {"id": "resp_1",
            "status": "completed", "model": "none", "output": output}}),
        )?;
    }
}

/// One word after the other, each in its time.
fn long(socket: &mut WebSocket<TcpStream>, speak: &SyncSender<Vec<Instant>>) -> Outcome<String> {
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []});
    tell(socket, &json!({"type": "response.output_item.added", "item": item}))?;
    let (began, mut sent, mut all) = (Instant::now(), Vec::new(), String::new());
    for index in 0..WORDS {
        let due = began + Duration::from_secs_f64(index as f64 / RATE);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let word = word(index) + " ";
        sent.push(Instant::now());
        tell(socket, &json!({"type": "response.output_text.delta", "item_id": "msg_1", "delta": word}))?;
        all += &word;
    }
    speak.send(sent)?;
    Ok(all)
}

/// Words of several lengths, whose letters differ from place to place: a terminal is sent only the cells that change.
pub fn word(index: usize) -> String {
    let mut seed = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let letter = |_| {
        seed = (seed ^ seed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(17);
        char::from(b'a' + (seed >> 40) as u8 % 26)
    };
    (0..6 + index * 7 % 5).map(letter).collect()
}

fn tell(socket: &mut WebSocket<TcpStream>, event: &Value) -> Outcome {
    Ok(socket.send(Message::text(event.to_string()))?)
}
