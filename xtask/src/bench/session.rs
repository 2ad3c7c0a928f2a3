//! A coding session as the Codex CLI holds one: long instructions, many tools, and turn after turn the output of a
//! command, which the model answers with the next command.

use crate::wire::user;
use serde_json::{Value, json};

pub const MODEL: &str = "qwen2.5-coder-1.5b";

const INSTRUCTIONS_BYTES: usize = 12 << 10;
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

/// The fields that every request of the session has.
pub fn request(input: &[Value]) -> Value {
    json!({"type": "response.create", "model": MODEL, "input": input, "store": false, "stream": true,
        "instructions": lorem(3, INSTRUCTIONS_BYTES), "tools": tools(), "tool_choice": "auto",
        "parallel_tool_calls": true, "prompt_cache_key": "session"})
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
