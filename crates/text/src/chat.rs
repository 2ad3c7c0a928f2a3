//! A conversation, as every format of it needs it.

use serde_json::{Map, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::Developer => "developer",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// What a message says: one text, or parts that were sent apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Text(String),
    Parts(Vec<String>),
}

impl Content {
    /// Parts stand on lines of their own: templates of text models take one string.
    pub fn to_text(&self) -> String {
        match self {
            Content::Text(text) => text.clone(),
            Content::Parts(parts) => parts.join("\n"),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub role: Role,
    pub content: Content,
    pub reasoning: Option<String>,    // of an assistant, before its content
    pub tool_calls: Vec<ToolCall>,    // of an assistant, after its content
    pub tool_call_id: Option<String>, // of a tool: which call this answers
    pub name: Option<String>,         // of a tool: its name
}

impl Message {
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Message {
            role,
            content: Content::Text(content.into()),
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments: Value, // an object; a string when the model wrote no valid JSON
}

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: String,
    pub parameters: Value, // JSON schema of the arguments
}

/// Everything that a prompt is made from.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    pub messages: Vec<Message>,
    pub tools: Vec<Tool>,
    pub add_generation_prompt: bool,
    pub variables: Map<String, Value>, // what else the template knows, such as `enable_thinking`
    pub now_unix_s: i64,               // for templates that tell the date
}
