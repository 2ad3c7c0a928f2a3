//! Promises of `flint-engine` about bytes from outside.

mod constrain;
mod gguf;
mod link;
mod safetensors;

pub use constrain::constrain;
pub use gguf::gguf;
pub use link::link;
pub use safetensors::safetensors;

use flint_engine::load::Fault;
use std::ops::Range;

/// Bytes that a message may have, however long the names in the file are.
const MESSAGE_BYTES_MAX: usize = 1200;

/// A refusal can be shown as it is: short, one line, without control characters of the file's.
fn check_message(fault: &Fault) {
    check_words(fault);
}

fn check_words(words: &impl std::fmt::Display) {
    let message = words.to_string();
    assert!(message.len() <= MESSAGE_BYTES_MAX, "a message of {} bytes: {message}", message.len());
    assert!(!message.chars().any(char::is_control), "control characters in {message:?}");
}

/// Ranges lie within `len` bytes, and no two share any.
fn check_apart(mut ranges: Vec<Range<usize>>, len: usize) {
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.iter().all(|range| range.start < range.end && range.end <= len), "{ranges:?} in {len}");
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
}
