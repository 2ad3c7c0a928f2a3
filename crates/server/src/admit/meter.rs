//! How much may be used in a minute. What is used is owed, and owing less by the minute makes room again.

/// What is owed, as the moment at which nothing will be. No more than a minute's worth is lent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meter {
    owes_until_ns: u64,
}

/// How much of a minute's worth is left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    pub a_minute: u64,
    pub left: u64,
    pub used: f64,       // of 1
    pub full_in_ns: u64, // until nothing is owed
}

const MINUTE_NS: u64 = 60_000_000_000;

impl Level {
    /// The second at which nothing will be owed.
    pub fn full_at_s(&self, now_s: u64) -> u64 {
        now_s + self.full_in_ns.div_ceil(1_000_000_000)
    }
}

impl Meter {
    /// Nanoseconds until there is room for `amount`; 0 if there is now. More than a minute's worth has room when
    /// nothing is owed: else it never had any.
    pub fn wait_ns(&self, now_ns: u64, a_minute: u64, amount: u64) -> u64 {
        if a_minute == 0 {
            return MINUTE_NS;
        }
        let owed_ns = self.owes_until_ns.saturating_sub(now_ns);
        let over_ns = owed_ns.saturating_add(cost_ns(a_minute, amount)).saturating_sub(MINUTE_NS);
        over_ns.min(owed_ns)
    }

    pub fn level(&self, now_ns: u64, a_minute: u64) -> Level {
        let owed_ns = self.owes_until_ns.saturating_sub(now_ns);
        let left_ns = MINUTE_NS.saturating_sub(owed_ns);
        let left = u128::from(left_ns) * u128::from(a_minute) / u128::from(MINUTE_NS);
        let used = 1.0 - left_ns as f64 / MINUTE_NS as f64;
        // No more than the whole is left, so it fits.
        Level { a_minute, left: left as u64, used, full_in_ns: owed_ns }
    }

    pub fn spend(&mut self, now_ns: u64, a_minute: u64, amount: u64) {
        let from = self.owes_until_ns.max(now_ns);
        self.owes_until_ns = from.saturating_add(cost_ns(a_minute, amount));
    }

    /// Gives back what was spent and not used.
    pub fn give_back(&mut self, a_minute: u64, amount: u64) {
        self.owes_until_ns = self.owes_until_ns.saturating_sub(cost_ns(a_minute, amount));
    }
}

/// The time in which this much is earned.
fn cost_ns(a_minute: u64, amount: u64) -> u64 {
    let cost = (u128::from(amount) * u128::from(MINUTE_NS)).div_ceil(u128::from(a_minute.max(1)));
    cost.try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_minute_at_once_then_as_fast_as_it_is_earned() {
        let mut meter = Meter::default();
        for _ in 0..60 {
            assert_eq!(meter.wait_ns(0, 60, 1), 0);
            meter.spend(0, 60, 1);
        }
        assert_eq!(meter.wait_ns(0, 60, 1), SECOND_NS);
        assert_eq!(meter.wait_ns(SECOND_NS, 60, 1), 0);
        meter.give_back(60, 2);
        assert_eq!(meter.wait_ns(0, 60, 2), 0);
    }

    #[test]
    fn what_is_larger_than_a_minute_waits_until_nothing_is_owed() {
        let mut meter = Meter::default();
        assert_eq!(meter.wait_ns(0, 60, 1000), 0);
        meter.spend(0, 60, 1);
        assert_eq!(meter.wait_ns(0, 60, 1000), SECOND_NS);
    }

    #[test]
    fn a_level_says_what_is_left_and_until_when() {
        let mut meter = Meter::default();
        assert_eq!(meter.level(0, 60), Level { a_minute: 60, left: 60, used: 0.0, full_in_ns: 0 });
        meter.spend(0, 60, 15);
        let level = Level { a_minute: 60, left: 45, used: 0.25, full_in_ns: 15 * SECOND_NS };
        assert_eq!(meter.level(0, 60), level);
        assert_eq!(meter.level(5 * SECOND_NS, 60).left, 50);
        meter.spend(0, 60, 600);
        assert_eq!((meter.level(0, 60).left, meter.level(0, 60).used), (0, 1.0));
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(Meter::default().wait_ns(5, 0, 1), MINUTE_NS);
    }

    proptest! {
        /// Whoever keeps to what they are told gets no more than a minute's worth and what is earned meanwhile,
        /// and who waits as long as they are told to is let in.
        #[test]
        fn no_more_than_is_earned(
            a_minute in 1u64..10_000,
            asks in prop::collection::vec((0u64..5 * SECOND_NS, 1u64..100), 1..200),
        ) {
            let (mut meter, mut now_ns, mut taken) = (Meter::default(), 0, 0);
            for (pause_ns, amount) in asks {
                let amount = amount.min(a_minute);
                now_ns += pause_ns;
                let wait_ns = meter.wait_ns(now_ns, a_minute, amount);
                prop_assert_eq!(meter.wait_ns(now_ns + wait_ns, a_minute, amount), 0);
                if wait_ns == 0 {
                    meter.spend(now_ns, a_minute, amount);
                    taken += amount;
                }
                let earned = u128::from(now_ns) * u128::from(a_minute) / u128::from(MINUTE_NS);
                prop_assert!(u128::from(taken) <= earned + u128::from(a_minute) + 1);
            }
        }
    }
}
