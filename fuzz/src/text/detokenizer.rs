//! The detokenizer: deltas are whole characters, and together they are the whole.

use super::{cut, field, small_tokenizer};
use flint_text::Detokenizer;

/// The sizes of the parts, then the bytes; the bytes also stand for ids.
pub fn detokenizer(input: &[u8]) {
    let rest = &mut &*input;
    let sizes = field(rest);
    check_bytes(&cut(rest, sizes), rest);
    check_ids(rest);
}

fn check_bytes(parts: &[&[u8]], whole: &[u8]) {
    let mut detokenizer = Detokenizer::new();
    let mut text = String::new();
    let mut pushed = 0;
    for part in parts {
        text.push_str(detokenizer.push_bytes(part));
        pushed += part.len();
        check_held(&whole[..pushed], &text);
    }
    text.push_str(detokenizer.finish());
    assert_eq!(text, String::from_utf8_lossy(whole));
    assert_eq!(detokenizer.finish(), "");
}

/// All that can be told has been told: only the beginning of a character may wait.
fn check_held(pushed: &[u8], text: &str) {
    let whole = String::from_utf8_lossy(pushed);
    let held = whole.strip_prefix(text).expect("what was told is the beginning of the whole");
    assert!(held.is_empty() || held == "\u{fffd}", "{held:?} waits");
}

/// Ids from pairs of bytes, some past the vocabulary. Control tokens have no text and end a broken character.
fn check_ids(bytes: &[u8]) {
    let tokenizer = small_tokenizer();
    let ids = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_le_bytes([pair[0], pair[1]])) % 512);
    let ids: Vec<u32> = ids.collect();
    let mut expected = String::new();
    for run in ids.split(|id| tokenizer.is_control(*id)) {
        let bytes: Vec<u8> = run.iter().flat_map(|id| tokenizer.token_bytes(*id)).copied().collect();
        expected.push_str(&String::from_utf8_lossy(&bytes));
    }
    assert_eq!(tokenizer.decode(&ids), expected);
}
