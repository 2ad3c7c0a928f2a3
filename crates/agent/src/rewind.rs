//! What turns did to files and to the conversation, so that it can be taken back, and that be taken back.

use crate::files::Change;
use crate::history::{Record, Saved};
use crate::root::{Name, NameError};
use serde_json::Value;

/// A turn that changed something, or only said something.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    pub text: String,
    pub items: usize, // of the conversation, before it
    pub changes: Vec<Saved>,
}

/// A turn that was taken back.
#[derive(Debug, Clone, PartialEq)]
pub struct Undone {
    pub past: Past,
    pub items: Vec<Value>, // of the conversation, that it had added
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rewind {
    past: Vec<Past>,
    undone: Vec<Undone>,
}

impl Rewind {
    /// From the records of a session. What was undone before it ended stays undone.
    pub fn resumed(records: &[Record]) -> Rewind {
        let (mut rewind, mut items) = (Rewind::default(), 0);
        for record in records {
            match record {
                Record::Turn { text } => rewind.begin(text, items),
                Record::Item { .. } => items += 1,
                Record::Files { changes } => rewind.changed(changes.clone()),
                Record::NotMade { files } => rewind.not_made(*files),
                Record::Short { items: short } => {
                    items = short.len();
                    rewind = Rewind::default();
                }
                Record::Undone { turns, items: left } => {
                    rewind.past.truncate(rewind.past.len().saturating_sub(*turns));
                    items = *left;
                }
                Record::Redone { items: again } => items += again.len(),
                Record::Session { .. }
                | Record::Waiting { .. }
                | Record::Settled { .. }
                | Record::Agent { .. }
                | Record::Report { .. }
                | Record::Fact { .. } => {}
            }
        }
        rewind
    }

    /// A turn begins: what was undone cannot be made again.
    pub fn begin(&mut self, text: &str, items: usize) {
        self.undone.clear();
        self.past.push(Past { text: text.to_owned(), items, changes: Vec::new() });
    }

    pub fn changed(&mut self, changes: Vec<Saved>) {
        if let Some(past) = self.past.last_mut() {
            past.changes.extend(changes);
        }
    }

    /// The last of these were not changed after all.
    pub fn not_made(&mut self, files: usize) {
        if let Some(past) = self.past.last_mut() {
            past.changes.truncate(past.changes.len().saturating_sub(files));
        }
    }

    pub fn last(&self) -> Option<&Past> {
        self.past.last()
    }

    pub fn last_undone(&self) -> Option<&Undone> {
        self.undone.last()
    }

    /// The last turn was taken back, with the items that it had added.
    pub fn undo(&mut self, items: Vec<Value>) {
        if let Some(past) = self.past.pop() {
            self.undone.push(Undone { past, items });
        }
    }

    pub fn redo(&mut self) -> Option<Undone> {
        let undone = self.undone.pop()?;
        self.past.push(undone.past.clone());
        Some(undone)
    }
}

/// A change as it is kept. None: the file is no text.
pub fn saved(change: &Change) -> Option<Saved> {
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).ok();
    let before = match &change.before {
        Some(bytes) => Some(text(bytes)?),
        None => None,
    };
    let (after, mode) = match &change.after {
        Some((bytes, mode)) => (Some(text(bytes)?), *mode),
        None => (None, 0o644),
    };
    Some(Saved { path: change.name.path().to_str()?.to_owned(), before, after, mode })
}

/// The change again.
pub fn saved_change(saved: &Saved) -> Result<Change, NameError> {
    Ok(Change {
        name: Name::new(&saved.path)?,
        before: saved.before.clone().map(String::into_bytes),
        after: saved.after.clone().map(|text| (text.into_bytes(), saved.mode)),
    })
}

/// The changes that take these back: each file to what it was before the first of them.
pub fn backwards(changes: &[Saved]) -> Result<Vec<Change>, NameError> {
    together(changes, |first, last| (last.after.clone(), first.before.clone(), last.mode))
}

/// The changes that make these again.
pub fn forwards(changes: &[Saved]) -> Result<Vec<Change>, NameError> {
    together(changes, |first, last| (first.before.clone(), last.after.clone(), last.mode))
}

type Ends = (Option<String>, Option<String>, u32);

/// One change for each file, from the first and the last that there was.
fn together(changes: &[Saved], ends: impl Fn(&Saved, &Saved) -> Ends) -> Result<Vec<Change>, NameError> {
    let mut made: Vec<Change> = Vec::new();
    for (index, first) in changes.iter().enumerate() {
        if changes[..index].iter().any(|earlier| earlier.path == first.path) {
            continue;
        }
        let last = changes.iter().rfind(|change| change.path == first.path).unwrap_or(first);
        let (before, after, mode) = ends(first, last);
        if before == after {
            continue;
        }
        made.push(Change {
            name: Name::new(&first.path)?,
            before: before.map(String::into_bytes),
            after: after.map(|text| (text.into_bytes(), mode)),
        });
    }
    Ok(made)
}
