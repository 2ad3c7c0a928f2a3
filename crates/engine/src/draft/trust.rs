//! How likely the next token of a draft is right, learnt from how often it was.

/// What a guess rests on: so many equal tokens before it, or the constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ground {
    Match { len: usize },
    Forced,
}

/// Matches of 0, 1, 2, 3, 4-7, 8-15, 16-31 and more tokens; the last one is what the constraint forces.
const KINDS: usize = 9;

/// What is assumed before anything is known, and as how many observations that counts.
const ASSUMED: [f32; KINDS] = [0.3, 0.3, 0.5, 0.6, 0.75, 0.85, 0.93, 0.97, 0.9];
const ASSUMED_WEIGHT: f32 = 4.0;

/// Observations after which the older ones count half.
const REMEMBERED: f32 = 48.0;

/// The guesses of one generation. Each of its tokens tells of one guess, whether it was drafted or not.
#[derive(Debug, Clone, Default)]
pub(super) struct Trust {
    right: [f32; KINDS],
    all: [f32; KINDS],
}

impl Trust {
    pub(super) fn note(&mut self, ground: Ground, right: bool) {
        let kind = ground.kind();
        self.right[kind] += f32::from(u8::from(right));
        self.all[kind] += 1.0;
        if self.all[kind] > REMEMBERED {
            self.right[kind] /= 2.0;
            self.all[kind] /= 2.0;
        }
    }

    /// The probability that a guess is right.
    pub(super) fn of(&self, ground: Ground) -> f32 {
        let kind = ground.kind();
        (self.right[kind] + ASSUMED[kind] * ASSUMED_WEIGHT) / (self.all[kind] + ASSUMED_WEIGHT)
    }
}

impl Ground {
    fn kind(self) -> usize {
        match self {
            Ground::Match { len: len @ 0..4 } => len,
            Ground::Match { len } => (len.ilog2() as usize + 2).min(KINDS - 2),
            Ground::Forced => KINDS - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_matches_are_another_kind() {
        let kinds = [0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 1000].map(|len| Ground::Match { len }.kind());
        assert_eq!(kinds, [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
    }

    #[test]
    fn what_was_seen_outweighs_what_was_assumed_and_the_new_outweighs_the_old() {
        let (mut trust, ground) = (Trust::default(), Ground::Match { len: 40 });
        assert!((trust.of(ground) - 0.97).abs() < 1e-6);
        (0..200).for_each(|_| trust.note(ground, true));
        assert!(trust.of(ground) > 0.99);
        (0..200).for_each(|_| trust.note(ground, false));
        assert!(trust.of(ground) < 0.12, "{}", trust.of(ground));
        assert!(trust.of(Ground::Forced) > 0.8, "other kinds are not concerned");
    }
}
