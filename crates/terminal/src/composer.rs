//! The text that a person is writing. The cursor stands between signs as a terminal draws them, never inside one.

mod history;

use crate::limits::COMPOSER_BYTES_MAX;
pub use history::History;
use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Composer {
    text: String,
    cursor: usize, // in bytes, at the edge of a sign
}

/// Where the cursor goes, or how far is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Motion {
    Left,
    Right,
    WordLeft,
    WordRight,
    LineBegin,
    LineEnd,
    Up,
    Down,
}

impl Composer {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn cursor(&self) -> usize {
        self.cursor
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Puts a text in place of all that is there, the cursor at its end.
    pub fn set(&mut self, text: String) {
        self.cursor = text.len();
        self.text = text;
    }

    pub fn take(&mut self) -> String {
        self.cursor = 0;
        std::mem::take(&mut self.text)
    }

    /// Whether there was room. What a person pasted goes in whole or not at all.
    pub fn insert(&mut self, text: &str) -> bool {
        if self.text.len() + text.len() > COMPOSER_BYTES_MAX {
            return false;
        }
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
        // What was written may have joined with what stands behind it.
        self.cursor = self.edge(self.cursor);
        true
    }

    /// Whether the cursor has moved.
    pub fn go(&mut self, motion: Motion) -> bool {
        let before = self.cursor;
        self.cursor = self.target(motion);
        self.cursor != before
    }

    pub fn delete(&mut self, motion: Motion) {
        let target = self.target(motion);
        let range = target.min(self.cursor)..target.max(self.cursor);
        self.cursor = range.start;
        self.text.replace_range(range, "");
        self.cursor = self.edge(self.cursor);
    }

    fn target(&self, motion: Motion) -> usize {
        let (before, after) = self.text.split_at(self.cursor);
        match motion {
            Motion::Left => before.grapheme_indices(true).next_back().map_or(0, |(at, _)| at),
            Motion::Right => self.cursor + after.graphemes(true).next().map_or(0, str::len),
            Motion::WordLeft => {
                let words = before.trim_end_matches(|char: char| !in_word(char));
                words.trim_end_matches(in_word).len()
            }
            Motion::WordRight => {
                let word = after.trim_start_matches(|char: char| !in_word(char));
                self.text.len() - word.trim_start_matches(in_word).len()
            }
            Motion::LineBegin => before.rfind('\n').map_or(0, |at| at + 1),
            Motion::LineEnd => self.cursor + after.find('\n').unwrap_or(after.len()),
            Motion::Up => self.line_up(before),
            Motion::Down => self.line_down(before, after),
        }
    }

    /// The same number of signs from the beginning of the line above.
    fn line_up(&self, before: &str) -> usize {
        let Some(end) = before.rfind('\n') else { return self.cursor };
        let signs = before[end + 1..].graphemes(true).count();
        let begin = before[..end].rfind('\n').map_or(0, |at| at + 1);
        begin + sign_start(&before[begin..end], signs)
    }

    fn line_down(&self, before: &str, after: &str) -> usize {
        let Some(end) = after.find('\n') else { return self.cursor };
        let line = before.rfind('\n').map_or(before, |at| &before[at + 1..]);
        let signs = line.graphemes(true).count();
        let below = after[end + 1..].split('\n').next().unwrap_or_default();
        self.cursor + end + 1 + sign_start(below, signs)
    }

    /// The next edge of a sign, from here on.
    fn edge(&self, at: usize) -> usize {
        let mut cursor = GraphemeCursor::new(at, self.text.len(), true);
        match cursor.is_boundary(&self.text, 0) {
            Ok(true) | Err(_) => at,
            Ok(false) => cursor.next_boundary(&self.text, 0).ok().flatten().unwrap_or(self.text.len()),
        }
    }
}

fn sign_start(line: &str, signs: usize) -> usize {
    line.grapheme_indices(true).nth(signs).map_or(line.len(), |(at, _)| at)
}

fn in_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, cursor: usize) -> Composer {
        Composer { text: text.to_owned(), cursor }
    }

    #[test]
    fn motions() {
        for (text, from, motion, to) in [
            ("aé日", 6, Motion::Left, 3),
            ("e\u{301}x", 0, Motion::Right, 3),
            ("👩\u{200d}💻!", 12, Motion::Left, 11),
            ("one two_3 ", 10, Motion::WordLeft, 4),
            ("one two", 0, Motion::WordRight, 3),
            ("one two", 3, Motion::WordRight, 7),
            ("ab\ncd", 4, Motion::LineBegin, 3),
            ("ab\ncd", 1, Motion::LineEnd, 2),
            ("abc\nd\nefg", 8, Motion::Up, 5),
            ("abc\nd\nefg", 2, Motion::Down, 5),
            ("abc", 2, Motion::Up, 2),
            ("", 0, Motion::Left, 0),
        ] {
            let mut composer = at(text, from);
            composer.go(motion);
            assert_eq!(composer.cursor, to, "{text:?} {motion:?}");
        }
    }

    #[test]
    fn deletions() {
        let mut composer = at("one two", 7);
        composer.delete(Motion::WordLeft);
        assert_eq!(composer, at("one ", 4));
        composer.delete(Motion::LineBegin);
        assert!(composer.is_empty());
        assert!(composer.insert("a\r\nb\rc"));
        assert_eq!(composer.text(), "a\nb\nc");
        assert!(!composer.insert(&"x".repeat(COMPOSER_BYTES_MAX)));
        assert_eq!(composer.take(), "a\nb\nc");
    }
}
