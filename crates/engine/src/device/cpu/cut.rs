//! What of a product each thread computes: some columns of all rows, or all columns of some rows.
//!
//! By columns every weight is read once, but each thread reads what the others computed before. By rows a thread reads only
//! what it computed itself and waits for nobody, but it reads all weights. So it is for few rows, whose arithmetic takes little
//! longer than what crosses between cores, and for small matrices. A row's result is the same either way.

use super::matmul::TILE;
use super::pack::Packed;
use super::pool::Worker;
use std::ops::Range;

/// Every thread reads all weights then: more than two would ask too much of memory.
const THREADS: usize = 2;

/// With more rows arithmetic takes so long that what crosses between cores is little.
const ROWS_MAX: usize = 64;

/// Bytes of weights that may be read once more: of a small model's layer.
const BYTES_MAX: usize = 2 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Columns,
    Rows,
}

impl Cut {
    /// For products of so many rows with these matrices.
    pub fn of<'a>(threads: usize, rows: usize, matrices: impl IntoIterator<Item = &'a Packed>) -> Cut {
        let few = threads == THREADS && (THREADS * TILE..=ROWS_MAX).contains(&rows);
        let small = || matrices.into_iter().map(Packed::bytes).sum::<usize>() <= BYTES_MAX;
        if few && small() { Cut::Rows } else { Cut::Columns }
    }

    /// The rows of a product that a thread computes something of.
    pub fn rows(self, worker: Worker<'_>, rows: usize) -> Range<usize> {
        match self {
            Cut::Columns => 0..rows,
            Cut::Rows => worker.share(rows),
        }
    }

    /// The units of columns that a thread computes of its rows: those that it takes, or all.
    pub fn units(self, worker: Worker<'_>, count: usize) -> impl Iterator<Item = usize> {
        let mut all = 0..count;
        std::iter::from_fn(move || match self {
            Cut::Columns => worker.take(count),
            Cut::Rows => all.next(),
        })
    }

    /// A thread's even share of rows of so many parts each: its rows of each part.
    pub fn parts(
        self,
        worker: Worker<'_>,
        rows: usize,
        parts: usize,
    ) -> impl Iterator<Item = (usize, Range<usize>)> {
        let own = match self {
            Cut::Columns => worker.share(rows * parts),
            Cut::Rows => worker.share(rows),
        };
        (0..parts).map(move |part| {
            let first = if self == Cut::Columns { part * rows } else { 0 };
            (part, own.start.clamp(first, first + rows) - first..own.end.clamp(first, first + rows) - first)
        })
    }

    /// Waits until the other threads have computed what this one will read of theirs.
    pub fn wait(self, worker: Worker<'_>) {
        match self {
            Cut::Columns => worker.barrier(),
            Cut::Rows => {}
        }
    }
}
