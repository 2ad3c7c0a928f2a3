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

    /// The rows and heads that a thread sees to. Of its own rows it takes one head after the other, and each thread begins with
    /// another one: what several rows have side by side in one cache line would go to and fro between the threads.
    pub fn heads(
        self,
        worker: Worker<'_>,
        rows: usize,
        heads: usize,
    ) -> impl Iterator<Item = (usize, usize)> {
        let own = self.rows(worker, rows);
        let units = match self {
            Cut::Columns => worker.share(rows * heads),
            Cut::Rows => 0..own.len() * heads,
        };
        units.map(move |unit| match self {
            Cut::Columns => (unit / heads, unit % heads),
            Cut::Rows => (own.start + unit % own.len(), (unit / own.len() + worker.index) % heads),
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

#[cfg(test)]
mod tests {
    use super::super::pool::Pool;
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_head_of_every_row_is_seen_to_once() {
        let mut pool = Pool::new(2);
        for cut in [Cut::Columns, Cut::Rows] {
            for (rows, heads) in [(16, 3), (17, 1), (23, 8)] {
                let seen: Vec<AtomicUsize> = (0..rows * heads).map(|_| AtomicUsize::new(0)).collect();
                pool.run(|worker| {
                    for (row, head) in cut.heads(worker, rows, heads) {
                        seen[row * heads + head].fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(
                    seen.iter().all(|seen| seen.load(Ordering::Relaxed) == 1),
                    "{cut:?}, {rows} of {heads}"
                );
            }
        }
    }
}
