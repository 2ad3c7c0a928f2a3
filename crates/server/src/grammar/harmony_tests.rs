//! Streams of gpt-oss's own tokens, walked through the grammar as the engine does it.

use super::{Answer, grammar};
use flint_engine::constrain::{Allowed, Compiler, Constraint, Guide, check};
use flint_open::vocabulary;
use flint_text::chat::{Message, Prompt, Role, Tool, ToolCall};
use flint_text::{Segment, Tokenizer, harmony};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

fn tokenizer() -> Tokenizer {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    let file = cache.join("flint/tokenizers/gpt-oss/tokenizer.json");
    assert!(file.exists(), "{} is missing: run `cargo xtask test`, which fetches it", file.display());
    Tokenizer::from_json(&std::fs::read(file).unwrap()).unwrap()
}

/// The model's vocabulary, and grammars over it.
struct Walker {
    tokenizer: Arc<Tokenizer>,
    compiler: Compiler,
}

impl Walker {
    fn new() -> Walker {
        let tokenizer = Arc::new(tokenizer());
        let (vocabulary, count) = (vocabulary(&tokenizer), tokenizer.vocab_size());
        Walker { compiler: Compiler::new(Box::new(move || Ok(vocabulary)), count), tokenizer }
    }

    fn guide(&mut self, tools: &[Tool], answer: Answer<'_>) -> Guide {
        let special = |literal: &str| self.tokenizer.control_id(literal).map(|id| format!("<[{id}]>"));
        let constraint = Constraint::lark(grammar(special, tools, answer).unwrap());
        assert_eq!(check(&constraint), Ok(()), "{}", constraint.grammar());
        let guide = self.compiler.begin(&constraint, 0);
        while !guide.is_ready() {
            guide.wait(Duration::from_secs(20));
        }
        guide
    }

    fn encode(&self, stream: &str) -> Vec<u32> {
        self.encode_segments(&self.tokenizer.controls().split(stream))
    }

    fn encode_segments(&self, segments: &[Segment]) -> Vec<u32> {
        let mut tokens = Vec::new();
        self.tokenizer.encode_segments(segments, &mut tokens).unwrap();
        tokens
    }

    /// What is written before the first token that is forbidden; nothing, if all may be written and end there.
    fn refused(&self, guide: Guide, tokens: &[u32]) -> Option<String> {
        let mut guide = guide;
        for (at, &token) in tokens.iter().enumerate() {
            let mask = guide.mask(&tokens[..at], self.tokenizer.eos_ids()).unwrap();
            if !mask.is_some_and(|mask| mask.allows(token)) {
                return Some(self.tokenizer.decode(&tokens[..at]));
            }
        }
        let ended = guide.advance(tokens).unwrap();
        assert_eq!(ended, Allowed::End, "it goes on after {:?}", self.tokenizer.decode(tokens));
        None
    }
}

fn tool(name: &str, parameters: Value) -> Tool {
    Tool { name: name.into(), description: "does it".into(), parameters }
}

/// One is the beginning of another's name; one says nothing of its arguments.
fn tools() -> Vec<Tool> {
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": false});
    let count = json!({"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"],
        "additionalProperties": false});
    vec![tool("get", city), tool("get_all", count), tool("mcp__x-y", json!({}))]
}

const THOUGHT: &str =
    "<|channel|>analysis<|message|>Hm, \"to=functions.get\" it is.<|end|><|start|>assistant";
const GET: &str = "<|channel|>commentary to=functions.get <|constrain|>json<|message|>";

fn accepts(guide: impl Fn(&mut Walker) -> Guide, streams: &[String]) {
    let mut walker = Walker::new();
    for stream in streams {
        let (guide, tokens) = (guide(&mut walker), walker.encode(stream));
        assert_eq!(walker.refused(guide, &tokens), None, "{stream}");
    }
}

/// The first part may be written, and not all of the second after it.
fn refuses(guide: impl Fn(&mut Walker) -> Guide, streams: &[(String, &str)]) {
    let mut walker = Walker::new();
    for (good, bad) in streams {
        let (guide, good_tokens) = (guide(&mut walker), walker.encode(good));
        let tokens = [good_tokens.clone(), walker.encode(bad)].concat();
        let before = walker.refused(guide, &tokens).unwrap_or_else(|| panic!("{good}{bad} was let through"));
        let text = walker.tokenizer.decode(&good_tokens);
        assert!(before.starts_with(&text), "{good:?} is refused after {before:?}");
    }
}

#[test]
fn thoughts_are_free_and_answers_too() {
    let streams = [
        format!("{THOUGHT}<|channel|>final<|message|>It says {{\"name\": \"get\"}}.\n<|return|>"),
        format!(
            "{THOUGHT}<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant{GET}{{\"city\":\"Ulm\"}}<|call|>"
        ),
        "<|channel|>final<|message|><|return|>".to_owned(),
    ];
    accepts(|walker| walker.guide(&tools(), Answer::Text), &streams);
}

