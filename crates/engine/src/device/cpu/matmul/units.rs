//! How the panels of a matrix are shared out to threads.

use super::TILE;
use std::ops::Range;

/// Bytes of a unit, about, when there are few rows. Threads go through theirs without a jump and look for others' at the end:
/// the smaller units are, the less they wait for each other then.
const UNIT_BYTES: usize = 32 << 10;

/// Units of work that threads take one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Units {
    panels: usize, // of the matrix
    each: usize,   // panels in a unit
}

impl Units {
    /// For a product of so many rows, with units of at most `most` panels.
    pub fn new(panels: usize, panel_bytes: usize, threads: usize, rows: usize, most: usize) -> Units {
        let each = match rows < TILE {
            true => UNIT_BYTES / panel_bytes.max(1),
            false => (panels / (threads * 8)).min(16),
        };
        Units { panels, each: each.min(most).max(1) }
    }

    pub fn count(&self) -> usize {
        self.panels.div_ceil(self.each)
    }

    /// The panels of one unit.
    pub fn panels(&self, unit: usize) -> Range<usize> {
        unit * self.each..self.panels.min((unit + 1) * self.each)
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
                let units = Units::new(panels, 9_216, threads, rows, most);
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
