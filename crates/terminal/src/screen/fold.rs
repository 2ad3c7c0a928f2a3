//! What happens, folded into what is shown.

use super::{Line, PageKind, Screen, Turn};
use crate::limits::LEDGER_LINES_MAX;
use crate::transcript::Note;
use crate::words;
use flint_agent::headless::routed_words;
use flint_agent::talk::{Connection, Event, Figures, How, Item, Outcome, Progress, Routed, State, What};

impl Screen {
    pub fn fold(&mut self, event: Event) {
        match event {
            Event::Began { session } => self.session = Some(session),
            Event::Connection(connection) => self.connect(connection),
            Event::TurnBegan => self.begin_turn(),
            Event::ItemBegan(item) => {
                self.heed(&item.what);
                self.transcript.begin(item, self.turns);
            }
            Event::ItemGrew { id, text } => self.transcript.grow(&id, &text),
            Event::ItemEnded(item) => self.end_item(item),
            Event::Asked(question) => {
                if !self.panel.ask(question, self.now) {
                    self.trouble(
                        "Too many questions wait; the last one is not shown. Esc interrupts.".to_owned(),
                    );
                }
            }
            Event::Sent { number, text, how, state } => self.fold_sent(number, text, how, state),
            Event::TurnEnded { outcome, figures } => self.end_turn(outcome, *figures),
            Event::Previewed { undo, turn, changes } => self.open(PageKind::Rewind { undo, turn, changes }),
            Event::Rewound { undone, turn, files } => self.rewind(undone, &turn, &files),
            Event::Compacted { tokens_before, tokens_after } => {
                let (before, after) = (words::count(tokens_before), words::count(tokens_after));
                self.quiet(format!("The conversation was made short: {before} tokens became {after}."));
            }
            Event::Probed(probe) => {
                self.connection = Some(probe.connection.clone());
                self.probe = Some(*probe);
                self.changed += 1;
            }
            Event::Routed { profile, model, why, how } => {
                self.notice(routed_words(&profile, &model, &why, how));
                if how != Routed::Suggested && !model.is_empty() {
                    self.model = Some(model);
                }
            }
            // Told whole when the turn ends.
            Event::Counted(_) => {}
            Event::Notice { text } => self.notice(text),
        }
    }

    /// No more will come.
    pub fn agent_gone(&mut self) {
        self.turn = None;
        self.connection = Some(Connection::Lost { why: "the agent has ended".to_owned() });
        self.trouble("The agent has ended; what is here can still be read.".to_owned());
    }

    fn quiet(&mut self, text: String) {
        self.transcript.note(Note::Quiet(text), self.turns);
    }

    fn connect(&mut self, connection: Connection) {
        if let Connection::Lost { why } = &connection {
            self.remark(format!("the connection is lost: {why}"));
        }
        self.connection = Some(connection);
    }

    fn begin_turn(&mut self) {
        self.turns += 1;
        // It is no longer the last turn that it is about.
        self.page.take_if(|page| matches!(page.kind, PageKind::Rewind { .. }));
        self.turn = Some(Turn { began: self.now, interrupted: false });
        self.plan.clear();
        self.sent.begin_turn();
    }

    fn heed(&mut self, what: &What) {
        if let What::Plan { steps } = what {
            self.plan.clone_from(steps);
        }
    }

    fn end_item(&mut self, item: Item) {
        self.heed(&item.what);
        self.panel.settle(&item.id, self.now);
        self.changed += 1;
        if let What::Agent { name, figures, progress: Progress::Done | Progress::Failed, .. } = &item.what {
            self.account(Line {
                who: Some(name.clone()),
                turn: self.turns,
                figures: figures.as_ref().clone(),
                outcome: None,
            });
        }
        self.transcript.end(item, self.turns);
    }

    fn account(&mut self, line: Line) {
        if self.ledger.len() >= LEDGER_LINES_MAX {
            self.ledger.remove(0);
        }
        self.ledger.push(line);
        self.changed += 1;
    }

    fn fold_sent(&mut self, number: u64, text: String, how: How, state: State) {
        if let State::Failed { why } = &state {
            let what = match how {
                How::Steered => "The steer",
                How::Queued => "The queued text",
            };
            self.trouble(format!("{what} was not taken: {why}. It was: {text}"));
        }
        if self.sent.fold(number, text, how, state) {
            self.remark("what you were changing is on its way already; it is now a text of its own");
        }
    }

    fn end_turn(&mut self, outcome: Outcome, figures: Figures) {
        match &outcome {
            Outcome::Done => {}
            Outcome::Interrupted => self.quiet("Interrupted; what is done is kept.".to_owned()),
            Outcome::Failed { error } => self.trouble(error.to_string()),
        }
        self.mismatch(&figures);
        self.turn = None;
        self.warmed = false;
        self.panel.end_turn(self.now);
        self.transcript.end_turn();
        let line = Line { who: None, turn: self.turns, figures: figures.clone(), outcome: Some(outcome) };
        self.account(line);
        self.figures = Some(figures);
    }

    fn mismatch(&mut self, figures: &Figures) {
        if let Some(served) = figures.served.as_ref().filter(|served| served.asked != served.model) {
            self.trouble(format!("{} was asked for, and {} has answered.", served.asked, served.model));
        }
    }

    fn rewind(&mut self, undone: bool, turn: &str, files: &[String]) {
        let files = if files.is_empty() { "no files".to_owned() } else { files.join(", ") };
        let verb = if undone { "Undone" } else { "Made again" };
        self.quiet(format!("{verb}: {turn} ({files})"));
        if undone {
            let last = (1..=self.turns).rev().find(|turn| !self.undone.contains(turn));
            self.undone.extend(last);
        } else {
            self.undone.pop();
        }
        self.changed += 1;
    }
}
