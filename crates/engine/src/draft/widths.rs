//! How many guesses each sequence of a forward pass gets.

use super::{Pace, Proposal};
use crate::limits::BATCH_SEQUENCES_MAX;

/// Chooses the first guesses of each proposal that pay, one proposal a sequence, so that a pass has at most
/// `rows_max` rows. Returns how many of each.
///
/// What is maximised is the product of all sequences' speeds (tokens a pass, over its cost): guesses for one
/// make the pass longer for all, and this way nobody loses by it more than another gains.
pub fn share_out(proposals: &[Proposal], rows_max: usize, pace: &Pace) -> [usize; BATCH_SEQUENCES_MAX] {
    let count = proposals.len().min(BATCH_SEQUENCES_MAX);
    let mut tokens = [1.0; BATCH_SEQUENCES_MAX]; // expected of each sequence
    let mut widths = [0; BATCH_SEQUENCES_MAX];
    let mut best = ([0; BATCH_SEQUENCES_MAX], 0.0);
    let Some(plain) = pace.cost(count, count) else { return widths };
    let mut gain = 0.0;
    for rows in count + 1..=rows_max {
        let gains = (0..count).filter_map(|at| {
            let reach = f64::from(*proposals[at].reach.get(widths[at])?);
            Some((at, (reach / tokens[at]).ln_1p(), reach))
        });
        let Some((at, more, reach)) = gains.max_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        widths[at] += 1;
        tokens[at] += reach;
        gain += more;
        let Some(cost) = pace.cost(rows, count) else { break };
        let value = gain - count as f64 * (cost / plain).ln();
        if value > best.1 {
            best = (widths, value);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn proposal(len: usize, trust: f32) -> Proposal {
        let mut proposal = Proposal::default();
        (0..len).for_each(|token| proposal.push(token as u32, trust));
        proposal
    }

    /// SmolLM2 on two cores, about: in microseconds.
    fn measured() -> Pace {
        let mut pace = Pace::default();
        for (rows, us) in [(1, 2700), (4, 4000), (8, 5400), (16, 8000), (32, 14_000), (64, 27_000)] {
            (0..10).for_each(|_| pace.note(rows, Duration::from_micros(us)));
        }
        pace
    }

    fn widths(proposals: &[Proposal], pace: &Pace) -> Vec<usize> {
        share_out(proposals, 64, pace)[..proposals.len()].to_vec()
    }

    #[test]
    fn sure_guesses_get_wide_passes_and_unsure_ones_none() {
        let width = |trust| widths(&[proposal(63, trust)], &measured())[0];
        assert!(width(0.999) >= 32, "{}", width(0.999));
        assert!((8..40).contains(&width(0.95)), "{}", width(0.95));
        assert!((1..8).contains(&width(0.7)), "{}", width(0.7));
        assert_eq!(width(0.1), 0);
    }

    #[test]
    fn nothing_is_guessed_before_a_plain_pass_was_measured_or_when_it_is_off() {
        assert_eq!(widths(&[proposal(9, 1.0)], &Pace::default()), [0]);
        assert_eq!(widths(&[proposal(9, 1.0)], &Pace::Off), [0]);
        assert_eq!(widths(&[proposal(9, 0.01)], &Pace::Flat), [9]);
    }

    #[test]
    fn the_rows_of_a_pass_are_shared_out_by_what_they_promise() {
        let found = share_out(&[proposal(63, 0.9), proposal(63, 0.9), proposal(0, 0.0)], 64, &Pace::Flat);
        assert_eq!(found[..3].iter().sum::<usize>(), 61);
        assert!(found[0].abs_diff(found[1]) <= 1);
        let found = share_out(&[proposal(3, 0.9), proposal(63, 0.8)], 64, &Pace::Flat);
        assert_eq!(found[..2], [3, 59]);
    }

    #[test]
    fn one_that_cannot_be_guessed_is_not_slowed_down_without_measure() {
        let alone = widths(&[proposal(63, 0.98)], &measured())[0];
        let beside: Vec<Proposal> =
            [proposal(63, 0.98)].into_iter().chain(vec![proposal(0, 0.0); 3]).collect();
        let beside = widths(&beside, &measured())[0];
        assert!(beside < alone / 2, "{beside} of {alone}");
    }
}
