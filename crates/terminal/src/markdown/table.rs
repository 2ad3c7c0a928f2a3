//! A table of markdown, in columns where there is room for them.

use crate::style::{BOLD, DIM};
use crate::wrap::{Break, Margin, Piece, Row, columns, piece, wrap};

#[derive(Default)]
pub struct Table {
    lines: Vec<Vec<Vec<Piece>>>, // (lines, columns, pieces); the first is the head
}

impl Table {
    pub fn begin_row(&mut self) {
        self.lines.push(Vec::new());
    }

    pub fn cell(&mut self, pieces: Vec<Piece>) {
        if let Some(line) = self.lines.last_mut() {
            line.push(pieces);
        }
    }

    /// Columns padded to their widest cell; where that is too wide, each line wraps as it is.
    pub fn rows(self, width: usize, margin: &Margin) -> Vec<Row> {
        let count = self.lines.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| columns(cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..count).map(widest).collect();
        let all = widths.iter().sum::<usize>() + 3 * count.saturating_sub(1) + columns(&margin.rest);
        let padded = all <= width;
        let mut rows = Vec::new();
        for (at, line) in self.lines.into_iter().enumerate() {
            let pieces = joined(line, padded.then_some(&widths), at == 0);
            rows.extend(wrap(&pieces, width, margin, Break::Words));
        }
        rows
    }
}

fn joined(line: Vec<Vec<Piece>>, widths: Option<&Vec<usize>>, head: bool) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (at, cell) in line.into_iter().enumerate() {
        if at > 0 {
            pieces.push(piece(" │ ", DIM));
        }
        let used = columns(&cell);
        let bold = |cell: Piece| if head { cell.patch_style(BOLD) } else { cell };
        pieces.extend(cell.into_iter().map(bold));
        let wanted = widths.and_then(|widths| widths.get(at)).copied().unwrap_or(0);
        pieces.push(piece(&" ".repeat(wanted.saturating_sub(used)), DIM));
    }
    pieces
}
