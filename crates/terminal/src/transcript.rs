//! What has happened, as far as it is shown.
//!
//! Rows are made for what is on the screen only, and kept: a frame costs the same after ten items and after ten thousand.

mod entry;

use crate::item::Fit;
use crate::limits::{ENTRIES_LAID_OUT_MAX, ENTRIES_MAX};
use crate::wrap::Row;
pub use entry::{Entry, Note};
use flint_agent::talk::{Figures, FileChange, Item, Progress, What};
use std::collections::{HashMap, VecDeque};

#[derive(Debug, Default)]
pub struct Transcript {
    entries: VecDeque<Entry>,
    first: u64, // the number of the first entry; numbers do not change when old ones go
    open: HashMap<String, u64>, // items that may still grow
    place: Place,
    laid_out: VecDeque<u64>, // entries with rows, the ones that have had them longest first
    window: Vec<Slice>,
}

/// What is shown first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// The last row is the newest one, whatever comes.
    #[default]
    End,
    At {
        entry: u64,
        row: usize,
    },
}

/// Rows of an entry that are on the screen.
#[derive(Debug, Clone, Copy)]
struct Slice {
    entry: u64,
    from: usize,
    rows: usize,
}

impl Transcript {
    /// Whether what is newest is on the screen.
    pub fn at_end(&self) -> bool {
        self.place == Place::End
    }

    pub fn note(&mut self, note: Note, turn: u64) {
        self.push(Entry::note(note, turn));
    }

    pub fn begin(&mut self, item: Item, turn: u64) {
        let Item { id, what } = item;
        if let Some(entry) = self.find(&id) {
            return entry.replace(what);
        }
        let number = self.push(Entry::item(what, turn));
        self.open.insert(id, number);
    }

    pub fn grow(&mut self, id: &str, text: &str) {
        if let Some(entry) = self.find(id) {
            entry.grow(text);
        }
    }

    pub fn end(&mut self, item: Item, turn: u64) {
        let known = self.open.contains_key(&item.id);
        let Item { id, what } = item;
        let last = self.open.get(&id) == Some(&self.last());
        match self.find(&id).filter(|_| known) {
            // What an agent reports stands where it came: much may have happened since it began.
            Some(entry) if !last && matches!(what, What::Agent { .. }) => {
                entry.replace(without_report(&what));
                self.push(Entry::item(what, turn));
            }
            Some(entry) => entry.replace(what),
            None => {
                self.push(Entry::item(what, turn));
            }
        }
        self.open.remove(&id);
    }

    /// What a turn left open will not grow any more, but for agents that work on.
    pub fn end_turn(&mut self) {
        let (entries, first) = (&self.entries, self.first);
        self.open.retain(|_, number| {
            let entry = number.checked_sub(first).and_then(|at| entries.get(at as usize));
            let what = entry.and_then(Entry::what);
            matches!(what, Some(What::Agent { progress: Progress::Running, .. }))
        });
    }

    /// Changes that were made, with the number of their turn.
    pub fn changes(&self) -> impl Iterator<Item = (u64, &FileChange)> {
        self.entries.iter().flat_map(|entry| match entry.what() {
            Some(What::Files { changes, progress: Progress::Done }) => {
                changes.iter().map(|change| (entry.turn, change)).collect::<Vec<_>>()
            }
            _ => Vec::new(),
        })
    }

    fn push(&mut self, mut entry: Entry) -> u64 {
        entry.set_gap(self.entries.back());
        self.entries.push_back(entry);
        if self.entries.len() > ENTRIES_MAX {
            self.entries.pop_front();
            self.first += 1;
        }
        self.last()
    }

    fn last(&self) -> u64 {
        (self.first + self.entries.len() as u64).saturating_sub(1)
    }

    fn find(&mut self, id: &str) -> Option<&mut Entry> {
        let number = *self.open.get(id)?;
        self.get_mut(number)
    }

