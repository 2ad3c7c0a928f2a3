//! What stood in each row of a terminal, and when.

use std::time::Duration;
use vt100::{Cell, Color, Screen};

/// A row: its text in runs of one look each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row(pub Vec<Run>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub column: u16,
    pub width: u16, // cells
    pub text: String,
    pub look: Look,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub ink: Color,
    pub paper: Color,
    pub bold: bool,
    pub dim: bool,
    pub italic: bool,
    pub inverse: bool,
}

impl Row {
    pub fn read(screen: &Screen, row: u16, columns: u16) -> Row {
        let (mut runs, mut column) = (Vec::<Run>::new(), 0);
        while let Some(cell) = screen.cell(row, column).filter(|_| column < columns) {
            let (look, width) = (look(cell), 1 + u16::from(cell.is_wide()));
            let text = if cell.has_contents() { cell.contents() } else { " " };
            match runs.last_mut().filter(|run| run.look == look) {
                Some(run) => {
                    run.text += text;
                    run.width += width;
                }
                None => runs.push(Run { column, width, text: text.to_owned(), look }),
            }
            column += width;
        }
        runs.retain(|run| !run.text.trim().is_empty() || run.look.is_filled());
        Row(runs)
    }
}

impl Look {
    /// It is seen without text.
    pub fn is_filled(&self) -> bool {
        self.inverse || self.paper != Color::Default
    }
}

fn look(cell: &Cell) -> Look {
    Look {
        ink: cell.fgcolor(),
        paper: cell.bgcolor(),
        bold: cell.bold(),
        dim: cell.dim(),
        italic: cell.italic(),
        inverse: cell.inverse(),
    }
}

/// All that was shown: for each row, since when it was what.
#[derive(Debug, Default)]
pub struct Shown {
    pub rows: Vec<Vec<(Duration, Row)>>,
    pub end: Duration,
}

impl Shown {
    /// Times do not go back.
    pub fn add(&mut self, at: Duration, rows: Vec<Row>) {
        self.rows.resize_with(rows.len().max(self.rows.len()), Vec::new);
        for (versions, row) in self.rows.iter_mut().zip(rows) {
            if versions.last().is_none_or(|(_, last)| *last != row) {
                versions.push((at, row));
            }
        }
        self.end = at;
    }
}
