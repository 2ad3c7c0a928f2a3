//! The turns of one model: those that run, and those that wait for one to end.

use super::Class;
use std::collections::BTreeSet;

/// Bounds of a pool, in turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub running: usize,
    pub waiting: usize, // in each class
}

#[derive(Debug)]
pub struct Pool {
    size: Size,
    running: usize,
    waiting: BTreeSet<Place>, // none, unless all slots are taken
    next: u64,
    turn_ms: u64, // about what a turn takes
}

/// A place in the queue: the order is that in which they are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    class: Class,
    behind: bool, // those who pay to be ahead
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    Running,
    Waiting(Place),
}

impl Pool {
    pub fn new(size: Size) -> Pool {
        Pool { size, running: 0, waiting: BTreeSet::new(), next: 0, turn_ms: 1000 }
    }

    pub fn is_full(&self, class: Class) -> bool {
        self.running >= self.size.running && self.waiting_of(class) >= self.size.waiting
    }

    /// A slot, or a place in the queue. The caller has seen that it is not full.
    pub fn enter(&mut self, class: Class, ahead: bool) -> Entry {
        if self.running < self.size.running {
            self.running += 1;
            return Entry::Running;
        }
        let place = Place { class, behind: !ahead, number: self.next };
        self.next += 1;
        self.waiting.insert(place);
        Entry::Waiting(place)
    }

    /// How many are let in before it, itself counted; nothing if it runs.
    pub fn position(&self, place: &Place) -> Option<usize> {
        self.waiting.contains(place).then(|| self.waiting.range(..=place).count())
    }

    /// Gives back what `enter` gave: its place, or the slot that has become of it.
    pub fn leave(&mut self, entry: Entry) {
        if let Entry::Waiting(place) = entry
            && self.waiting.remove(&place)
        {
            return;
        }
        if self.waiting.pop_first().is_none() {
            self.running = self.running.saturating_sub(1);
        }
    }

    /// A turn has run this long.
    pub fn took(&mut self, turn_ms: u64) {
        self.turn_ms = (7 * self.turn_ms + turn_ms) / 8;
    }

    /// About how long the queue needs to move up by one.
    pub fn wait_ms(&self) -> u64 {
        self.turn_ms / (self.size.running.max(1) as u64)
    }

    pub fn running(&self) -> usize {
        self.running
    }

    pub fn waiting_of(&self, class: Class) -> usize {
        self.waiting.iter().filter(|place| place.class == class).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLASSES: [Class; 3] = [Class::Keystroke, Class::Interactive, Class::Background];

    fn waiting(pool: &mut Pool, class: Class, ahead: bool) -> Place {
        match pool.enter(class, ahead) {
            Entry::Waiting(place) => place,
            Entry::Running => panic!("there was a slot"),
        }
    }

    #[test]
    fn the_queue_is_in_order_of_class_then_price_then_time() {
        let mut pool = Pool::new(Size { running: 1, waiting: 8 });
        assert_eq!(pool.enter(Class::Background, false), Entry::Running);
        let background = waiting(&mut pool, Class::Background, false);
        let first = waiting(&mut pool, Class::Interactive, false);
        let second = waiting(&mut pool, Class::Interactive, false);
        let paid = waiting(&mut pool, Class::Interactive, true);
        let keystroke = waiting(&mut pool, Class::Keystroke, false);
        let order = [keystroke, paid, first, second, background];
        for (at, place) in order.iter().enumerate() {
            assert_eq!(pool.position(place), Some(at + 1));
        }
        for place in order {
            pool.leave(Entry::Running);
            assert_eq!(pool.position(&place), None);
        }
        pool.leave(Entry::Waiting(background));
        assert_eq!(pool.running(), 0);
    }

    #[test]
    fn one_class_cannot_fill_the_queue_of_another() {
        let mut pool = Pool::new(Size { running: 1, waiting: 1 });
        pool.enter(Class::Background, false);
        waiting(&mut pool, Class::Background, false);
        assert!(pool.is_full(Class::Background) && !pool.is_full(Class::Interactive));
    }

    proptest! {
        /// However they come and go, slots are neither lost nor given twice, and nobody waits for a free one.
        #[test]
        fn slots_add_up(
            size in (1usize..4, 0usize..4),
            steps in prop::collection::vec((any::<bool>(), 0usize..3, any::<bool>(), any::<prop::sample::Index>()), 0..200),
        ) {
            let mut pool = Pool::new(Size { running: size.0, waiting: size.1 });
            let mut inside: Vec<Entry> = Vec::new();
            for (enters, class, ahead, who) in steps {
                let class = CLASSES[class];
                if enters && !pool.is_full(class) {
                    inside.push(pool.enter(class, ahead));
                } else if !inside.is_empty() {
                    pool.leave(inside.swap_remove(who.index(inside.len())));
                }
                let waits = |entry: &&Entry| matches!(entry, Entry::Waiting(place) if pool.position(place).is_some());
                let waiting = inside.iter().filter(waits).count();
                prop_assert_eq!(pool.running(), inside.len() - waiting);
                prop_assert!(pool.running() <= size.0);
                prop_assert!(waiting == 0 || pool.running() == size.0);
                prop_assert_eq!(CLASSES.iter().map(|class| pool.waiting_of(*class)).sum::<usize>(), waiting);
            }
        }
    }
}
