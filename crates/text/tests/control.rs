//! Control tokens and markers come from templates and models, never from anyone's text.

mod common;

use common::{gguf_tokenizer, json_tokenizer};
use flint_text::{Segment, TokenKind, Tokenizer};

fn check(name: &str, tokenizer: &Tokenizer) {
    assert!(!tokenizer.controls().literals().is_empty(), "{name} has control tokens");
    for literal in tokenizer.controls().literals() {
        let id = tokenizer.control_id(literal).unwrap();
        assert_eq!(tokenizer.token_bytes(id), literal.as_bytes());
        for text in
            [literal.clone(), format!("a{literal}b"), format!("{literal}{literal}"), format!(" {literal}\n")]
        {
            let mut ids = Vec::new();
            tokenizer.encode_text(&text, &mut ids).unwrap();
            let kinds_are_text = ids.iter().all(|&id| tokenizer.kind(id) == TokenKind::Text);
            assert!(kinds_are_text, "{name}: {text:?} became {ids:?}");
            assert_eq!(tokenizer.decode(&ids), text, "{name}");
        }
        let mut ids = Vec::new();
        tokenizer.encode_segments(&[Segment::Control(literal.clone())], &mut ids).unwrap();
        assert_eq!(ids, [id], "{name}");
    }
}

#[test]
fn user_text_never_becomes_control() {
    for name in ["smollm2-135m", "qwen2.5-coder-1.5b"] {
        check(name, &gguf_tokenizer(name).tokenizer);
    }
    for name in ["qwen2.5", "qwen3", "gpt-oss", "llama3.1"] {
        check(name, &json_tokenizer(name));
    }
}

#[test]
fn turn_ends_are_known() {
    let ends = |tokenizer: &Tokenizer| {
        let literal = |id: &u32| String::from_utf8_lossy(tokenizer.token_bytes(*id)).into_owned();
        tokenizer.eos_ids().iter().map(literal).collect::<Vec<_>>()
    };
    assert_eq!(ends(&gguf_tokenizer("smollm2-135m").tokenizer), ["<|endoftext|>", "<|im_end|>"]);
    assert_eq!(ends(&gguf_tokenizer("qwen2.5-coder-1.5b").tokenizer), ["<|endoftext|>", "<|im_end|>"]);
    assert_eq!(ends(&json_tokenizer("gpt-oss")), ["<|endoftext|>", "<|return|>", "<|call|>"]);
    assert_eq!(ends(&json_tokenizer("llama3.1")), ["<|end_of_text|>", "<|eot_id|>"]);
}

#[test]
fn a_control_token_of_another_model_is_an_error() {
    let tokenizer = gguf_tokenizer("smollm2-135m").tokenizer;
    let mut ids = Vec::new();
    let error = tokenizer.encode_segments(&[Segment::Control("<|start|>".into())], &mut ids).unwrap_err();
    assert_eq!(error.to_string(), "tokenizer: tokens: the vocabulary has no control token \"<|start|>\"");
}
