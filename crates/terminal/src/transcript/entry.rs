//! One thing that happened, with the rows that it takes.

use crate::flow::Flow;
use crate::item::{Fit, rows, trouble};
use crate::limits::ITEM_BYTES_MAX;
use crate::style::{DIM, PLAIN, WARNING};
use crate::wrap::{Margin, Row, wrap_text};
use flint_agent::talk::What;

#[derive(Debug)]
pub struct Entry {
    kind: Kind,
    pub turn: u64,
    gap: bool, // an empty row stands before it
    laid_out: Option<LaidOut>,
}

#[derive(Debug)]
enum Kind {
    Item(Box<What>),
    Note(Note),
}

/// What the terminal itself says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    Quiet(String),
    Notice(String),
    Trouble(String),
}

#[derive(Debug)]
struct LaidOut {
    fit: Fit,
    body: Body,
    stale: bool,
}

#[derive(Debug)]
enum Body {
    Flow(Flow),
    Rows(Vec<Row>),
}

static EMPTY: Row = Row { style: PLAIN, alignment: None, spans: Vec::new() };

impl Entry {
    pub fn item(mut what: What, turn: u64) -> Entry {
        bound(&mut what);
        Entry { kind: Kind::Item(Box::new(what)), turn, gap: false, laid_out: None }
    }

    pub fn note(note: Note, turn: u64) -> Entry {
        Entry { kind: Kind::Note(note), turn, gap: false, laid_out: None }
    }

    pub fn what(&self) -> Option<&What> {
        match &self.kind {
            Kind::Item(what) => Some(what),
            Kind::Note(_) => None,
        }
    }

    fn message(&self) -> Option<&str> {
        match self.what() {
            Some(What::Message { text }) => Some(text),
            _ => None,
        }
    }

    /// Looks stand close together, all else apart.
    pub fn set_gap(&mut self, before: Option<&Entry>) {
        let look = |entry: &Entry| matches!(entry.what(), Some(What::Look { .. }));
        self.gap = before.is_some_and(|before| !(look(before) && look(self)));
    }

    pub fn grow(&mut self, more: &str) {
        let Kind::Item(what) = &mut self.kind else { return };
        let Some(text) = growing(what) else { return };
        text.push_str(more);
        let cut = keep_end(text);
        match &mut self.laid_out {
            Some(laid_out) if !cut => laid_out.stale = true,
            Some(_) | None => self.laid_out = None,
        }
    }

    pub fn replace(&mut self, mut what: What) {
        bound(&mut what);
        let grown = match (self.message(), &what) {
            (Some(before), What::Message { text }) => text.starts_with(before),
            _ => false,
        };
        match &mut self.laid_out {
            Some(laid_out) if grown => laid_out.stale = true,
            Some(_) | None => self.laid_out = None,
        }
        self.kind = Kind::Item(Box::new(what));
    }

    pub fn is_laid_out(&self) -> bool {
        self.laid_out.is_some()
    }

    pub fn forget(&mut self) {
        self.laid_out = None;
    }

    /// How many rows it takes.
    pub fn lay_out(&mut self, fit: Fit) -> usize {
        let known = self.laid_out.take().filter(|laid_out| laid_out.fit == fit);
        let body = match known {
            Some(LaidOut { body, stale: false, .. }) => body,
            Some(LaidOut { body: Body::Flow(mut flow), stale: true, .. }) => {
                flow.grow(self.message().unwrap_or_default());
                Body::Flow(flow)
            }
            Some(LaidOut { body: Body::Rows(_), stale: true, .. }) | None => self.body(fit),
        };
        self.laid_out = Some(LaidOut { fit, body, stale: false });
        usize::from(self.gap) + self.body_rows().len()
    }

    fn body(&self, fit: Fit) -> Body {
        if let Some(text) = self.message() {
            let mut flow = Flow::new(fit.width);
            flow.grow(text);
            return Body::Flow(flow);
        }
        match &self.kind {
            Kind::Item(what) => Body::Rows(rows(what, fit)),
            Kind::Note(note) => Body::Rows(note_rows(note, fit.width)),
        }
    }

    fn body_rows(&self) -> &[Row] {
        match self.laid_out.as_ref().map(|laid_out| &laid_out.body) {
            Some(Body::Flow(flow)) => flow.rows(),
            Some(Body::Rows(rows)) => rows,
            None => &[],
        }
    }

    /// As they were laid out.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.gap.then_some(&EMPTY).into_iter().chain(self.body_rows())
    }
}

fn note_rows(note: &Note, width: usize) -> Vec<Row> {
    match note {
        Note::Quiet(text) => wrap_text(text, DIM, width, &Margin::new("  ", "  ", DIM)),
        Note::Notice(text) => wrap_text(text, WARNING, width, &Margin::new("! ", "  ", WARNING)),
        Note::Trouble(text) => trouble(text, width),
    }
}

/// The text of an item that comes bit by bit.
fn growing(what: &mut What) -> Option<&mut String> {
    match what {
        What::Message { text } | What::Reasoning { text } => Some(text),
        What::Command { output, .. } | What::Look { output, .. } => Some(output),
        What::Agent { report, .. } => Some(report),
        What::Said { .. } | What::Files { .. } | What::Plan { .. } | What::Trouble { .. } => None,
    }
}

fn bound(what: &mut What) {
    if let Some(text) = growing(what) {
        keep_end(text);
    }
}

/// Whether the beginning had to go. Half of it goes at once, or every token would move megabytes.
fn keep_end(text: &mut String) -> bool {
    if text.len() <= ITEM_BYTES_MAX {
        return false;
    }
    let from = text.ceil_char_boundary(text.len() - ITEM_BYTES_MAX / 2);
    text.drain(..from);
    true
}
