//! gpt-oss's prompt format, written natively: messages with roles, channels and recipients between control
//! tokens.
//!
//! The model's Jinja template only comes near what the model was trained on: it quotes tool results, knows
//! one call a message, and cannot put `<|constrain|>`. This renders what OpenAI's own library renders,
//! straight to segments, so what people wrote stays text by construction. The parser of the answers is
//! `parse::Format::Harmony`.

mod typescript;

use crate::chat::{Message, Prompt, Role, Tool, ToolCall};
use crate::error::TextError;
use crate::limits::PROMPT_BYTES_MAX;
use crate::segment::{Segment, push_text};
use crate::template::date;
use serde_json::Value;

const IDENTITY: &str = "You are ChatGPT, a large language model trained by OpenAI.";
const KNOWLEDGE_CUTOFF: &str = "2024-06";
const EFFORTS: [&str; 3] = ["low", "medium", "high"];

/// The prompt as segments. `reasoning_effort` and `model_identity` among the variables are honoured.
pub fn render(prompt: &Prompt) -> Result<Vec<Segment>, TextError> {
    let mut out = Writer { segments: Vec::new(), bytes: 0 };
    out.message("system", "", &system_text(prompt)?, "<|end|>");
    let instructions =
        prompt.messages.iter().take_while(|m| matches!(m.role, Role::System | Role::Developer));
    let instructions: Vec<String> = instructions.map(|m| m.content.to_text()).collect();
    if let Some(text) = developer_text(&instructions, &prompt.tools) {
        out.message("developer", "", &text, "<|end|>");
    }
    let last_answer =
        prompt.messages.iter().rposition(|m| m.role == Role::Assistant && m.tool_calls.is_empty());
    for (at, message) in prompt.messages.iter().enumerate().skip(instructions.len()) {
        // Reasoning is only of use until the answer it led to.
        let reasoning = message.reasoning.as_deref().filter(|_| last_answer.is_none_or(|last| at > last));
        write_message(&mut out, message, reasoning, &prompt.messages[..at])?;
    }
    if prompt.add_generation_prompt {
        out.control("<|start|>");
        out.text("assistant");
    }
    out.finish()
}

/// Segments under construction, with their size.
struct Writer {
    segments: Vec<Segment>,
    bytes: usize,
}

impl Writer {
    fn control(&mut self, literal: &str) {
        self.segments.push(Segment::Control(literal.to_owned()));
    }

    fn text(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len());
        push_text(&mut self.segments, text);
    }

    /// A whole message. `author` is the role with its recipient; an empty `channel` is none.
    fn message(&mut self, author: &str, channel: &str, text: &str, end: &str) {
        self.header(author, channel);
        self.control("<|message|>");
        self.text(text);
        self.control(end);
    }

    fn header(&mut self, author: &str, channel: &str) {
        self.control("<|start|>");
        self.text(author);
        if !channel.is_empty() {
            self.control("<|channel|>");
            self.text(channel);
        }
    }

    fn call(&mut self, call: &ToolCall) {
        self.header(&format!("assistant to=functions.{}", call.name), "commentary");
        self.text(" ");
        self.control("<|constrain|>");
        self.text("json");
        self.control("<|message|>");
        self.text(&arguments_text(&call.arguments));
        self.control("<|call|>");
    }

    fn finish(self) -> Result<Vec<Segment>, TextError> {
        if self.bytes > PROMPT_BYTES_MAX {
            let problem = format!("the prompt has {} bytes, at most {PROMPT_BYTES_MAX}", self.bytes);
            return Err(TextError::input("messages", problem));
        }
        Ok(self.segments)
    }
}

fn arguments_text(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn variable<'a>(prompt: &'a Prompt, name: &str, default: &'a str) -> &'a str {
    prompt.variables.get(name).and_then(Value::as_str).unwrap_or(default)
}

fn system_text(prompt: &Prompt) -> Result<String, TextError> {
    let effort = variable(prompt, "reasoning_effort", "medium");
    if !EFFORTS.contains(&effort) {
        let problem = format!("{effort:?} is not known; use one of {}", EFFORTS.join(", "));
        return Err(TextError::input("reasoning_effort", problem));
    }
    let identity = variable(prompt, "model_identity", IDENTITY);
    let today = date::day(prompt.now_unix_s);
    let mut text = format!(
        "{identity}\nKnowledge cutoff: {KNOWLEDGE_CUTOFF}\nCurrent date: {today}\n\nReasoning: {effort}\n\n\
         # Valid channels: analysis, commentary, final. Channel must be included for every message."
    );
    if !prompt.tools.is_empty() {
        text.push_str("\nCalls to these tools must go to the commentary channel: 'functions'.");
    }
    Ok(text)
}

fn developer_text(instructions: &[String], tools: &[Tool]) -> Option<String> {
    let mut sections = Vec::new();
    if !instructions.is_empty() {
        sections.push(format!("# Instructions\n\n{}", instructions.join("\n\n")));
    }
    if !tools.is_empty() {
        sections.push(tools_text(tools));
    }
    (!sections.is_empty()).then(|| sections.join("\n\n"))
}

fn tools_text(tools: &[Tool]) -> String {
    let mut text = String::from("# Tools\n\n## functions\n\nnamespace functions {\n\n");
    for tool in tools {
        for line in tool.description.lines() {
            text.push_str(&format!("// {line}\n"));
        }
        let arguments = match &tool.parameters {
            Value::Null => "()".into(),
            schema => format!("(_: {})", typescript::type_of(schema, "")),
        };
        text.push_str(&format!("type {} = {arguments} => any;\n\n", tool.name));
    }
    text + "} // namespace functions"
}

fn write_message(
    out: &mut Writer,
    message: &Message,
    reasoning: Option<&str>,
    before: &[Message],
) -> Result<(), TextError> {
    let content = message.content.to_text();
    match message.role {
        Role::System | Role::Developer => {
            out.message("developer", "", &format!("# Instructions\n\n{content}"), "<|end|>");
        }
        Role::User => out.message("user", "", &content, "<|end|>"),
        Role::Tool => {
            let author = format!("functions.{} to=assistant", answering(message, before)?);
            out.message(&author, "commentary", &content, "<|end|>");
        }
        Role::Assistant => write_assistant(out, message, reasoning, &content),
    }
    Ok(())
}

/// Reasoning, then what is said to the user, then the calls.
fn write_assistant(out: &mut Writer, message: &Message, reasoning: Option<&str>, content: &str) {
    if let Some(reasoning) = reasoning {
        out.message("assistant", "analysis", reasoning, "<|end|>");
    }
    if !content.is_empty() {
        let channel = if message.tool_calls.is_empty() { "final" } else { "commentary" };
        out.message("assistant", channel, content, "<|end|>");
    }
    for call in &message.tool_calls {
        out.call(call);
    }
}

/// The name of the tool whose result `message` is.
fn answering<'a>(message: &'a Message, before: &'a [Message]) -> Result<&'a str, TextError> {
    if let Some(name) = &message.name {
        return Ok(name);
    }
    let mut calls = before.iter().rev().flat_map(|m| m.tool_calls.iter().rev());
    let call = calls.find(|call| message.tool_call_id.as_ref().is_none_or(|id| *id == call.id));
    call.map(|call| call.name.as_str()).ok_or_else(|| {
        TextError::input("messages", "a tool result answers no call before it; give its name or tool_call_id")
    })
}
