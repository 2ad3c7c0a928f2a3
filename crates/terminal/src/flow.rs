//! Markdown that is still being written.
//!
//! At two thousand tokens a second a long answer cannot be laid out from its beginning for each frame. What can no longer
//! change is laid out once: whole blocks, and the lines of a fence, which may be a file of thousands of lines. Only the
//! block at the end is done again.

use crate::code::{Language, Open, by_name, highlight};
use crate::limits::GROWING_BYTES_MAX;
use crate::markdown::{CODE_MARGIN, render};
use crate::style::PLAIN;
use crate::wrap::{Break, Margin, Piece, Row, piece, wrap};

#[derive(Debug, Clone)]
pub struct Flow {
    width: usize,
    rows: Vec<Row>,
    settled_rows: usize,
    settled_bytes: usize,
    fence: Option<Fence>, // that the settled text has left open
}

#[derive(Debug, Clone, Copy)]
struct Fence {
    mark: char,
    length: usize,
    language: Option<&'static Language>,
    open: Open,
}

impl Flow {
    pub fn new(width: usize) -> Flow {
        Flow { width, rows: Vec::new(), settled_rows: 0, settled_bytes: 0, fence: None }
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Lays out what is new. `text` is the whole so far, and begins as it did the last time.
    pub fn grow(&mut self, text: &str) {
        self.rows.truncate(self.settled_rows);
        while let Some(rest) = text.get(self.settled_bytes..).filter(|rest| !rest.is_empty()) {
            let settled = match self.fence {
                Some(fence) => self.code_line(rest, fence),
                None => self.prose(rest),
            };
            if !settled {
                break;
            }
        }
    }

    /// A line of a fence; whether it was whole.
    fn code_line(&mut self, rest: &str, mut fence: Fence) -> bool {
        let end = rest.find('\n');
        let line = rest[..end.unwrap_or(rest.len())].trim_end_matches('\r');
        let closes = fence.closes(line);
        if !closes {
            let pieces = fence.pieces(line);
            let margin = Margin::new(CODE_MARGIN, CODE_MARGIN, PLAIN);
            self.rows.extend(wrap(&pieces, self.width, &margin, Break::Anywhere));
        }
        // Half a line is read again when it is whole.
        let Some(end) = end else { return false };
        self.fence = (!closes).then_some(fence);
        self.settle(end + 1);
        true
    }

    /// Blocks up to the next place where one surely ends; whether there was one.
    fn prose(&mut self, rest: &str) -> bool {
        match stop(rest) {
            Stop::Fence { before, after, fence } => {
                self.blocks(&rest[..before]);
                if !self.rows.is_empty() {
                    self.rows.push(Row::default());
                }
                self.fence = Some(fence);
                self.settle(after);
                true
            }
            Stop::Block { end } => {
                self.blocks(&rest[..end]);
                self.settle(end);
                true
            }
            Stop::None => {
                self.blocks(rest);
                false
            }
        }
    }

    fn blocks(&mut self, text: &str) {
        let rows = render(text, self.width);
        if !rows.is_empty() && !self.rows.is_empty() {
            self.rows.push(Row::default());
        }
        self.rows.extend(rows);
    }

    fn settle(&mut self, bytes: usize) {
        self.settled_bytes += bytes;
        self.settled_rows = self.rows.len();
    }
}

impl Fence {
    /// A fence that begins with this line, at the left margin: within lists they are part of a block.
    fn opened(line: &str) -> Option<Fence> {
        let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
        let info = line.trim_start_matches(mark);
        let length = line.len() - info.len();
        if length < 3 || (mark == '`' && info.contains('`')) {
            return None;
        }
        let name = info.trim().split([' ', ',', '{']).next().unwrap_or_default();
        Some(Fence { mark, length, language: by_name(name), open: Open::Nothing })
    }

    fn pieces(&mut self, line: &str) -> Vec<Piece> {
        let Some(language) = self.language else { return vec![piece(line, PLAIN)] };
        let (pieces, open) = highlight(line, language, self.open);
        self.open = open;
        pieces
    }

    fn closes(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|char| char == self.mark)
    }
}

/// Where markdown can be cut without a change to how it looks.
enum Stop {
    Fence { before: usize, after: usize, fence: Fence },
    Block { end: usize },
    None,
}

fn stop(text: &str) -> Stop {
    let (mut at, mut blank) = (0, false);
    for line in text.split_inclusive('\n') {
        let fence = line.strip_suffix('\n').and_then(Fence::opened);
        if let Some(fence) = fence {
            return Stop::Fence { before: at, after: at + line.len(), fence };
        }
        if blank && at > 0 && begins_block(line) {
            return Stop::Block { end: at };
        }
        if at > GROWING_BYTES_MAX {
            return Stop::Block { end: at };
        }
        blank = line.trim().is_empty();
        at += line.len();
    }
    if text.len() > GROWING_BYTES_MAX {
        let end = text.floor_char_boundary(GROWING_BYTES_MAX);
        return Stop::Block { end };
    }
    Stop::None
}

/// Whether a line after an empty one begins a block of its own, and does not go on with a list, say.
fn begins_block(line: &str) -> bool {
    let first = line.chars().next();
    first.is_some_and(|char| {
        !char.is_whitespace() && !char.is_ascii_digit() && !matches!(char, '-' | '*' | '+' | '>' | '`' | '~')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A title\n\nSome *words* here,\nand more.\n\n- one\n- two\n\n  still two\n\n```rust\nfn a() {\n    /* b\n    c */\n}\n```\n\n1. first\n   ```py\n   x = 1\n   ```\n\nEnd | of\n";

    fn shown(flow: &Flow) -> Vec<String> {
        flow.rows().iter().map(|row| row.to_string()).collect()
    }

    /// However it is cut into pieces, the whole looks the same.
    #[test]
    fn growth_ends_where_the_whole_does() {
        let mut whole = Flow::new(20);
        whole.grow(TEXT);
        for step in 1..40 {
            let mut flow = Flow::new(20);
            let ends = (0..TEXT.len()).step_by(step).chain([TEXT.len()]);
            for end in ends {
                flow.grow(&TEXT[..end]);
            }
            assert_eq!(flow.rows(), whole.rows(), "in steps of {step}");
        }
        assert!(shown(&whole).contains(&"  fn a() {".to_owned()), "{:#?}", shown(&whole));
    }

    #[test]
    fn what_is_whole_is_settled() {
        let mut flow = Flow::new(40);
        flow.grow("```\na\nb\nc");
        assert_eq!(flow.settled_bytes, "```\na\nb\n".len());
        let mut flow = Flow::new(40);
        flow.grow(&"word ".repeat(GROWING_BYTES_MAX));
        assert!(flow.settled_bytes > 3 * GROWING_BYTES_MAX);
    }
}
