//! The sequences, by slot on the hot path and by id at the edge.

use crate::limits::SEQUENCES_MAX;
use crate::message::{Failure, SequenceId};
use crate::sequence::Sequence;
use std::collections::HashMap;
use std::ops::{Index, IndexMut};

/// Where a sequence lies, until it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(u32);

#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Option<Sequence>>,
    empty: Vec<Slot>,
    by_id: HashMap<SequenceId, Slot>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn find(&self, id: SequenceId) -> Result<Slot, Failure> {
        self.by_id.get(&id).copied().ok_or(Failure::Unknown(id))
    }

    /// Whether a sequence with this id could be inserted.
    pub(super) fn check_vacant(&self, id: SequenceId) -> Result<(), Failure> {
        match () {
            () if self.by_id.contains_key(&id) => Err(Failure::Exists(id)),
            () if self.by_id.len() >= SEQUENCES_MAX => Err(Failure::TooManySequences),
            () => Ok(()),
        }
    }

    pub(super) fn insert(&mut self, sequence: Sequence) -> Slot {
        let slot = self.empty.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot(self.slots.len() as u32 - 1)
        });
        self.by_id.insert(sequence.id, slot);
        self.slots[slot.0 as usize] = Some(sequence);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        if let Some(sequence) = self.slots[slot.0 as usize].take() {
            self.by_id.remove(&sequence.id);
            self.empty.push(slot);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Sequence)> {
        let slots = (0..).map(Slot).zip(&self.slots);
        slots.filter_map(|(slot, sequence)| Some((slot, sequence.as_ref()?)))
    }
}

impl Index<Slot> for Table {
    type Output = Sequence;

    fn index(&self, slot: Slot) -> &Sequence {
        self.slots[slot.0 as usize].as_ref().expect("a slot is not used after its sequence is released")
    }
}

impl IndexMut<Slot> for Table {
    fn index_mut(&mut self, slot: Slot) -> &mut Sequence {
        self.slots[slot.0 as usize].as_mut().expect("a slot is not used after its sequence is released")
    }
}