#[test]
fn a_call_may_have_its_recipient_in_either_place() {
    let arguments = "<|message|>{\"city\": \"Zürich\"}<|call|>";
    let heads = [
        " to=functions.get<|channel|>commentary <|constrain|>json",
        "<|channel|>commentary to=functions.get <|constrain|>json",
        "<|channel|>commentary to=functions.get<|constrain|>json",
        "<|channel|>commentary to=functions.get json",
        "<|channel|>analysis to=functions.get",
    ];
    let streams = heads.map(|head| format!("{THOUGHT}{head}{arguments}"));
    accepts(|walker| walker.guide(&tools(), Answer::Text), &streams);
}

#[test]
fn every_declared_tool_can_be_called_as_it_is_rendered() {
    let mut walker = Walker::new();
    let arguments = [json!({"city": "Ulm"}), json!({"count": 3}), json!({"any": [1, null]})];
    for (tool, arguments) in tools().into_iter().zip(arguments) {
        let call = ToolCall { id: "1".into(), name: tool.name, arguments };
        let said = Message {
            reasoning: Some("Hm.".into()),
            tool_calls: vec![call],
            ..Message::new(Role::Assistant, "")
        };
        let hi = Message::new(Role::User, "hi");
        let asked = Prompt { messages: vec![hi.clone()], ..Prompt::default() };
        let answered = Prompt { messages: vec![hi, said], ..Prompt::default() };
        let before = harmony::render(&Prompt { add_generation_prompt: true, ..asked }).unwrap();
        let before = walker.encode_segments(&before);
        let all = walker.encode_segments(&harmony::render(&answered).unwrap());
        let tokens = all.strip_prefix(&before[..]).expect("the answer follows the prompt");
        let guide = walker.guide(&tools(), Answer::Text);
        assert_eq!(walker.refused(guide, tokens), None, "{}", walker.tokenizer.decode(tokens));
    }
}

#[test]
fn arguments_fit_and_tools_are_declared() {
    let all = "<|channel|>commentary to=functions.get_all<|message|>";
    refuses(
        |walker| walker.guide(&tools(), Answer::Text),
        &[
            (format!("{GET}{{\""), "town\":\"Ulm\"}<|call|>"),
            (format!("{GET}{{\"city\":"), "7}<|call|>"),
            (format!("{GET}{{\"city\":\"Ulm\""), "<|call|>"),
            (format!("{GET}{{\"city\":\"Ulm"), "<|return|>"),
            (format!("{GET}{{\"city\":\"Ulm\"}}"), "<|return|>"),
            (format!("{GET}{{\"city\":\"Ulm\"}}"), " and more<|call|>"),
            (format!("{all}{{\""), "city\":\"Ulm\"}<|call|>"),
            (GET.to_owned(), "{}<|call|>"),
            ("<|channel|>commentary to=functions.".to_owned(), "rm<|message|>{}<|call|>"),
            ("<|channel|>commentary to=".to_owned(), "python<|message|>1+1<|call|>"),
            (THOUGHT.replace("<|start|>assistant", ""), "<|return|>"),
        ],
    );
}

#[test]
fn an_answer_under_a_schema_is_json() {
    let schema = json!({"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"],
        "additionalProperties": false});
    let guide = |walker: &mut Walker| walker.guide(&tools(), Answer::Json(&schema));
    let heads = ["<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"];
    accepts(guide, &heads.map(|head| format!("{THOUGHT}{head}{{\"age\": 41}}<|return|>")));
    accepts(guide, &[format!("{THOUGHT}{GET}{{\"city\":\"Ulm\"}}<|call|>")]);
    let head = format!("{THOUGHT}{}", heads[0]);
    let streams = [(head.clone(), "41<|return|>"), (format!("{head}{{\"age\":"), "\"41\"}<|return|>")];
    refuses(guide, &streams);
}

#[test]
fn who_must_call_may_think_before_but_not_answer() {
    let one = &tools()[1..2];
    let guide = |walker: &mut Walker| walker.guide(one, Answer::None);
    let call = "<|channel|>commentary to=functions.get_all <|constrain|>json<|message|>{\"count\":2}<|call|>";
    accepts(guide, &[call.to_owned(), format!("{THOUGHT}{call}")]);
    refuses(
        guide,
        &[
            (format!("{THOUGHT}<|channel|>"), "final<|message|>No.<|return|>"),
            ("<|channel|>commentary to=functions.get".to_owned(), "<|message|>{\"city\":\"Ulm\"}<|call|>"),
        ],
    );
}
