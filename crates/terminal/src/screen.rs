//! All that is shown: what happened so far, and what the person is doing.
//!
//! `fold` takes what happens, `keys` what the person presses, `lay_out` prepares a size, and `draw` only reads.

mod fold;
mod keys;
mod page;
mod question;
mod sent;
mod submit;

use crate::composer::{Composer, History};
use crate::draw::Bottom;
use crate::item::Fit;
use crate::limits::REMARK_TIME;
use crate::transcript::{Note, Transcript};
use flint_agent::talk::{Connection, Figures, Order, Outcome, Probe, Step};
pub use page::{Page, PageKind};
pub use question::Panel;
pub use sent::{Sent, SentList};
use std::time::Duration;

/// What `run` begins with.
#[derive(Default)]
pub struct Setup {
    /// Sent before, the latest last.
    pub history: Vec<String>,
    /// Where the agent works, as it is to be shown.
    pub folder: String,
    /// False where `NO_COLOR` is set.
    pub colour: bool,
    /// The session that is taken up, if it is known already.
    pub session: Option<String>,
    /// The model that is asked for.
    pub model: Option<String>,
    /// What a person should read first.
    pub notices: Vec<String>,
    /// Numbers of steered and queued texts begin here: above those that a session already has.
    pub first_number: u64,
    /// Told after each frame how many events have been painted so far: for measuring.
    pub painted: Option<Box<dyn FnMut(u64) + Send>>,
}

pub struct Screen {
    pub(crate) folder: String,
    pub(crate) colour: bool,
    pub(crate) session: Option<String>,
    pub(crate) transcript: Transcript,
    pub(crate) composer: Composer,
    pub(crate) history: History,
    pub(crate) sent: SentList,
    pub(crate) plan: Vec<Step>,
    pub(crate) panel: Panel,
    pub(crate) page: Option<Page>,
    pub(crate) popup: usize, // the chosen line of the completions
    pub(crate) popup_closed: bool,
    pub(crate) connection: Option<Connection>,
    pub(crate) model: Option<String>, // that was asked for last
    pub(crate) fast: Option<bool>,    // as it was asked for last
    pub(crate) turn: Option<Turn>,
    pub(crate) turns: u64,
    pub(crate) figures: Option<Figures>, // of the last turn
    pub(crate) ledger: Vec<Line>,
    pub(crate) probe: Option<Probe>,
    pub(crate) undone: Vec<u64>, // turns, the one that was undone last at the end
    pub(crate) remark: Option<(Duration, String)>,
    pub(crate) warmed: bool,
    pub(crate) quit_asked: Option<Duration>,
    pub(crate) full: bool,
    pub(crate) fit: Fit,
    pub(crate) transcript_rows: usize,
    pub(crate) bottom: Bottom,
    pub(crate) now: Duration, // since the beginning
    pub(crate) changed: u64,  // counts what pages are made of
}

/// The turn that runs.
#[derive(Debug, Clone)]
pub struct Turn {
    pub began: Duration,
    pub interrupted: bool, // it was asked to end
}

/// A turn or an agent of the ledger.
#[derive(Debug, Clone)]
pub struct Line {
    pub who: Option<String>, // an agent; none is the turn itself
    pub turn: u64,
    pub figures: Figures,
    pub outcome: Option<Outcome>,
}

impl Screen {
    pub fn new(setup: Setup) -> Screen {
        let mut screen = Screen {
            folder: setup.folder,
            colour: setup.colour,
            session: setup.session,
            transcript: Transcript::default(),
            composer: Composer::default(),
            history: History::new(setup.history),
            sent: SentList::new(setup.first_number),
            plan: Vec::new(),
            panel: Panel::default(),
            page: None,
            popup: 0,
            popup_closed: false,
            connection: None,
            model: setup.model,
            fast: None,
            turn: None,
            turns: 0,
            figures: None,
            ledger: Vec::new(),
            probe: None,
            undone: Vec::new(),
            remark: None,
            warmed: false,
            quit_asked: None,
            full: false,
            fit: Fit { width: 80, full: false },
            transcript_rows: 0,
            bottom: Bottom::default(),
            now: Duration::ZERO,
            changed: 0,
        };
        for notice in setup.notices {
            screen.notice(notice);
        }
        screen
    }

    /// What time it is, since the beginning.
    pub fn tick(&mut self, now: Duration) {
        self.now = self.now.max(now);
        let old = |(since, _): &(Duration, String)| now.saturating_sub(*since) > REMARK_TIME;
        if self.remark.as_ref().is_some_and(old) {
            self.remark = None;
        }
    }

    /// Whether anything on the screen depends on the time.
    pub(crate) fn moves(&self) -> bool {
        self.turn.is_some() || self.remark.is_some() || self.panel.question().is_some()
    }

    pub fn is_running(&self) -> bool {
        self.turn.is_some()
    }

    pub fn notice(&mut self, text: String) {
        self.transcript.note(Note::Notice(text), self.turns);
    }

    pub fn trouble(&mut self, text: String) {
        self.transcript.note(Note::Trouble(text), self.turns);
    }

    /// Something that matters for a moment only.
    pub fn remark(&mut self, text: impl Into<String>) {
        self.remark = Some((self.now, text.into()));
    }

    pub(crate) fn open(&mut self, kind: PageKind) {
        self.page = Some(Page::new(kind));
    }

    pub(crate) fn ask_for_model(&mut self, name: &str) -> Order {
        self.model = Some(name.to_owned());
        self.remark(format!("{name} is asked for from the next turn on"));
        Order::Model { name: name.to_owned() }
    }
}
