//! Tokens to text, one at a time, never half a character.
//!
//! A token may end in the middle of a character. Its bytes wait here until the character is whole or
//! can no longer become one; then it is U+FFFD, exactly as if the whole output had been decoded at once.

use crate::tokenizer::Tokenizer;

/// The state of one output stream. Buffers are reused, so a steady stream allocates nothing.
#[derive(Debug, Default)]
pub struct Detokenizer {
    pending: Vec<u8>, // an incomplete character, plus the token just pushed
    delta: String,
}

impl Detokenizer {
    pub fn new() -> Self {
        Self::default()
    }

    /// The text that `id` completes. Control tokens have none; they only end a broken character.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> &str {
        if tokenizer.is_control(id) {
            return self.finish();
        }
        self.push_bytes(tokenizer.token_bytes(id))
    }

    /// As `push`, for bytes from anywhere.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> &str {
        self.delta.clear();
        self.pending.extend_from_slice(bytes);
        let kept = drain_characters(&self.pending, &mut self.delta);
        self.pending.drain(..kept);
        &self.delta
    }

    /// Flushes what is left: a broken character becomes U+FFFD.
    pub fn finish(&mut self) -> &str {
        self.delta.clear();
        if !self.pending.is_empty() {
            self.delta.push(char::REPLACEMENT_CHARACTER);
            self.pending.clear();
        }
        &self.delta
    }
}

/// Decodes whole characters from the front of `bytes` and says how many bytes they took.
fn drain_characters(bytes: &[u8], text: &mut String) -> usize {
    let mut rest = bytes;
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return bytes.len();
            }
            Err(error) => error,
        };
        let (valid, after) = rest.split_at(error.valid_up_to());
        text.push_str(&String::from_utf8_lossy(valid));
        match error.error_len() {
            None => return bytes.len() - after.len(),
            Some(broken) => {
                text.push(char::REPLACEMENT_CHARACTER);
                rest = &after[broken..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn streamed(bytes: &[u8], cuts: &[usize]) -> String {
        let mut detokenizer = Detokenizer::new();
        let mut text = String::new();
        let mut from = 0;
        for cut in cuts.iter().map(|c| c % (bytes.len() + 1)).chain([bytes.len()]) {
            let to = cut.max(from);
            text.push_str(detokenizer.push_bytes(&bytes[from..to]));
            from = to;
        }
        text.push_str(detokenizer.finish());
        text
    }

    #[test]
    fn holds_back_half_a_character() {
        let mut detokenizer = Detokenizer::new();
        assert_eq!(detokenizer.push_bytes(b"a\xe2\x82"), "a");
        assert_eq!(detokenizer.push_bytes(b"\xac!"), "€!");
        assert_eq!(detokenizer.push_bytes(b"\xf0\x9f"), "");
        assert_eq!(detokenizer.push_bytes(b"x"), "\u{fffd}x");
        assert_eq!(detokenizer.push_bytes(b"\xe2"), "");
        assert_eq!(detokenizer.finish(), "\u{fffd}");
        assert_eq!(detokenizer.finish(), "");
    }

    proptest! {
        #[test]
        fn deltas_equal_the_whole(bytes in prop::collection::vec(any::<u8>(), 0..64), cuts in prop::collection::vec(0usize..64, 0..8)) {
            let mut cuts = cuts;
            cuts.sort();
            prop_assert_eq!(streamed(&bytes, &cuts), String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn deltas_of_text_equal_the_text(text in "\\PC{0,40}", cuts in prop::collection::vec(0usize..160, 0..12)) {
            let mut cuts = cuts;
            cuts.sort();
            prop_assert_eq!(streamed(text.as_bytes(), &cuts), text);
        }
    }
}
