//! The composer: its text in rows, and the cursor among them.

use crate::clean::clean;
use crate::composer::Composer;
use crate::style::{PERSON, PLAIN};
use crate::wrap::{Piece, Row, piece};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Around the cursor, in bytes: far more than fits on a screen, far less than can be pasted.
const SEEN_BYTES_MAX: usize = 8 << 10;

const PROMPT: &str = "› ";
const MARGIN_COLUMNS: usize = 2;

#[derive(Debug, Default)]
pub struct Input {
    pub rows: Vec<Row>,
    pub cursor: (u16, u16), // column and row
}

/// At most `rows_max` rows, the cursor among them.
pub fn lay_out(composer: &Composer, width: usize, rows_max: usize) -> Input {
    if rows_max == 0 {
        return Input::default();
    }
    let (seen, cursor) = around(composer);
    let broken = break_lines(seen, cursor, width.saturating_sub(MARGIN_COLUMNS).max(1));
    let (x, y) = broken.cursor;
    let from = (y + 1).saturating_sub(rows_max);
    let lines = broken.lines.into_iter().enumerate().skip(from).take(rows_max);
    let rows: Vec<Row> = lines.map(|(at, line)| Row::from(with_prompt(at, &line))).collect();
    let column = (MARGIN_COLUMNS + x).min(width.saturating_sub(1));
    Input { rows, cursor: (column as u16, (y - from) as u16) }
}

fn with_prompt(at: usize, line: &str) -> Vec<Piece> {
    let prompt = if at == 0 { PROMPT } else { "  " };
    vec![piece(prompt, PERSON), piece(line, PLAIN)]
}

/// The text near the cursor, and the cursor in it.
fn around(composer: &Composer) -> (&str, usize) {
    let (text, cursor) = (composer.text(), composer.cursor());
    let from = match cursor.checked_sub(SEEN_BYTES_MAX) {
        None => 0,
        Some(from) => text.ceil_char_boundary(from),
    };
    let to = text.floor_char_boundary(cursor.saturating_add(SEEN_BYTES_MAX));
    (&text[from..to], cursor - from)
}

struct Broken {
    lines: Vec<String>,
    cursor: (usize, usize), // column and line
}

/// Breaks between any two signs: a person sees each space they type.
fn break_lines(text: &str, cursor: usize, width: usize) -> Broken {
    let mut broken = Broken { lines: vec![String::new()], cursor: (0, 0) };
    let mut column = 0;
    for (at, sign) in text.grapheme_indices(true) {
        let shown = clean(sign);
        let columns = shown.width();
        if sign != "\n" && column + columns > width && column > 0 {
            broken.lines.push(String::new());
            column = 0;
        }
        if at <= cursor {
            broken.cursor = (column, broken.lines.len() - 1);
        }
        if sign == "\n" {
            broken.lines.push(String::new());
            column = 0;
        } else {
            if let Some(line) = broken.lines.last_mut() {
                line.push_str(&shown);
            }
            column += columns;
        }
    }
    if cursor >= text.len() {
        if column >= width {
            broken.lines.push(String::new());
            column = 0;
        }
        broken.cursor = (column, broken.lines.len() - 1);
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(text: &str, width: usize, rows_max: usize) -> (Vec<String>, (u16, u16)) {
        let mut composer = Composer::default();
        composer.insert(text);
        let input = lay_out(&composer, width, rows_max);
        (input.rows.iter().map(|row| row.to_string()).collect(), input.cursor)
    }

    #[test]
    fn the_cursor_is_on_the_screen() {
        assert_eq!(laid_out("", 10, 3), (vec!["› ".to_owned()], (2, 0)));
        assert_eq!(laid_out("a\nb", 10, 3), (vec!["› a".to_owned(), "  b".to_owned()], (3, 1)));
        assert_eq!(laid_out("日本", 6, 3), (vec!["› 日本".to_owned(), "  ".to_owned()], (2, 1)));
        assert_eq!(laid_out("1\n2\n3\n4", 10, 2), (vec!["  3".to_owned(), "  4".to_owned()], (3, 1)));
        let (rows, cursor) = laid_out(&"x".repeat(1 << 20), 80, 5);
        assert_eq!((rows.len(), cursor.1), (5, 4));
    }
}
