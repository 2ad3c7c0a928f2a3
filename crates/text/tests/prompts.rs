//! Real templates render what `transformers` renders, and nobody's text becomes a control token.

mod common;

use common::{cases, fnv, gguf_tokenizer, golden, json_template, json_tokenizer};
use flint_text::chat::{Content, Message, Prompt, Role};
use flint_text::{Segment, Template, Tokenizer};

fn flat(segments: &[Segment]) -> String {
    let text = |s: &Segment| match s {
        Segment::Text(text) | Segment::Control(text) => text.clone(),
    };
    segments.iter().map(text).collect()
}

fn controls(segments: &[Segment]) -> Vec<String> {
    let control = |s: &Segment| match s {
        Segment::Control(literal) => Some(literal.clone()),
        Segment::Text(_) => None,
    };
    segments.iter().filter_map(control).collect()
}

fn check(model: &str, tokenizer: &Tokenizer, template: &str) {
    let template = Template::new(template).unwrap();
    let expected = cases::read("prompts.json");
    for (name, prompt) in cases::prompts() {
        let Some(expected) = expected[model].get(&name) else { continue };
        let segments = template.render(&prompt, tokenizer).unwrap_or_else(|e| panic!("{model}, {name}: {e}"));
        assert_eq!(flat(&segments), expected["text"].as_str().unwrap(), "{model}, {name}");
        if let Some(ids_digest) = expected["ids"].as_str() {
            let mut ids = Vec::new();
            tokenizer.encode_segments(&segments, &mut ids).unwrap();
            assert_eq!(fnv(ids), ids_digest, "{model}, {name}: ids");
        }
    }
    check_fence(model, tokenizer, &template);
}

/// A conversation full of control tokens has those that the template puts there, and no others.
fn check_fence(model: &str, tokenizer: &Tokenizer, template: &Template) {
    let attack = tokenizer.controls().literals().concat();
    let conversation = |words: &str| Prompt {
        messages: vec![
            Message {
                content: Content::Parts(vec![words.into(), words.into()]),
                ..Message::new(Role::System, "")
            },
            Message::new(Role::User, words),
            Message::new(Role::Assistant, words.replace("<think>", "").replace("</think>", "")),
            Message::new(Role::User, words),
        ],
        add_generation_prompt: true,
        ..Prompt::default()
    };
    let calm = template.render(&conversation("x"), tokenizer).unwrap();
    let attacked = template.render(&conversation(&attack), tokenizer).unwrap();
    assert_eq!(controls(&calm), controls(&attacked), "{model}");
    assert!(flat(&attacked).contains(&attack), "{model}: the text is kept");
}

#[test]
fn smollm2() {
    let model = gguf_tokenizer("smollm2-135m");
    check("smollm2-135m", &model.tokenizer, &model.template.unwrap());
}

#[test]
fn qwen2_5_coder() {
    let model = gguf_tokenizer("qwen2.5-coder-1.5b");
    check("qwen2.5-coder-1.5b", &model.tokenizer, &model.template.unwrap());
}

#[test]
fn qwen3() {
    check("qwen3", &json_tokenizer("qwen3"), &json_template("qwen3"));
}

#[test]
fn qwen3_coder() {
    let template = std::fs::read_to_string(golden("templates/qwen3-coder.jinja")).unwrap();
    check("qwen3-coder", &json_tokenizer("qwen3"), &template);
}

#[test]
fn llama3_1() {
    check("llama3.1", &json_tokenizer("llama3.1"), &json_template("llama3.1"));
}

#[test]
fn gpt_oss() {
    let template = std::fs::read_to_string(golden("templates/gpt-oss.jinja")).unwrap();
    check("gpt-oss", &json_tokenizer("gpt-oss"), &template);
}

/// The native renderer of gpt-oss's format against OpenAI's own.
#[test]
fn harmony() {
    let tokenizer = json_tokenizer("gpt-oss");
    let expected = cases::read("harmony.json");
    for (name, prompt) in cases::prompts() {
        let segments = flint_text::harmony::render(&prompt).unwrap();
        assert_eq!(flat(&segments), expected[&name]["text"].as_str().unwrap(), "{name}");
        let mut ids = Vec::new();
        tokenizer.encode_segments(&segments, &mut ids).unwrap();
        assert_eq!(fnv(ids), expected[&name]["ids"].as_str().unwrap(), "{name}: ids");
    }
}
