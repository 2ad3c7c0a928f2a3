//! What is sent with Enter and Tab: text, changes to waiting text, and commands with a slash.

use super::sent::Editing;
use super::{PageKind, Screen};
use crate::outside::{Action, Wish};
use crate::slash::{self, Read, Slash};
use flint_agent::talk::{Decision, How, Order};

impl Screen {
    /// Steers the running turn, or begins one.
    pub(crate) fn enter(&mut self) -> Vec<Wish> {
        if let Some(slash) = self.completions().get(self.popup).copied() {
            return self.command(slash, "");
        }
        if self.panel.reason {
            return self.give_reason();
        }
        if self.sent.editing.is_some() {
            return self.end_editing();
        }
        match slash::read(self.composer.text()) {
            Read::Command(slash, rest) => {
                let rest = rest.to_owned();
                self.command(slash, &rest)
            }
            Read::Unknown(name) => {
                let remark = format!("there is no /{name}; /help lists what there is");
                self.remark(remark);
                Vec::new()
            }
            Read::Text => self.send(How::Steered),
        }
    }

    /// Queues what is written; completes a command.
    pub(crate) fn tab(&mut self) -> Vec<Wish> {
        if let Some(slash) = self.completions().get(self.popup) {
            self.composer.set(format!("/{} ", slash.name()));
            return Vec::new();
        }
        if self.panel.reason || self.sent.editing.is_some() {
            return Vec::new();
        }
        self.send(How::Queued)
    }

    fn send(&mut self, how: How) -> Vec<Wish> {
        if self.composer.text().trim().is_empty() {
            return Vec::new();
        }
        let text = self.composer.take();
        self.history.add(text.clone());
        self.transcript.go_to_end();
        let order = match (self.is_running(), how) {
            (false, _) => Order::Submit { text },
            (true, How::Steered) => Order::Steer { number: self.sent.add(&text, how), text },
            (true, How::Queued) => Order::Queue { number: self.sent.add(&text, how), text },
        };
        vec![Wish::Order(order)]
    }

    fn give_reason(&mut self) -> Vec<Wish> {
        let why = Some(self.composer.take()).filter(|why| !why.trim().is_empty());
        let order = self.panel.decide(Decision::No { why }, self.now);
        order.into_iter().map(Wish::Order).collect()
    }

    /// Takes the last waiting text into the composer, or the one before it.
    pub(crate) fn edit_waiting(&mut self) {
        let Some(sent) = self.sent.to_edit() else {
            return self.remark("nothing waits that could be changed");
        };
        let (number, text) = (sent.number, sent.text.clone());
        let draft = match self.sent.editing.take() {
            Some(editing) => editing.draft,
            None => self.composer.take(),
        };
        self.sent.editing = Some(Editing { number, draft });
        self.composer.set(text);
    }

    /// An empty text takes the waiting one back.
    fn end_editing(&mut self) -> Vec<Wish> {
        let Some(Editing { number, draft }) = self.sent.editing.take() else { return Vec::new() };
        let text = self.composer.take();
        self.composer.set(draft);
        let order = match text.trim().is_empty() {
            true => Order::Withdraw { number },
            false => Order::Edit { number, text },
        };
        vec![Wish::Order(order)]
    }

    pub(crate) fn stop_editing(&mut self) {
        if let Some(Editing { draft, .. }) = self.sent.editing.take() {
            self.composer.set(draft);
        }
    }

    pub(crate) fn withdraw(&mut self) -> Vec<Wish> {
        let Some(Editing { number, draft }) = self.sent.editing.take() else {
            self.remark("alt+up takes a waiting text into the composer; then ctrl+x withdraws it");
            return Vec::new();
        };
        self.composer.set(draft);
        vec![Wish::Order(Order::Withdraw { number })]
    }

    fn command(&mut self, slash: Slash, rest: &str) -> Vec<Wish> {
        let text = self.composer.take();
        self.history.add(text);
        let named = (!rest.is_empty()).then(|| rest.to_owned());
        let order = |order| vec![Wish::Order(order)];
        let action = |action| vec![Wish::Action(action)];
        match slash {
            Slash::Model => match named {
                Some(name) => order(self.ask_for_model(&name)),
                None => self.probe_for(PageKind::Models),
            },
            Slash::Fast => self.fast(rest),
            Slash::Status => self.probe_for(PageKind::Status),
            Slash::Usage => self.show(PageKind::Usage),
            Slash::Diff => self.show(PageKind::Diff),
            Slash::Help => self.show(PageKind::Help),
            Slash::Undo => order(Order::Preview { undo: true }),
            Slash::Redo => order(Order::Preview { undo: false }),
            Slash::Compact => order(Order::Compact),
            Slash::Profile => action(Action::Profile { name: named }),
            Slash::Resume => action(Action::Resume { session: named }),
            Slash::Fork => action(Action::Fork),
            Slash::Agents => self.agents(rest),
            Slash::Permissions => action(Action::Permissions),
            Slash::Init => action(Action::Init),
            Slash::Export => action(Action::Export { file: named }),
            Slash::Clear => action(Action::Clear),
            Slash::Quit => vec![Wish::Quit],
        }
    }

    /// Which there are; or one is given a task, or stopped.
    fn agents(&mut self, rest: &str) -> Vec<Wish> {
        let order = match rest.split_once(char::is_whitespace) {
            None if rest.is_empty() => return vec![Wish::Action(Action::Agents)],
            None => {
                self.remark("it is /agents NAME TASK, /agents stop ID, or /agents alone");
                return Vec::new();
            }
            Some(("stop", id)) => Order::StopAgent { id: id.trim().to_owned() },
            Some((role, task)) => Order::Delegate { role: role.to_owned(), task: task.trim().to_owned() },
        };
        vec![Wish::Order(order)]
    }

    fn show(&mut self, kind: PageKind) -> Vec<Wish> {
        self.open(kind);
        Vec::new()
    }

    /// A page of what the server says now: an old answer is not shown for a new one.
    fn probe_for(&mut self, kind: PageKind) -> Vec<Wish> {
        self.probe = None;
        self.changed += 1;
        self.open(kind);
        vec![Wish::Order(Order::Probe)]
    }

    fn fast(&mut self, rest: &str) -> Vec<Wish> {
        let on = match rest {
            "on" => true,
            "off" => false,
            "" => !self.fast.unwrap_or(false),
            _ => {
                self.remark("it is /fast on or /fast off");
                return Vec::new();
            }
        };
        self.fast = Some(on);
        self.remark(match on {
            true => "asked to be served sooner; the tier that is granted stands in the status line",
            false => "asked to be served as usual",
        });
        vec![Wish::Order(Order::Fast { on })]
    }
}
