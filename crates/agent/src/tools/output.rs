//! What a program writes to its terminal, as plain text that is not longer than can be read.

use crate::limits::{OUTPUT_HEAD_BYTES_MAX, OUTPUT_STREAMED_BYTES_MAX, OUTPUT_TAIL_BYTES_MAX};
use std::collections::VecDeque;

/// Bytes to text, as they come: half a character waits for its other half, line ends become `\n`, and what only moves or
/// colours a terminal is left out.
#[derive(Debug, Default)]
pub struct Plain {
    half: Vec<u8>, // of a character
    within: Within,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Within {
    #[default]
    Text,
    /// After a carriage return, which ends a line alone as well.
    Return,
    /// After ESC.
    Escape,
    /// After `ESC [`, until a letter.
    Control,
    /// A title or a link, until BEL or ESC `\`.
    Command,
    /// After `ESC (` and the like: one more.
    Charset,
}

impl Plain {
    pub fn take(&mut self, bytes: &[u8]) -> String {
        self.half.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.half);
        let mut text = String::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(good) => {
                    self.add(good, &mut text);
                    return text;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    self.add(std::str::from_utf8(good).unwrap_or_default(), &mut text);
                    let Some(length) = error.error_len() else {
                        self.half = bad.to_vec();
                        return text;
                    };
                    self.add("\u{fffd}", &mut text);
                    rest = &bad[length..];
                }
            }
        }
    }

    /// What was held back when nothing more comes.
    pub fn end(&mut self) -> String {
        let mut text = String::new();
        if !std::mem::take(&mut self.half).is_empty() {
            self.add("\u{fffd}", &mut text);
        }
        if self.within == Within::Return {
            text.push('\n');
        }
        self.within = Within::Text;
        text
    }

    fn add(&mut self, from: &str, to: &mut String) {
        from.chars().for_each(|letter| self.letter(letter, to));
    }

    fn letter(&mut self, letter: char, to: &mut String) {
        use Within::{Charset, Command, Control, Escape, Return, Text};
        self.within = match (self.within, letter) {
            (Text | Return, '\n') => {
                to.push('\n');
                Text
            }
            (Text | Return, '\r') => Return,
            (Return, letter) => {
                to.push('\n');
                self.within = Text;
                return self.letter(letter, to);
            }
            (_, '\u{1b}') => Escape,
            (Escape, '[') => Control,
            (Escape, ']' | 'P' | '_' | '^' | 'X') => Command,
            (Escape, '(' | ')' | '*' | '+' | '#' | '%' | ' ') => Charset,
            (Escape | Charset, _) => Text,
            (Control, '\u{40}'..='\u{7e}') => Text,
            // What is not closed must not swallow all that follows.
            (Control | Command, '\n') => {
                to.push('\n');
                Text
            }
            (Control, _) => Control,
            (Command, '\u{7}') => Text,
            (Command, _) => Command,
            (Text, letter) => {
                if letter == '\t' || !letter.is_control() {
                    to.push(letter);
                }
                Text
            }
        };
    }
}

/// The first and the last of a text, and how much was between them.
#[derive(Debug, Default)]
pub struct Kept {
    head: String,
    tail: VecDeque<u8>,
    cut: u64,      // bytes
    streamed: u64, // likewise
}

impl Kept {
    pub fn add(&mut self, text: &str) {
        let room = OUTPUT_HEAD_BYTES_MAX.saturating_sub(self.head.len());
        let split = if self.tail.is_empty() { text.floor_char_boundary(room) } else { 0 };
        let (head, tail) = text.split_at(split);
        self.head.push_str(head);
        self.tail.extend(tail.as_bytes());
        let over = self.tail.len().saturating_sub(OUTPUT_TAIL_BYTES_MAX);
        self.tail.drain(..over);
        self.cut += over as u64;
    }

    /// As much of a new piece as whoever watches still gets to see.
    pub fn shown<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let before = self.streamed;
        self.streamed = before.saturating_add(text.len() as u64);
        match before {
            ..OUTPUT_STREAMED_BYTES_MAX => Some(text).filter(|text| !text.is_empty()),
            _ => None,
        }
    }

    pub fn end(self) -> String {
        let tail: Vec<u8> = self.tail.into();
        let tail = String::from_utf8_lossy(&tail);
        if self.cut == 0 {
            return self.head + &tail;
        }
        // The cut may have gone through a character.
        let whole = tail.trim_start_matches('\u{fffd}');
        format!("{}\n[... {} bytes are left out here ...]\n{whole}", self.head, self.cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(pieces: &[&[u8]]) -> String {
        let mut plain = Plain::default();
        let mut text: String = pieces.iter().map(|piece| plain.take(piece)).collect();
        text += &plain.end();
        text
    }

    #[test]
    fn characters_and_line_ends() {
        for (pieces, expected) in [
            (&["grün".as_bytes()][..], "grün"),
            (&[b"gr\xc3", b"\xbcn"], "grün"),
            (&[b"\xf0\x9f", b"\xa6", b"\x80!"], "🦀!"),
            (&[b"a\xffb\xc3"], "a\u{fffd}b\u{fffd}"),
            (&[b"a\r\nb\r", b"\nc\r\r\nd"], "a\nb\nc\nd"),
            (&[b"10%\r20%\r"], "10%\n20%\n"),
            (&[b"\x1b[1;31mred\x1b[0m"], "red"),
            (&[b"\x1b", b"[3", b"1mred"], "red"),
            (&[b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b"], "ab"),
            (&[b"\x1b(Ba\x07\x08\x00b\tc"], "ab\tc"),
            (&[b"\x1b]never closed\nseen"], "\nseen"),
            (&[b"a\r\x1b[2Kb"], "a\nb"),
        ] {
            assert_eq!(plain(pieces), expected, "{pieces:?}");
        }
    }

    proptest::proptest! {
        /// However it comes in pieces, the text is the same, and moves no terminal.
        #[test]
        fn pieces_make_no_difference(bytes: Vec<u8>, cuts in proptest::collection::vec(1usize..9, 1..20)) {
            let (mut pieces, mut rest) = (Vec::new(), bytes.as_slice());
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            pieces.push(rest);
            let text = plain(&pieces);
            proptest::prop_assert_eq!(&text, &plain(&[&bytes]));
            proptest::prop_assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n' && letter != '\t'));
        }
    }

    #[test]
    fn the_middle_is_left_out() {
        let mut kept = Kept::default();
        let text = "ä".repeat(OUTPUT_HEAD_BYTES_MAX) + &"b".repeat(OUTPUT_TAIL_BYTES_MAX);
        text.as_bytes().chunks(1000).for_each(|piece| kept.add(&String::from_utf8_lossy(piece)));
        let kept = kept.end();
        let (head, tail) = kept.split_once('\n').unwrap();
        assert_eq!(head.len(), OUTPUT_HEAD_BYTES_MAX);
        let note = format!("[... {OUTPUT_HEAD_BYTES_MAX} bytes are left out here ...]\n");
        assert_eq!(tail, note + &"b".repeat(OUTPUT_TAIL_BYTES_MAX));
        let mut short = Kept::default();
        short.add("short");
        assert_eq!(short.end(), "short");
    }
}
