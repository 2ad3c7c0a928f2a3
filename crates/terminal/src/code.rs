//! Colours for code, by reading its words.
//!
//! A reader for all languages, told by a small table (`languages`) what comments, strings and keywords look like. A real
//! grammar knows more, but it needs megabytes and regular expressions, takes long on hostile text, and has to be loaded
//! before the first line; this one takes a line once, from left to right, and goes on where the line before ended.

mod languages;

use crate::style::{CALL, COMMENT, KEYWORD, NUMBER, PLAIN, STRING, TYPE};
use crate::wrap::{Piece, piece};
pub use languages::{Language, by_name};
use ratatui_core::style::Style;

/// What the line before has left open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Open {
    #[default]
    Nothing,
    Comment,
    String(&'static str), // what ends it
}

/// The pieces of one line, and what it leaves open.
pub fn highlight(line: &str, language: &Language, open: Open) -> (Vec<Piece>, Open) {
    let mut reader = Reader { language, rest: line, open, pieces: Vec::new() };
    while !reader.rest.is_empty() {
        reader.step();
    }
    (reader.pieces, reader.open)
}

struct Reader<'a> {
    language: &'a Language,
    rest: &'a str,
    open: Open,
    pieces: Vec<Piece>,
}

impl Reader<'_> {
    fn step(&mut self) {
        match self.open {
            Open::Comment => {
                let end = self.language.block_comment.map_or("", |(_, end)| end);
                self.close(end, COMMENT);
            }
            Open::String(end) => self.close(end, STRING),
            Open::Nothing => self.begin(),
        }
    }

    /// Goes on to the end of what is open, or of the line.
    fn close(&mut self, end: &str, style: Style) {
        match find_end(self.rest, end) {
            Some(at) => {
                self.open = Open::Nothing;
                self.take(at, style);
            }
            None => self.take(self.rest.len(), style),
        }
    }

    fn begin(&mut self) {
        let language = self.language;
        let rest = self.rest;
        if language.line_comments.iter().any(|mark| rest.starts_with(mark)) {
            return self.take(rest.len(), COMMENT);
        }
        if let Some((mark, _)) = language.block_comment.filter(|(mark, _)| rest.starts_with(mark)) {
            self.open = Open::Comment;
            return self.take(mark.len(), COMMENT);
        }
        if let Some(mark) = language.long_strings.iter().find(|mark| rest.starts_with(**mark)) {
            self.open = Open::String(mark);
            return self.take(mark.len(), STRING);
        }
        if let Some(length) = short_string(rest, language) {
            return self.take(length, STRING);
        }
        self.word();
    }

    fn word(&mut self) {
        let rest = self.rest;
        let in_word = |char: char| char.is_alphanumeric() || char == '_';
        let length = rest.find(|char| !in_word(char)).unwrap_or(rest.len());
        if length == 0 {
            // Signs up to the next thing that may mean something.
            let sign = |char: char| {
                !in_word(char) && !matches!(char, '"' | '\'' | '`' | '/' | '#' | '-' | '<' | '(')
            };
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let more = rest[first..].find(|char| !sign(char)).unwrap_or(rest.len() - first);
            return self.take(first + more, PLAIN);
        }
        let (word, after) = rest.split_at(length);
        self.take(length, word_style(word, after, self.language));
    }

    fn take(&mut self, length: usize, style: Style) {
        let (taken, rest) = self.rest.split_at(length);
        self.pieces.push(piece(taken, style));
        self.rest = rest;
    }
}

fn word_style(word: &str, after: &str, language: &Language) -> Style {
    let known = match language.any_case {
        true => language.keywords.contains(&word.to_ascii_lowercase().as_str()),
        false => language.keywords.contains(&word),
    };
    let first = word.chars().next().unwrap_or(' ');
    match () {
        () if known => KEYWORD,
        () if first.is_ascii_digit() => NUMBER,
        () if after.starts_with('(') => CALL,
        () if first.is_uppercase() => TYPE,
        () => PLAIN,
    }
}

/// The length of a string that begins here and ends within the line.
fn short_string(rest: &str, language: &Language) -> Option<usize> {
    let quote = rest.chars().next().filter(|quote| language.quotes.contains(*quote))?;
    let mut mark = [0; 4];
    let end = find_end(&rest[1..], quote.encode_utf8(&mut mark)).map(|at| at + 1);
    // A lifetime is no string: a letter in quotes is one sign, or an escape.
    match quote == '\'' && language.letters_only {
        true => end.filter(|end| rest[..*end].chars().count() == 3 || rest.starts_with("'\\")),
        false => Some(end.unwrap_or(rest.len())),
    }
}

/// Just behind the first `end` that no backslash stands before.
fn find_end(text: &str, end: &str) -> Option<usize> {
    if end.is_empty() {
        return None;
    }
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let stop = rest.find(['\\', end.chars().next()?])?;
        let found = &rest[stop..];
        if found.starts_with(end) {
            return Some(at + stop + end.len());
        }
        let skipped = if found.starts_with('\\') { 2 } else { 1 };
        let skipped: usize = found.chars().take(skipped).map(char::len_utf8).sum();
        at += stop + skipped;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, line: &str, open: Open) -> (Vec<(String, Style)>, Open) {
        let (pieces, open) = highlight(line, by_name(name).unwrap(), open);
        let coloured = pieces.into_iter().filter(|piece| piece.style != PLAIN);
        (coloured.map(|piece| (piece.content.into_owned(), piece.style)).collect(), open)
    }

    #[test]
    fn words_have_their_colours() {
        for (name, line, expected) in [
            ("rust", "fn a<'a>(x: Foo) // c", vec![("fn", KEYWORD), ("Foo", TYPE), ("// c", COMMENT)]),
            (
                "rs",
                "let c = 'x'; f(\"a\\\"b\", 12)",
                vec![("let", KEYWORD), ("'x'", STRING), ("f", CALL), ("\"a\\\"b\"", STRING), ("12", NUMBER)],
            ),
            ("python", "# it's", vec![("# it's", COMMENT)]),
            ("sql", "SELECT a", vec![("SELECT", KEYWORD)]),
        ] {
            let expected: Vec<_> =
                expected.into_iter().map(|(word, style)| (word.to_owned(), style)).collect();
            assert_eq!(read(name, line, Open::Nothing), (expected, Open::Nothing), "{line}");
        }
    }

    #[test]
    fn what_is_open_goes_on() {
        assert_eq!(read("c", "/* a", Open::Nothing).1, Open::Comment);
        assert_eq!(read("c", "b */ int", Open::Comment).1, Open::Nothing);
        assert_eq!(read("py", "x = \"\"\"a", Open::Nothing).1, Open::String("\"\"\""));
        assert_eq!(read("py", "b\"\"\"", Open::String("\"\"\"")).1, Open::Nothing);
        assert_eq!(read("py", "\\", Open::String("\"\"\"")).1, Open::String("\"\"\""));
    }
}
