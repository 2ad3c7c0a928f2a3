//! What a forward pass costs, by its rows: measured while decoding, smoothed, and guessed where nothing was
//! measured. It decides how much is guessed, never what is generated.

use crate::limits::BATCH_LOGIT_ROWS_MAX;
use std::time::Duration;

/// Passes of about as many rows share one figure, that of the most rows among them.
const ROWS: [usize; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, BATCH_LOGIT_ROWS_MAX];

/// Each row more is taken to cost this share of the first until it is measured: rather too little, so that
/// wide passes are tried.
const ROW_SHARE_ASSUMED: f64 = 0.06;

/// A new figure counts as one of so many.
const SMOOTHED_OVER: f64 = 8.0;

/// One measurement may be off by this factor, when the machine is busy: what is beyond is not believed.
const OUTLIER_FACTOR: f64 = 2.0;

/// Passes after which a figure is too old: the sequences have grown, or others run.
const FRESH_PASSES: u64 = 512;

/// A figure of fewer measurements is doubted after so many passes: it may have been an outlier, and a width that seems dear is
/// not tried again by itself.
const DOUBTED_BELOW: f64 = 3.0;
const DOUBTED_AFTER_PASSES: u64 = 32;

/// How widths are chosen.
#[derive(Debug, Clone)]
pub enum Pace {
    /// By what passes have cost so far.
    Measured(Box<Costs>),
    /// As if all passes cost the same: every guess is tried.
    Flat,
    /// Nothing is guessed.
    Off,
}

#[derive(Debug, Clone, Default)]
pub struct Costs {
    figures: [Figure; ROWS.len()],
    passes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Figure {
    seconds: f64,
    weight: f64, // measurements in it, up to SMOOTHED_OVER; 0: none
    at: u64,     // the pass at which it was last measured
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::Measured(Box::default())
    }
}

impl Pace {
    /// A pass of `rows` rows, all of whose logits were wanted, took this long.
    pub fn note(&mut self, rows: usize, took: Duration) {
        if let Pace::Measured(costs) = self {
            costs.note(rows, took.as_secs_f64());
        }
    }

    /// What a pass of so many rows costs, in any unit; none: no guess is to be made now, because there are to
    /// be none or because a pass without has to be measured.
    pub fn cost(&self, rows: usize, rows_plain: usize) -> Option<f64> {
        match self {
            Pace::Measured(costs) => costs.fresh(kind(rows_plain)).map(|_| costs.of(rows)),
            Pace::Flat => Some(1.0),
            Pace::Off => None,
        }
    }
}

impl Costs {
    fn note(&mut self, rows: usize, seconds: f64) {
        self.passes += 1;
        let kind = kind(rows);
        let stale = self.known(kind).is_none();
        let figure = &mut self.figures[kind];
        if stale {
            *figure = Figure::default();
        }
        let believed = match figure.weight > 0.0 {
            true => seconds.clamp(figure.seconds / OUTLIER_FACTOR, figure.seconds * OUTLIER_FACTOR),
            false => seconds,
        };
        figure.weight = (figure.weight + 1.0).min(SMOOTHED_OVER);
        figure.seconds += (believed - figure.seconds) / figure.weight;
        figure.at = self.passes;
    }

    fn fresh(&self, kind: usize) -> Option<f64> {
        let figure = self.figures[kind];
        (figure.weight > 0.0 && self.passes - figure.at <= FRESH_PASSES).then_some(figure.seconds)
    }

    /// As `fresh`, if it is not doubted.
    fn known(&self, kind: usize) -> Option<f64> {
        let Figure { weight, at, .. } = self.figures[kind];
        let doubted = weight < DOUBTED_BELOW && self.passes - at > DOUBTED_AFTER_PASSES;
        self.fresh(kind).filter(|_| !doubted)
    }

    /// No rows cost more than others that are more.
    fn of(&self, rows: usize) -> f64 {
        let wider = (0..ROWS.len()).filter(|&kind| ROWS[kind] >= rows).filter_map(|kind| self.known(kind));
        wider.fold(self.between(rows), f64::min)
    }

    /// Between two that are known, on the line between them; beyond, in proportion to the nearest.
    fn between(&self, rows: usize) -> f64 {
        let known = |kind: usize| self.known(kind).map(|seconds| (ROWS[kind], seconds));
        let below = (0..ROWS.len()).rev().filter(|&kind| ROWS[kind] <= rows).find_map(known);
        let above = (0..ROWS.len()).filter(|&kind| ROWS[kind] >= rows).find_map(known);
        let assumed = |rows: usize| 1.0 + ROW_SHARE_ASSUMED * (rows - 1) as f64;
        let scaled = |(from, seconds): (usize, f64)| seconds * assumed(rows) / assumed(from);
        match (below, above) {
            (Some((low, fast)), Some((high, slow))) if low < high => {
                fast + (slow - fast) * (rows - low) as f64 / (high - low) as f64
            }
            (Some((_, seconds)), Some(_)) => seconds,
            (Some(nearest), None) | (None, Some(nearest)) => scaled(nearest),
            (None, None) => assumed(rows),
        }
    }
}

fn kind(rows: usize) -> usize {
    ROWS.iter().position(|&most| rows <= most).unwrap_or(ROWS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(measured: &[(usize, f64)]) -> Costs {
        let mut costs = Costs::default();
        for &(rows, seconds) in measured {
            (0..10).for_each(|_| costs.note(rows, seconds));
        }
        costs
    }

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9 * expected, "{found}, not {expected}");
    }

    #[test]
    fn what_is_not_measured_is_taken_from_the_nearest() {
        let costs = costs(&[(1, 2.0), (4, 5.0), (16, 8.0)]);
        assert_close(costs.of(1), 2.0);
        assert_close(costs.of(2), 3.0);
        assert_close(costs.of(10), 6.5);
        assert_close(costs.of(16), 8.0);
        assert_close(costs.of(31), 8.0 * (1.0 + 30.0 * 0.06) / (1.0 + 15.0 * 0.06));
    }

    #[test]
    fn a_figure_follows_what_is_measured_but_not_a_single_outlier() {
        let mut costs = costs(&[(1, 1.0)]);
        costs.note(1, 50.0);
        assert!(costs.of(1) < 1.2);
        (0..100).for_each(|_| costs.note(1, 3.0));
        assert!((costs.of(1) - 3.0).abs() < 0.01);
    }

    #[test]
    fn a_width_is_not_given_up_for_one_bad_measurement() {
        let mut costs = costs(&[(1, 1.0), (16, 3.0)]);
        costs.note(8, 90.0);
        assert_close(costs.of(8), 3.0);
        assert_close(costs.of(20), 3.0 * (1.0 + 19.0 * 0.06) / (1.0 + 15.0 * 0.06));
        costs.note(24, 90.0);
        assert_close(costs.of(24), 90.0);
        (0..=DOUBTED_AFTER_PASSES).for_each(|_| costs.note(1, 1.0));
        assert_close(costs.of(24), 3.0 * (1.0 + 23.0 * 0.06) / (1.0 + 15.0 * 0.06));
        costs.note(24, 4.0);
        assert_close(costs.of(24), 4.0);
    }

    #[test]
    fn before_guesses_and_now_and_then_a_pass_without_them_is_measured() {
        let mut pace = Pace::default();
        assert_eq!(pace.cost(8, 1), None);
        pace.note(1, Duration::from_millis(3));
        assert!(pace.cost(8, 1).is_some());
        (0..=FRESH_PASSES).for_each(|_| pace.note(16, Duration::from_millis(8)));
        assert_eq!(pace.cost(8, 1), None);
    }
}
