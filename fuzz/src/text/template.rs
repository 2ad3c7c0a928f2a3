//! Chat templates: any program, on any conversation, ends within its bounds and lets no one's words become
//! control tokens.

use super::{field, small_tokenizer, text_field};
use flint_text::chat::{Message, Prompt, Role, Tool, ToolCall};
use flint_text::limits::PROMPT_BYTES_MAX;
use flint_text::{Segment, Template, TextError};
use serde_json::Value;

const CHATML: &str =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
const ROLES: [Role; 5] = [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool];
const MESSAGES_MAX: usize = 16;

/// The program, a schema or arguments as JSON, then messages: a digit for the role and what it carries, and its text.
pub fn template(input: &[u8]) {
    let rest = &mut &*input;
    let source = text_field(rest);
    let json = serde_json::from_slice(field(rest)).unwrap_or(Value::Null);
    let prompt = prompt(json, rest);
    check_chatml(&prompt);
    match Template::new(&source) {
        Ok(template) => check(&template, &source, &prompt),
        Err(error) => assert!(matches!(error, TextError::Template { .. }), "{error}"),
    }
}

fn prompt(json: Value, rest: &mut &[u8]) -> Prompt {
    let mut messages = Vec::new();
    while !rest.is_empty() && messages.len() < MESSAGES_MAX {
        messages.push(message(&json, &text_field(rest)));
    }
    let tool = Tool { name: "edit".into(), description: "Edits a file".into(), parameters: json };
    let tools = if tool.parameters.is_null() { vec![] } else { vec![tool] };
    Prompt { messages, tools, add_generation_prompt: true, now_unix_s: 1_767_225_600, ..Prompt::default() }
}

fn message(json: &Value, text: &str) -> Message {
    let digit = text.bytes().next().unwrap_or(b'2');
    let role = ROLES[usize::from(digit.wrapping_sub(b'0')) % ROLES.len()];
    let mut message = Message::new(role, text.get(1..).unwrap_or_default());
    if role == Role::Assistant && digit >= b'8' {
        message.reasoning = Some(text.to_owned());
        let call = ToolCall { id: text.to_owned(), name: text.to_owned(), arguments: json.clone() };
        message.tool_calls.push(call);
    }
    if role == Role::Tool {
        message.tool_call_id = Some(text.to_owned());
        message.name = Some(text.to_owned());
    }
    message
}

fn check(template: &Template, source: &str, prompt: &Prompt) {
    let tokenizer = small_tokenizer();
    let rendered = template.render(prompt, tokenizer);
    assert_eq!(template.render(prompt, tokenizer), rendered, "the same prompt, rendered otherwise");
    match rendered {
        Ok(segments) => {
            check_segments(&segments);
            let own = can_write_controls(source) || prompt.messages.iter().any(|m| m.role == Role::Assistant);
            assert!(own || !segments.iter().any(is_control), "outside words became control: {segments:?}");
        }
        Err(error) => {
            let failed = error.to_string().contains("the template engine failed");
            assert!(!failed, "a panic within the template engine");
        }
    }
}

/// Whether a program might spell a control token itself, if only by an escape.
fn can_write_controls(source: &str) -> bool {
    ["<", "\\", "%c", "_token", "format"].iter().any(|way| source.contains(way))
}

fn is_control(segment: &Segment) -> bool {
    matches!(segment, Segment::Control(_))
}

/// Bounded, nothing empty, no two texts side by side, and every control token is one.
fn check_segments(segments: &[Segment]) {
    let text = |segment: &Segment| match segment {
        Segment::Text(text) | Segment::Control(text) => text.clone(),
    };
    assert!(segments.iter().map(|segment| text(segment).len()).sum::<usize>() <= PROMPT_BYTES_MAX);
    assert!(segments.iter().all(|segment| !text(segment).is_empty()));
    assert!(segments.windows(2).all(|pair| is_control(&pair[0]) || is_control(&pair[1])), "{segments:?}");
    small_tokenizer().encode_segments(segments, &mut Vec::new()).expect("control tokens of the vocabulary");
}

/// A plain template repeats every word as it was said, and adds exactly its own control tokens.
fn check_chatml(prompt: &Prompt) {
    let mut prompt = prompt.clone();
    prompt.messages.retain(|message| message.role != Role::Assistant);
    let segments = Template::new(CHATML).and_then(|chatml| chatml.render(&prompt, small_tokenizer()));
    let mut expected = Vec::new();
    let mut between = "";
    for message in &prompt.messages {
        expected.extend((!between.is_empty()).then(|| Segment::Text(between.into())));
        expected.push(Segment::Control("<|im_start|>".into()));
        let said = message.content.to_text();
        expected.push(Segment::Text(format!("{}\n{said}", message.role.name())));
        expected.push(Segment::Control("<|im_end|>".into()));
        between = "\n";
    }
    expected.extend((!between.is_empty()).then(|| Segment::Text(between.into())));
    assert_eq!(segments, Ok(expected));
}
