//! Something to read, or a list to choose from, in place of the transcript.

use crate::item::Fit;
use crate::outside::Choice;
use crate::wrap::Row;
use flint_agent::talk::FileChange;

#[derive(Debug)]
pub struct Page {
    pub kind: PageKind,
    pub chosen: usize, // of a list
    pub top: usize,    // the first row that is shown
    pub rows: Vec<Row>,
    made_for: Option<(Fit, u64, usize)>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum PageKind {
    Help,
    Status,
    Usage,
    Diff,
    Models,
    /// What an undo would do, or a redo.
    Rewind {
        undo: bool,
        turn: String,
        changes: Vec<FileChange>,
    },
    Told {
        title: String,
        text: String,
    },
    Choose {
        title: String,
        choices: Vec<Choice>,
    },
}

impl Page {
    pub fn new(kind: PageKind) -> Page {
        Page { kind, chosen: 0, top: 0, rows: Vec::new(), made_for: None }
    }

    pub fn is_list(&self) -> bool {
        matches!(self.kind, PageKind::Models | PageKind::Choose { .. })
    }

    /// What the keys do.
    pub fn keys(&self) -> &'static str {
        match self.kind {
            PageKind::Models | PageKind::Choose { .. } => "enter takes it, esc closes",
            PageKind::Rewind { .. } => "enter does it, esc leaves all as it is",
            PageKind::Help | PageKind::Status | PageKind::Usage | PageKind::Diff | PageKind::Told { .. } => {
                "esc closes, up and down move"
            }
        }
    }

    pub fn title(&self) -> &str {
        match &self.kind {
            PageKind::Help => "Help",
            PageKind::Status => "Status",
            PageKind::Usage => "Usage",
            PageKind::Diff => "Changes",
            PageKind::Models => "Models",
            PageKind::Rewind { undo: true, .. } => "Undo",
            PageKind::Rewind { undo: false, .. } => "Redo",
            PageKind::Told { title, .. } | PageKind::Choose { title, .. } => title,
        }
    }

    pub fn up(&mut self, rows: usize) {
        match self.is_list() {
            true => self.chosen = self.chosen.saturating_sub(rows),
            false => self.top = self.top.saturating_sub(rows),
        }
    }

    /// How far down there is something, `keep_in` knows.
    pub fn down(&mut self, rows: usize) {
        match self.is_list() {
            true => self.chosen = self.chosen.saturating_add(rows),
            false => self.top = self.top.saturating_add(rows),
        }
    }

    /// Whether the rows are those of an older size or of older facts.
    pub fn is_stale(&mut self, fit: Fit, changed: u64) -> bool {
        let wanted = Some((fit, changed, self.chosen));
        let stale = self.made_for != wanted;
        self.made_for = wanted;
        stale
    }

    /// A list's choice lies within it.
    pub fn keep_chosen_in(&mut self, choices: usize) {
        self.chosen = self.chosen.min(choices.saturating_sub(1));
    }

    /// What is shown lies within what there is, and the choice within what is shown.
    pub fn keep_in(&mut self, room: usize) {
        if self.is_list() {
            self.top = self.top.clamp((self.chosen + 1).saturating_sub(room.max(1)), self.chosen);
        }
        self.top = self.top.min(self.rows.len().saturating_sub(room));
    }
}
