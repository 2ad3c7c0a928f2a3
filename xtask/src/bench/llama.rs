//! llama.cpp's HTTP server, from the package that `flint bench --peer llama.cpp` installs.

use crate::wire::{MODEL, next_event};
use crate::{Outcome, paths};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CONTEXT: &str = "4096"; // tokens

pub struct Llama {
    child: Child,
    address: String,
    messages: Vec<Value>,
}

impl Llama {
    /// None where the package is not installed.
    pub fn start(threads: usize) -> Outcome<Option<Llama>> {
        let Some(python) = installed()? else { return Ok(None) };
        let model = paths::cache()?.join("models").join(format!("{MODEL}.gguf"));
        let mut command = Command::new(python);
        command
            .arg(paths::repository().join("crates/cli/src/peer.py"))
            .arg(model)
            .args([&threads.to_string(), CONTEXT]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no standard output")?).read_line(&mut line)?;
        let address = line.trim().strip_prefix("http://").ok_or("llama.cpp did not start")?.to_owned();
        Ok(Some(Llama { child, address, messages: Vec::new() }))
    }

    /// Time to the first text of the answer to the conversation so far and this.
    pub fn turn(&mut self, said: &str, max_tokens: u32) -> Outcome<Duration> {
        self.messages.push(json!({"role": "user", "content": said}));
        let start = Instant::now();
        let body = json!({"messages": self.messages, "max_tokens": max_tokens, "stream": true,
            "temperature": 0, "cache_prompt": true})
        .to_string();
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        let mut stream = BufReader::new(stream);
        let (mut first, mut answer) = (None, String::new());
        while let Some(event) = next_event(&mut stream)? {
            let text = event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
            if !text.is_empty() {
                first.get_or_insert_with(|| start.elapsed());
                answer.push_str(text);
            }
        }
        self.messages.push(json!({"role": "assistant", "content": answer}));
        first.ok_or_else(|| "llama.cpp answered without text".into())
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The Python that has the package.
fn installed() -> Outcome<Option<PathBuf>> {
    let Ok(folders) = std::fs::read_dir(paths::cache()?.join("peer")) else { return Ok(None) };
    let ready = folders.flatten().map(|folder| folder.path()).filter(|folder| folder.join("ready").exists());
    Ok(ready.max().map(|folder| folder.join("bin/python")))
}