    fn get(&self, number: u64) -> Option<&Entry> {
        self.entries.get(number.checked_sub(self.first)? as usize)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Entry> {
        self.entries.get_mut(number.checked_sub(self.first)? as usize)
    }

    /// Rows of an entry at this width, made now if need be.
    fn height(&mut self, number: u64, fit: Fit) -> usize {
        let Some(entry) = self.get_mut(number) else { return 0 };
        let had = entry.is_laid_out();
        let height = entry.lay_out(fit);
        if !had {
            self.laid_out.push_back(number);
            if self.laid_out.len() > ENTRIES_LAID_OUT_MAX
                && let Some(old) = self.laid_out.pop_front().filter(|old| *old != number)
                && let Some(entry) = self.get_mut(old)
            {
                entry.forget();
            }
        }
        height
    }

    /// Finds out what is on the screen.
    pub fn lay_out(&mut self, fit: Fit, rows: usize) {
        self.window.clear();
        if self.entries.is_empty() || rows == 0 {
            return;
        }
        if let Place::At { entry, row } = self.place {
            let (entry, row) = if entry < self.first { (self.first, 0) } else { (entry, row) };
            // A narrower or wider screen has other rows.
            let row = row.min(self.height(entry, fit).saturating_sub(1));
            self.place = Place::At { entry, row };
            if self.fill_from(entry, row, fit, rows) {
                return;
            }
            self.place = Place::End;
            self.window.clear();
        }
        self.fill_to_end(fit, rows);
    }

    /// Whether the screen is full with something left below it.
    fn fill_from(&mut self, entry: u64, row: usize, fit: Fit, rows: usize) -> bool {
        let (mut room, mut from) = (rows, row);
        for number in entry..=self.last() {
            let height = self.height(number, fit);
            let shown = height.saturating_sub(from).min(room);
            self.window.push(Slice { entry: number, from, rows: shown });
            let cut = from + shown < height;
            room -= shown;
            from = 0;
            if room == 0 {
                return cut || number < self.last();
            }
        }
        false
    }

    fn fill_to_end(&mut self, fit: Fit, rows: usize) {
        let mut room = rows;
        for number in (self.first..=self.last()).rev() {
            let height = self.height(number, fit);
            let shown = height.min(room);
            self.window.push(Slice { entry: number, from: height - shown, rows: shown });
            room -= shown;
            if room == 0 {
                break;
            }
        }
        self.window.reverse();
    }

    /// The rows on the screen, from the top. `lay_out` has chosen them.
    pub fn window(&self) -> impl Iterator<Item = &Row> {
        self.window.iter().flat_map(|slice| {
            let rows = self.get(slice.entry).into_iter().flat_map(Entry::rows);
            rows.skip(slice.from).take(slice.rows)
        })
    }

    pub fn go_to_end(&mut self) {
        self.place = Place::End;
    }

    /// Moves what is shown by this many rows, at the width that it was laid out for.
    pub fn scroll_up(&mut self, rows: usize, fit: Fit) {
        let Some(Slice { mut entry, from, .. }) = self.window.first().copied() else { return };
        let (mut row, mut left) = (from, rows);
        while left > row {
            if entry == self.first {
                (row, left) = (0, 0);
                break;
            }
            left -= row;
            entry -= 1;
            row = self.height(entry, fit);
        }
        self.place = Place::At { entry, row: row - left };
    }

    pub fn scroll_down(&mut self, rows: usize, fit: Fit) {
        let Place::At { mut entry, row } = self.place else { return };
        let mut row = row + rows;
        while entry < self.last() && row >= self.height(entry, fit) {
            row -= self.height(entry, fit);
            entry += 1;
        }
        self.place = Place::At { entry, row };
    }
}

/// That an agent had a task, and what became of it.
fn without_report(what: &What) -> What {
    let mut what = what.clone();
    if let What::Agent { report, figures, .. } = &mut what {
        report.clear();
        **figures = Figures::default();
    }
    what
}
