//! Tokenizer files: what was accepted encodes any text, always alike, and never into a control token.

use super::{field, text_field};
use flint_text::{Segment, TokenKind, Tokenizer};

/// A tokenizer.json, then a text.
pub fn tokenizer(input: &[u8]) {
    let rest = &mut &*input;
    let json = field(rest);
    let text = text_field(rest);
    match Tokenizer::from_json(json) {
        Ok(tokenizer) => check(&tokenizer, json, &text),
        Err(error) => assert!(error.to_string().starts_with("tokenizer: "), "{error}"),
    }
}

fn check(tokenizer: &Tokenizer, json: &[u8], text: &str) {
    let ids = ids(tokenizer, text);
    check_ids(tokenizer, &ids);
    check_printable(tokenizer, text);
    check_segments(tokenizer, text);
    let again = Tokenizer::from_json(json).expect("what was accepted once");
    assert_eq!(self::ids(&again, text), ids, "the same file and text, other ids");
    assert_eq!(again.decode(&ids), tokenizer.decode(&ids));
    assert_eq!((again.bos(), again.eos_ids()), (tokenizer.bos(), tokenizer.eos_ids()));
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode_text(text, &mut ids).expect("a short text");
    ids
}

/// Text becomes ordinary tokens of the vocabulary, whatever it spells.
fn check_ids(tokenizer: &Tokenizer, ids: &[u32]) {
    for id in ids {
        assert!((*id as usize) < tokenizer.vocab_size());
        assert!(matches!(tokenizer.kind(*id), TokenKind::Text | TokenKind::Verbatim), "{id}");
    }
}

/// Printable ASCII comes back as it was: every vocabulary can spell it.
fn check_printable(tokenizer: &Tokenizer, text: &str) {
    let printable: String = text.chars().filter(|c| (' '..='~').contains(c)).collect();
    let ids = ids(tokenizer, &printable);
    let spelled: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).copied().collect();
    assert_eq!(String::from_utf8_lossy(&spelled), printable);
    assert_eq!(tokenizer.decode(&ids), printable);
}

/// A prompt's control tokens become exactly their ids.
fn check_segments(tokenizer: &Tokenizer, text: &str) {
    let segments = tokenizer.controls().split(text);
    let mut ids = Vec::new();
    tokenizer.encode_segments(&segments, &mut ids).expect("its own controls");
    let mut expected = Vec::new();
    for segment in &segments {
        match segment {
            Segment::Text(text) => tokenizer.encode_text(text, &mut expected).expect("a short text"),
            Segment::Control(literal) => expected.extend(tokenizer.control_id(literal)),
        }
    }
    assert_eq!(ids, expected);
    let controls = |ids: &[u32]| ids.iter().filter(|id| is_control(tokenizer, **id)).count();
    let written = segments.iter().filter(|segment| matches!(segment, Segment::Control(_))).count();
    assert_eq!(controls(&ids), written);
}

fn is_control(tokenizer: &Tokenizer, id: u32) -> bool {
    matches!(tokenizer.kind(id), TokenKind::Control | TokenKind::Marker)
}
