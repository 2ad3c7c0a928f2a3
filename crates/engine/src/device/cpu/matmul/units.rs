//! How the panels of a matrix are shared out to threads.

use super::TILE;
use std::ops::Range;

/// Units of work that threads take one after the other. With few rows the weights' way from memory is what takes time,
/// and long runs of them are what memory is good at: each thread begins with most of its share, and small units at the
/// end let the threads finish together. With many rows, all units are small.
#[derive(Debug, Clone, Copy)]
pub struct Units {
    panels: usize, // of the matrix
    firsts: usize, // units that come first
    first: usize,  // panels in each of them
    rest: usize,   // panels in each of the others
}

impl Units {
    /// For a product of so many rows, with units of at most `most` panels.
    pub fn new(panels: usize, threads: usize, rows: usize, most: usize) -> Units {
        let most = most.max(1);
        let (first, rest) = match rows < TILE {
            true => (panels * 3 / 4 / threads, panels.div_ceil(16 * threads)),
            false => (0, (panels / (threads * 8)).clamp(1, 16)),
        };
        let firsts = if first > 0 { threads } else { 0 };
        Units { panels, firsts, first: first.min(most), rest: rest.clamp(1, most) }
    }

    pub fn count(&self) -> usize {
        self.firsts + (self.panels - self.firsts * self.first).div_ceil(self.rest)
    }

    /// The panels of one unit.
    pub fn panels(&self, unit: usize) -> Range<usize> {
        if unit < self.firsts {
            return unit * self.first..(unit + 1) * self.first;
        }
        let start = self.firsts * self.first + (unit - self.firsts) * self.rest;
        start..self.panels.min(start + self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_panel_is_in_one_unit() {
        for panels in [0, 1, 2, 7, 16, 96, 560, 9_496] {
            for (threads, rows, most) in
                [(1, 1, 999), (2, 1, 9999), (2, 7, 5), (3, 8, 9), (16, 1, 1), (2, 512, 999)]
            {
                let units = Units::new(panels, threads, rows, most);
                let ranges = (0..units.count()).map(|unit| units.panels(unit));
                let end = ranges.fold(0, |end, range| {
                    assert!(
                        range.start == end && range.end > end && range.len() <= most,
                        "{units:?}: {range:?}"
                    );
                    range.end
                });
                assert_eq!(end, panels, "{units:?}");
            }
        }
    }
}
