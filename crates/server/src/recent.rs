//! A few things that were made lately, to be had again by whoever asks for the same.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct Recent<K, V> {
    pairs: Mutex<VecDeque<(K, V)>>, // the oldest first
    pairs_max: usize,
}

impl<K: PartialEq, V: Clone> Recent<K, V> {
    pub fn new(pairs_max: usize) -> Recent<K, V> {
        Recent { pairs: Mutex::default(), pairs_max }
    }

    /// What was made for `key`; `make` says what that is if nobody asked lately. What fails is not kept.
    pub fn get<E>(&self, key: K, make: impl FnOnce(&K) -> Result<V, E>) -> Result<V, E> {
        let known = self.lock().iter().find(|(known, _)| *known == key).map(|(_, made)| made.clone());
        if let Some(made) = known {
            return Ok(made);
        }
        let made = make(&key)?;
        let mut pairs = self.lock();
        pairs.push_back((key, made.clone()));
        let surplus = pairs.len().saturating_sub(self.pairs_max);
        pairs.drain(..surplus);
        Ok(made)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(K, V)>> {
        // A panic elsewhere leaves the list whole.
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_and_failures_are_not_kept() {
        let recent = Recent::new(2);
        let get = |key: u32, made: Result<u32, ()>| recent.get(key, |_| made);
        assert_eq!(get(1, Err(())), Err(()));
        assert_eq!(get(1, Ok(10)), Ok(10));
        assert_eq!(get(1, Ok(99)), Ok(10));
        assert_eq!((get(2, Ok(20)), get(3, Ok(30))), (Ok(20), Ok(30)));
        assert_eq!(get(1, Ok(11)), Ok(11));
    }
}
