//! A coding session as the Codex CLI holds one with a model of Flint's catalogue: tools and long instructions stand at
//! the beginning of the input, and turn after turn brings the output of a command, which the model answers with the
//! next command. Over a WebSocket only what is new is sent, over HTTP everything.

use crate::wire::user;
use crate::{Outcome, paths};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The model whose tokenizer and template the session has, and the name that it is served by.
const SOURCE: &str = "models/qwen2.5-coder-1.5b.gguf";
const MODEL: &str = "long-session";
const CONTEXT_TOKENS: u32 = 131_072;
const HEAD_BYTES: u64 = 8 << 20; // of a model file: what it says about itself, with its vocabulary

const INSTRUCTIONS_BYTES: usize = 12 << 10;
const GUIDELINES_BYTES: usize = 8 << 10; // of skills, permissions and the like, in a message of their own
const TOOLS: usize = 10; // of about 1,700 bytes each: what Codex declares by default
const OUTPUT_BYTES: usize = 2 << 10;

/// What a client sends, and what comes back.
pub struct Turn {
    pub text: String,   // that the model is shown
    pub answer: String, // its words before the call
    pub command: String,
}

impl Turn {
    pub fn new(number: usize) -> Turn {
        let text = match number {
            0 => "Find out why the test fails, and mend it.".to_owned(),
            _ => format!("{number}: {}", lorem(number, OUTPUT_BYTES)),
        };
        let command = format!("sed -n {number},{}p src/part_{number}.rs", number + 80);
        Turn { text, answer: format!("Next I look at part {number}."), command }
    }

    /// The item that the client adds to the conversation.
    pub fn item(&self, call_id: Option<&str>) -> Value {
        match call_id {
            None => user(&self.text),
            Some(id) => json!({"type": "function_call_output", "call_id": id, "output": self.text}),
        }
    }

    /// For the script: the end of what the model is shown, and all that it writes.
    pub fn line(&self, is_output: bool) -> (String, String) {
        let cue = if is_output { format!("{}\n</tool_response>", self.text) } else { self.text.clone() };
        let call = json!({"name": "exec_command_0", "arguments": {"cmd": self.command}});
        (cue, format!("{}\n<tool_call>\n{}\n</tool_call>", self.answer, spaced(&call)))
    }

    /// Whether a response's output says what the script says.
    pub fn is_answered_by(&self, output: &Value) -> bool {
        let arguments = output[1]["arguments"].as_str().unwrap_or_default();
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        output[0]["content"][0]["text"].as_str().is_some_and(|text| text.trim() == self.answer)
            && arguments == json!({"cmd": self.command})
    }
}

/// A call as models write it.
fn spaced(call: &Value) -> String {
    call.to_string().replace("\":", "\": ").replace(",\"", ", \"")
}

/// The model's file with room for a long session and without its weights, which a script does not need.
pub fn model(folder: &Path) -> Outcome<PathBuf> {
    const KEY: &[u8] = b"qwen2.context_length\x04\0\0\0"; // and that it is a 32-bit number
    let source = paths::cache()?.join(SOURCE);
    let open = File::open(&source).map_err(|error| format!("{}: {error}", source.display()))?;
    let bytes = open.metadata()?.len();
    let mut head = Vec::new();
    open.take(HEAD_BYTES).read_to_end(&mut head)?;
    let key = head.windows(KEY.len()).position(|window| window == KEY);
    let value = key.ok_or("the model does not say how many tokens it can hold")? + KEY.len();
    head[value..value + 4].copy_from_slice(&CONTEXT_TOKENS.to_le_bytes());
    let path = folder.join(MODEL).with_extension("gguf");
    let mut file = File::create(&path)?;
    file.write_all(&head)?;
    file.set_len(bytes)?;
    Ok(path)
}

/// What every session begins with.
pub fn beginning() -> Vec<Value> {
    let developer = |parts: &[String]| {
        let part = |text: &String| json!({"type": "input_text", "text": text});
        json!({"type": "message", "role": "developer", "content": parts.iter().map(part).collect::<Vec<_>>()})
    };
    let functions =
        json!({"type": "namespace", "name": "functions", "description": "Tools.", "tools": tools()});
    vec![
        json!({"type": "additional_tools", "role": "developer", "tools": [functions]}),
        developer(&[lorem(3, INSTRUCTIONS_BYTES)]),
        developer(&[lorem(4, GUIDELINES_BYTES / 2), lorem(5, GUIDELINES_BYTES / 2)]),
        user(
            "<environment_context>\n  <cwd>/srv/me/project</cwd>\n  <shell>bash</shell>\n</environment_context>",
        ),
    ]
}

/// The fields that every request of the session has.
pub fn request(input: &[Value]) -> Value {
    let id = "0199a213-81c0-7800-8aa1-bbab2a035a53";
    let about = json!({"installation_id": id, "session_id": id, "thread_id": id, "turn_id": id, "request_kind": "turn",
        "sandbox": "workspace-write", "git": {"branch": "main", "commit": lorem(9, 40), "dirty": true}});
    json!({"type": "response.create", "model": MODEL, "stream": true, "input": input, "tool_choice": "auto",
        "parallel_tool_calls": false, "reasoning": {"context": "all_turns"}, "store": false,
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": id,
        "client_metadata": {"session_id": id, "thread_id": id, "turn_id": id, "root_turn_id": id,
            "x-codex-installation-id": id, "x-codex-window-id": format!("{id}:0"),
            "x-codex-turn-metadata": about.to_string()}})
}

fn tools() -> Value {
    let property = |at: usize| json!({"type": "string", "description": lorem(at, 250)});
    let tool = |at: usize| {
        json!({"type": "function", "name": format!("exec_command_{at}"), "strict": false,
            "description": lorem(at, 400),
            "parameters": {"type": "object", "additionalProperties": false, "required": ["cmd"], "properties": {
                "cmd": property(at), "workdir": property(at + 1), "shell": property(at + 2),
                "justification": property(at + 3)}}})
    };
    (0..TOOLS).map(tool).collect()
}

/// Text of so many bytes that is like no other.
fn lorem(from: usize, bytes: usize) -> String {
    const WORDS: [&str; 12] = [
        "fn",
        "let",
        "error:",
        "expected",
        "`Vec<u8>`,",
        "found",
        "the",
        "test",
        "-->",
        "src/main.rs:7:12",
        "in",
        "run",
    ];
    let mut text = String::new();
    for at in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(WORDS[(from + at * 5 + at / 12) % WORDS.len()]);
        text.push(if at % 9 == 8 { '\n' } else { ' ' });
    }
    text.truncate(bytes);
    text.trim_end().to_owned()
}
