//! What was sent before, to be sent again.

use crate::limits::HISTORY_ENTRIES_MAX;

#[derive(Debug, Clone, Default)]
pub struct History {
    entries: Vec<String>, // the latest last
    place: Option<usize>, // while someone looks
    draft: String,        // what was in the composer before
}

impl History {
    pub fn new(entries: Vec<String>) -> History {
        let mut history = History::default();
        entries.into_iter().for_each(|entry| history.add(entry));
        history
    }

    pub fn add(&mut self, entry: String) {
        self.place = None;
        if entry.trim().is_empty() || self.entries.last() == Some(&entry) {
            return;
        }
        if self.entries.len() >= HISTORY_ENTRIES_MAX {
            self.entries.remove(0);
        }
        self.entries.push(entry);
    }

    /// The one before; `now` is what the composer holds, to come back to.
    pub fn earlier(&mut self, now: &str) -> Option<String> {
        let place = match self.place {
            Some(place) => place.checked_sub(1)?,
            None => self.entries.len().checked_sub(1)?,
        };
        if self.place.is_none() {
            self.draft = now.to_owned();
        }
        self.place = Some(place);
        self.entries.get(place).cloned()
    }

    pub fn later(&mut self) -> Option<String> {
        let place = self.place? + 1;
        if let Some(entry) = self.entries.get(place) {
            self.place = Some(place);
            return Some(entry.clone());
        }
        self.place = None;
        Some(std::mem::take(&mut self.draft))
    }

    /// An entry that was changed is a text of its own.
    pub fn leave(&mut self) {
        self.place = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut history = History::new(vec!["a".into(), "b".into(), "b".into(), " ".into()]);
        assert_eq!(history.later(), None);
        assert_eq!(history.earlier("draft"), Some("b".into()));
        assert_eq!(history.earlier("b"), Some("a".into()));
        assert_eq!(history.earlier("a"), None);
        assert_eq!(history.later(), Some("b".into()));
        assert_eq!(history.later(), Some("draft".into()));
        assert_eq!(history.later(), None);
    }
}
