//! What the host wants of rows of logits, on its way to the card: the kernel reads it where the host has put it.

use super::super::card::Mapped;
use super::super::{Card, CudaError};
use crate::sample::{Change, Shift};

/// Words of a shift.
const SHIFT_WORDS: usize = size_of::<Shift>() / size_of::<u32>();

/// Room for the changes of one batch, one behind the other.
#[derive(Default)]
pub struct Wishes {
    words: Option<Mapped>,
    used: usize, // words
}

/// Where a change lies for the card, as the arguments of the kernel `change`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    pub allowed: u64, // or 0
    pub words: i32,
    pub shifts: u64,
    pub count: i32,
}

/// Words of the room that the parts of a change take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Places {
    allowed: usize,
    shifts: usize, // read 16 bytes at a time
    end: usize,
}

impl Places {
    fn from(first: usize, change: &Change<'_>) -> Places {
        let mask = change.allowed.map_or(0, <[u32]>::len).next_multiple_of(SHIFT_WORDS);
        let shifts = first + mask;
        Places { allowed: first, shifts, end: shifts + change.shifts.len() * SHIFT_WORDS }
    }
}

impl Wishes {
    /// The card has done all of it.
    pub fn forget(&mut self) {
        self.used = 0;
    }

    pub fn put(&mut self, card: &Card, change: &Change<'_>) -> Result<Wish, CudaError> {
        let mut places = Places::from(self.used, change);
        let words = match self.words.take() {
            Some(words) if places.end <= words.len() => words,
            held => {
                card.finish()?; // what lies there may still be read
                places = Places::from(0, change);
                let room = held.map_or(0, |held| 2 * held.len()).max(2 * places.end);
                Mapped::new(card, room.max(SHIFT_WORDS))?
            }
        };
        self.used = places.end;
        Ok(lay(self.words.insert(words), places, change))
    }
}

fn lay(words: &mut Mapped, places: Places, change: &Change<'_>) -> Wish {
    let allowed = change.allowed.unwrap_or_default();
    words.put(places.allowed, allowed);
    for (shift, at) in change.shifts.iter().zip((places.shifts..).step_by(SHIFT_WORDS)) {
        let Shift { token, factor, less, bias } = *shift;
        words.put(at, &[token, factor.to_bits(), less.to_bits(), bias.to_bits()]);
    }
    Wish {
        allowed: change.allowed.map_or(0, |_| words.at(places.allowed)),
        words: allowed.len() as i32,
        shifts: words.at(places.shifts),
        count: change.shifts.len() as i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_lie_behind_one_another_and_shifts_on_whole_ones() {
        let shifts = [Shift { token: 1, factor: 1.0, less: 0.0, bias: 0.0 }; 3];
        let both = Places::from(8, &Change { allowed: Some(&[1; 5]), shifts: &shifts });
        assert_eq!(both, Places { allowed: 8, shifts: 16, end: 28 });
        let mask = Places::from(both.end, &Change { allowed: Some(&[1; 8]), shifts: &[] });
        assert_eq!(mask, Places { allowed: 28, shifts: 36, end: 36 });
        let shifted = Places::from(mask.end, &Change { allowed: None, shifts: &shifts });
        assert_eq!(shifted, Places { allowed: 36, shifts: 36, end: 48 });
    }
}
