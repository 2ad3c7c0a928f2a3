//! Styled text to rows of a width.

use crate::clean::clean;
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

pub type Row = Line<'static>;
pub type Piece = Span<'static>;

/// A piece of text that is safe to show, whoever wrote it.
pub fn piece(text: &str, style: Style) -> Piece {
    Span::styled(clean(text).into_owned(), style)
}

/// A row of one piece.
pub fn row(text: &str, style: Style) -> Row {
    Line::from(piece(text, style))
}

/// What stands before the first row, and before those that follow.
#[derive(Debug, Clone, Default)]
pub struct Margin {
    pub first: Vec<Piece>,
    pub rest: Vec<Piece>,
}

impl Margin {
    pub fn new(first: &str, rest: &str, style: Style) -> Margin {
        Margin { first: vec![piece(first, style)], rest: vec![piece(rest, style)] }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    Words,
    /// Anywhere, for code, where every space counts.
    Anywhere,
}

/// Breaks pieces into rows of at most `width` columns. A line break in a piece ends a row.
pub fn wrap(pieces: &[Piece], width: usize, margin: &Margin, at: Break) -> Vec<Row> {
    let mut rows = Rows { rows: Vec::new(), margin, width };
    let mut all = Vec::new();
    pieces.iter().for_each(|piece| signs(piece, &mut all));
    for line in all.split(|sign| sign.text == "\n" || sign.text == "\r\n") {
        rows.line(line, at);
    }
    rows.rows
}

/// One line of plain text.
pub fn wrap_text(text: &str, style: Style, width: usize, margin: &Margin) -> Vec<Row> {
    wrap(&[piece(text, style)], width, margin, Break::Words)
}

/// Only the first `width` columns, the last of them a sign that there is more.
pub fn cut(text: &str, width: usize) -> String {
    let text = clean(text).replace('\n', " ");
    if text.width() <= width {
        return text;
    }
    let mut out = String::new();
    let mut used = 0;
    for sign in text.graphemes(true) {
        used += sign.width();
        if used >= width {
            break;
        }
        out += sign;
    }
    if width > 0 {
        out.push('…');
    }
    out
}

pub fn columns(pieces: &[Piece]) -> usize {
    pieces.iter().map(|piece| piece.content.width()).sum()
}

/// What a terminal draws as one.
#[derive(Clone, Copy)]
struct Sign<'a> {
    text: &'a str,
    style: Style,
    width: usize,
}

fn signs<'a>(piece: &'a Piece, into: &mut Vec<Sign<'a>>) {
    let (text, style) = (piece.content.as_ref(), piece.style);
    // Most text is plain, and each of its bytes a sign: looking for borders between signs takes ten times as long.
    if text.is_ascii() && !text.contains('\r') {
        return into.extend((0..text.len()).map(|at| Sign { text: &text[at..=at], style, width: 1 }));
    }
    into.extend(text.graphemes(true).map(|text| {
        let width = if text.len() == 1 { 1 } else { text.width() };
        Sign { text, style, width }
    }));
}

struct Rows<'a> {
    rows: Vec<Row>,
    margin: &'a Margin,
    width: usize,
}

impl Rows<'_> {
    fn line(&mut self, mut signs: &[Sign], at: Break) {
        loop {
            let margin = if self.rows.is_empty() { &self.margin.first } else { &self.margin.rest };
            let room = self.width.saturating_sub(columns(margin)).max(1);
            let fits = fitting(signs, room);
            let taken = match at {
                _ if fits == signs.len() => fits,
                Break::Anywhere => fits,
                Break::Words => word_end(signs, fits),
            };
            let (now, after) = signs.split_at(taken);
            let mut pieces = margin.clone();
            join(now, &mut pieces);
            self.rows.push(Line::from(pieces));
            signs = match at {
                Break::Anywhere => after,
                Break::Words => &after[after.iter().take_while(|sign| sign.text == " ").count()..],
            };
            if signs.is_empty() {
                return;
            }
        }
    }
}

/// How many signs have room; one at least, or nothing would ever be shown.
fn fitting(signs: &[Sign], room: usize) -> usize {
    let mut used = 0;
    let fits = signs.iter().take_while(|sign| {
        used += sign.width;
        used <= room
    });
    fits.count().max(1).min(signs.len())
}

/// The end of the last word within the first `fits` signs, or all of them when it is one word.
fn word_end(signs: &[Sign], fits: usize) -> usize {
    if signs[fits].text == " " {
        return fits;
    }
    let space = signs[..fits].iter().rposition(|sign| sign.text == " ");
    // Only an indentation before it: that is no place to break.
    let words = |at: &usize| signs[..*at].iter().any(|sign| sign.text != " ");
    space.filter(words).unwrap_or(fits)
}

/// Neighbours of one style become one piece.
fn join(signs: &[Sign], pieces: &mut Vec<Piece>) {
    for run in signs.chunk_by(|a, b| a.style == b.style) {
        let text: String = run.iter().map(|sign| sign.text).collect();
        pieces.push(Span::styled(text, run[0].style));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::PLAIN;

    fn wrapped(text: &str, width: usize, at: Break) -> Vec<String> {
        let rows = wrap(&[piece(text, PLAIN)], width, &Margin::default(), at);
        rows.iter().map(|row| row.to_string()).collect()
    }

    #[test]
    fn words_stay_whole_where_they_can() {
        for (text, width, expected) in [
            ("one two three", 8, vec!["one two", "three"]),
            ("abcdefgh", 3, vec!["abc", "def", "gh"]),
            ("日本語", 3, vec!["日", "本", "語"]),
            ("日", 1, vec!["日"]),
            ("a\n\nb", 9, vec!["a", "", "b"]),
            ("  ab cd", 5, vec!["  ab", "cd"]),
            ("    abcdef", 6, vec!["    ab", "cdef"]),
            ("", 5, vec![""]),
        ] {
            assert_eq!(wrapped(text, width, Break::Words), expected, "{text:?}");
        }
        assert_eq!(wrapped("a  b c", 3, Break::Anywhere), ["a  ", "b c"]);
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abc\ndef", 20), "abc def");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 0), "");
    }
}
