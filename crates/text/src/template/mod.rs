//! Chat templates: the Jinja program in a model file that turns a conversation into its prompt.
//!
//! The program is hostile input, and so is the conversation. The program's source, steps, depth and memory are
//! bounded (`meter`), and nothing in the conversation can become a control token (`fence`).

pub(crate) mod date;
mod fence;
mod json;
mod meter;
mod operators;
mod program;
mod python;

use crate::chat::{Message, Prompt, Tool};
use crate::error::TextError;
use crate::limits::{JSON_DEPTH_MAX, PROMPT_BYTES_MAX, TEMPLATE_BYTES_MAX};
use crate::segment::Segment;
use crate::tokenizer::Tokenizer;
use fence::Fence;
use minijinja::Value;
use program::{Fault, Program, Run};
use serde_json::Value as Json;
use std::collections::HashSet;
use std::sync::Arc;

/// A chat template that compiles.
#[derive(Debug, Clone)]
pub struct Template {
    program: Arc<Program>,
    heeds_effort: bool,
}

impl Template {
    /// Checks that the source compiles; what it does is only known when it runs.
    pub fn new(source: &str) -> Result<Self, TextError> {
        if source.len() > TEMPLATE_BYTES_MAX {
            let problem = format!("{} bytes of source, at most {TEMPLATE_BYTES_MAX}", source.len());
            return Err(TextError::Template { line: 1, problem });
        }
        let heeds_effort = ["reasoning_effort", "enable_thinking"].iter().any(|name| source.contains(name));
        let program = Arc::new(Program::new(without_generation_tags(source))?);
        Ok(Template { program, heeds_effort })
    }

    /// Whether the program looks at how long the model is to think.
    pub fn heeds_effort(&self) -> bool {
        self.heeds_effort
    }

    /// The prompt for `tokenizer`'s model, with control tokens apart from everyone's text.
    pub fn render(&self, prompt: &Prompt, tokenizer: &Tokenizer) -> Result<Vec<Segment>, TextError> {
        let fence = Fence::new(tokenizer.controls(), &stand_ins_of(prompt))?;
        let run = Run {
            context: context(prompt, tokenizer, &fence)?,
            parts: prompt.messages.len() + prompt.tools.len(),
            now_unix_s: prompt.now_unix_s,
        };
        let rendered = self.program.run(run).map_err(|fault| explain(fault, &fence))?;
        if rendered.len() > PROMPT_BYTES_MAX {
            let problem = format!("the prompt has {} bytes, at most {PROMPT_BYTES_MAX}", rendered.len());
            return Err(TextError::input("messages", problem));
        }
        Ok(fence.segments(&rendered))
    }
}

fn explain(fault: Fault, fence: &Fence) -> TextError {
    let Fault { refused, line, problem } = fault;
    let problem = fence.restore(&problem);
    if refused { TextError::Refused(problem) } else { TextError::Template { line, problem } }
}

/// `{% generation %}` marks what to train on; to a prompt it is a block like any other.
fn without_generation_tags(source: &str) -> String {
    let mut plain = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open);
        let (tag, after) = tag.split_at(tag.find("%}").unwrap_or(tag.len()));
        let word = tag.trim_matches(|c: char| matches!(c, '{' | '%' | '-' | '+') || c.is_whitespace());
        let block = match word {
            "generation" => tag.replace("generation", "if true"),
            "endgeneration" => tag.replace("endgeneration", "endif"),
            _ => tag.to_owned(),
        };
        plain.push_str(before);
        plain.push_str(&block);
        rest = after;
    }
    plain + rest
}

/// The variables of a chat template, as `transformers` passes them.
fn context(prompt: &Prompt, tokenizer: &Tokenizer, fence: &Fence) -> Result<Value, TextError> {
    let literal = |id: Option<u32>| {
        id.map_or(Value::from(""), |id| {
            Value::from(String::from_utf8_lossy(tokenizer.token_bytes(id)).as_ref())
        })
    };
    let messages = prompt.messages.iter().map(|m| message_value(m, fence)).collect::<Result<Vec<_>, _>>()?;
    let tools = prompt.tools.iter().map(|t| tool_value(t, fence)).collect::<Result<Vec<_>, _>>()?;
    let mut pairs = vec![
        ("messages".to_owned(), Value::from(messages)),
        ("tools".to_owned(), if tools.is_empty() { Value::from(()) } else { Value::from(tools) }),
        ("documents".to_owned(), Value::from(())),
        ("add_generation_prompt".to_owned(), Value::from(prompt.add_generation_prompt)),
        ("bos_token".to_owned(), literal(tokenizer.bos())),
        ("eos_token".to_owned(), literal(tokenizer.eos())),
    ];
    for (name, value) in &prompt.variables {
        pairs.push((name.clone(), value_of(value, fence, 0)?));
    }
    Ok(Value::from_pairs(pairs))
}

