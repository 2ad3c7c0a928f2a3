//! Text of a model, a command or a file, made safe to show.
//!
//! Nothing of it may move the cursor, change the screen, turn the order of letters round or hide. What would is replaced by
//! a sign that can be seen, so that nobody approves a command other than the one on the screen.

use crate::limits::{MARKS_MAX, TAB_COLUMNS};
use std::borrow::Cow;
use unicode_width::UnicodeWidthChar;

const REPLACEMENT: char = '\u{fffd}';

/// The text with line breaks, visible signs and spaces only. Tabs become spaces.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte == b'\n' || matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let mut cleaner = Cleaner { out: String::with_capacity(text.len()), column: 0, marks: 0, last: '\n' };
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        // A line break as Windows writes it is one.
        if !(char == '\r' && chars.peek() == Some(&'\n')) {
            cleaner.take(char);
        }
    }
    match cleaner.out == text {
        true => Cow::Borrowed(text),
        false => Cow::Owned(cleaner.out),
    }
}

struct Cleaner {
    out: String,
    column: usize, // of the line
    marks: usize,  // since the last letter
    last: char,    // that was kept
}

impl Cleaner {
    fn take(&mut self, char: char) {
        match char {
            '\n' => {
                self.push('\n', 0);
                self.column = 0;
            }
            '\t' => {
                for _ in 0..TAB_COLUMNS - self.column % TAB_COLUMNS {
                    self.push(' ', 1);
                }
            }
            '\0'..='\u{1f}' => self.push(char::from_u32(0x2400 + char as u32).unwrap_or(REPLACEMENT), 1),
            '\u{7f}' => self.push('\u{2421}', 1),
            '\u{fe0e}' | '\u{fe0f}' | '\u{200c}' | '\u{200d}' => self.take_joiner(char),
            _ if hides(char) => self.push(REPLACEMENT, 1),
            _ => match char.width().unwrap_or(0) {
                0 => self.take_mark(char),
                width => self.push(char, width),
            },
        }
    }

    /// What makes one sign of two, or gives one its colours: wanted after a sign that is not ASCII, and only once.
    fn take_joiner(&mut self, char: char) {
        let alone = self.last.is_ascii() || self.last == REPLACEMENT || self.last.width() == Some(0);
        let after_selector = char == '\u{200d}' && matches!(self.last, '\u{fe0e}' | '\u{fe0f}');
        match (alone && !after_selector, char) {
            (false, _) => self.push(char, 0),
            // Of the signs for keys: an ASCII digit, this, and a frame. It changes nothing but the width.
            (true, '\u{fe0e}' | '\u{fe0f}') if self.last.is_ascii_digit() => {}
            (true, _) => self.push(REPLACEMENT, 1),
        }
    }

    fn take_mark(&mut self, char: char) {
        self.marks += 1;
        match self.marks > MARKS_MAX || self.last == '\n' {
            true => self.push(REPLACEMENT, 1),
            false => self.push(char, 0),
        }
    }

    fn push(&mut self, char: char, width: usize) {
        self.out.push(char);
        self.column += width;
        self.last = char;
        if width > 0 {
            self.marks = 0;
        }
    }
}

/// Whether a sign is invisible, or turns the order of others round.
fn hides(char: char) -> bool {
    matches!(char,
        '\u{80}'..='\u{9f}'           // C1: escape sequences in one byte
        | '\u{ad}' | '\u{34f}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' // directions
        | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // letters that are blank
        | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
        | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}') // tags and selectors, in which whole texts have been hidden
}

/// Whether a text could be on the screen: what `clean` promises, for tests.
pub fn is_clean(text: &str) -> bool {
    !text.chars().any(|char| (char.is_control() && char != '\n') || hides(char))
}

/// What a command wrote, as a terminal would leave it: colours go, and of a line that was written over the last form stays.
pub fn settled_output(text: &str) -> Cow<'_, str> {
    if !text.contains(['\u{1b}', '\r']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let line = line.trim_end_matches('\r');
        out += &without_colours(line.rsplit('\r').next().unwrap_or_default());
        out += end;
    }
    Cow::Owned(out)
}

/// Without `ESC [ .. m` and `ESC [ .. K`. Any other sequence stays, to be seen.
fn without_colours(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("\u{1b}[") {
        let (before, sequence) = rest.split_at(at);
        out += before;
        let body = sequence.get(2..).unwrap_or_default();
        let after = body.trim_start_matches(|char: char| char.is_ascii_digit() || matches!(char, ';' | ':'));
        match after.strip_prefix(['m', 'K']) {
            Some(after) => rest = after,
            None => {
                out += "\u{1b}[";
                rest = body;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_is_seen() {
        for (text, expected) in [
            ("plain\n", "plain\n"),
            ("a\u{1b}[2Jb", "a␛[2Jb"),
            ("\u{9b}31m", "�31m"),
            ("a\tb\n\tc", "a   b\n    c"),
            ("日\tb", "日  b"),
            ("a\r\nb\rc", "a\nb␍c"),
            ("rm\u{202e}x\u{200b}y\u{7f}", "rm�x�y␡"),
            ("e\u{301}", "e\u{301}"),
            ("\u{301}", "�"),
            ("👩\u{200d}💻 ❤\u{fe0f} 1\u{fe0f}\u{20e3}", "👩\u{200d}💻 ❤\u{fe0f} 1\u{20e3}"),
            ("a\u{200d}b\u{e0041}\u{fe01}", "a�b��"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
        }
        assert!(clean(&format!("a{}", "\u{301}".repeat(20))).contains(REPLACEMENT));
    }

    #[test]
    fn output_is_as_a_terminal_leaves_it() {
        for (text, expected) in [
            ("\u{1b}[1;31mred\u{1b}[0m\n", "red\n"),
            ("10%\r50%\r100%\r\nnext", "100%\nnext"),
            ("\u{1b}[2Jx", "\u{1b}[2Jx"),
            ("\u{1b}[", "\u{1b}["),
        ] {
            assert_eq!(settled_output(text), expected, "{text:?}");
        }
    }
}