fn message_value(message: &Message, fence: &Fence) -> Result<Value, TextError> {
    let shield = |text: &str| Value::from(fence.shield(text, None));
    let content = fence.shield(&message.content.to_text(), Some(message.role));
    let mut pairs = vec![("role", Value::from(message.role.name())), ("content", Value::from(content))];
    if let Some(reasoning) = &message.reasoning {
        pairs.push(("reasoning_content", shield(reasoning)));
        pairs.push(("thinking", shield(reasoning)));
    }
    if !message.tool_calls.is_empty() {
        pairs.push(("tool_calls", tool_calls_value(message, fence)?));
    }
    if let Some(id) = &message.tool_call_id {
        pairs.push(("tool_call_id", shield(id)));
    }
    if let Some(name) = &message.name {
        pairs.push(("name", shield(name)));
    }
    Ok(Value::from_pairs(pairs))
}

fn tool_calls_value(message: &Message, fence: &Fence) -> Result<Value, TextError> {
    let calls = message.tool_calls.iter().map(|call| {
        let name = Value::from(fence.shield(&call.name, None));
        let arguments = value_of(&call.arguments, fence, 0)?;
        let function = Value::from_pairs([("name", name), ("arguments", arguments)]);
        let id = Value::from(fence.shield(&call.id, None));
        Ok(Value::from_pairs([("id", id), ("type", Value::from("function")), ("function", function)]))
    });
    Ok(Value::from(calls.collect::<Result<Vec<Value>, TextError>>()?))
}

fn tool_value(tool: &Tool, fence: &Fence) -> Result<Value, TextError> {
    let function = Value::from_pairs([
        ("name", Value::from(fence.shield(&tool.name, None))),
        ("description", Value::from(fence.shield(&tool.description, None))),
        ("parameters", value_of(&tool.parameters, fence, 0)?),
    ]);
    Ok(Value::from_pairs([("type", Value::from("function")), ("function", function)]))
}

fn value_of(json: &Json, fence: &Fence, depth: usize) -> Result<Value, TextError> {
    if depth > JSON_DEPTH_MAX {
        let problem = format!("nested deeper than {JSON_DEPTH_MAX} levels");
        return Err(TextError::input("tools, arguments or variables", problem));
    }
    Ok(match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => number_value(number),
        Json::String(text) => Value::from(fence.shield(text, None)),
        Json::Array(items) => {
            let items = items.iter().map(|item| value_of(item, fence, depth + 1));
            Value::from(items.collect::<Result<Vec<_>, _>>()?)
        }
        Json::Object(pairs) => {
            let pairs = pairs
                .iter()
                .map(|(key, value)| Ok((fence.shield(key, None), value_of(value, fence, depth + 1)?)));
            Value::from_pairs(pairs.collect::<Result<Vec<_>, TextError>>()?)
        }
    })
}

fn number_value(number: &serde_json::Number) -> Value {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(value), _, _) => Value::from(value),
        (None, Some(value), _) => Value::from(value),
        (None, None, value) => Value::from(value.unwrap_or(f64::NAN)),
    }
}

/// The private-use characters that the conversation itself uses.
fn stand_ins_of(prompt: &Prompt) -> HashSet<char> {
    let mut taken = HashSet::new();
    let mut note = |text: &str| taken.extend(text.chars().filter(|c| fence::is_stand_in(*c)));
    for message in &prompt.messages {
        note(&message.content.to_text());
        let labels = [&message.reasoning, &message.tool_call_id, &message.name];
        labels.into_iter().flatten().for_each(|text| note(text));
        for call in &message.tool_calls {
            note(&call.id);
            note(&call.name);
            note(&call.arguments.to_string());
        }
    }
    for tool in &prompt.tools {
        note(&tool.name);
        note(&tool.description);
        note(&tool.parameters.to_string());
    }
    prompt.variables.values().for_each(|value| note(&value.to_string()));
    taken
}
