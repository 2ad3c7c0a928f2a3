//! Tasks for other agents, from the model or the person, and their reports.

use super::call::{Call, Delegated};
use super::run::hex;
use super::{Stop, Turn};
use crate::agent::Agent;
use crate::facts::Fact;
use crate::hands::{Ended, News};
use crate::history::{Record, user};
use crate::limits::{HAND_END_MILLISECONDS_MAX, REPORT_BYTES_MAX};
use crate::sessions::SessionError;
use crate::talk::{Event, Item, Share, What};
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

impl Agent {
    /// The model gives a task away. It is told that it has begun, or why not; the report comes later.
    pub(super) async fn delegate(&mut self, call: &Call, wanted: Delegated) -> Result<String, Stop> {
        let Delegated { role, task, background } = wanted;
        // Where nobody stays, the turn is all the time there is.
        let background = background && self.hands.crew().stays;
        let (id, begins) = match self.start_hand(&role, &task, background) {
            Ok(started) => started,
            Err(why) => {
                let what = What::Trouble { message: why.clone() };
                self.tell(Event::ItemEnded(Item { id: call.id.clone(), what })).await;
                return Ok(format!("Nothing was begun: {why}."));
            }
        };
        let begun = self.meanwhile(begins).await?;
        Ok(match begun.unwrap_or_else(|_| Err("it ended at once".to_owned())) {
            Ok(()) => format!("{id} ({role}) has begun. Its report will come as a message; go on meanwhile."),
            Err(why) => format!("{role} was not begun: {why}."),
        })
    }

    /// The person gives a task away. What comes of it is shown, and the model reads the report with the next turn.
    pub(crate) async fn delegate_beside(&mut self, role: &str, task: &str) {
        if let Err(why) = self.start_hand(role, task, true) {
            self.tell(Event::Notice { text: why }).await;
        }
    }

    fn start_hand(&mut self, role: &str, task: &str, background: bool) -> Result<Started, String> {
        let session = (&self.settings, &self.approvals);
        self.hands.start(role, task, background, session, self.events.clone())
    }

    pub(crate) async fn stop_hand(&mut self, id: &str) {
        if !self.hands.stop(id) {
            let text = format!("no agent {id:?} is at work: /agents lists those that are");
            self.tell(Event::Notice { text }).await;
        }
    }

    /// Reports that have come join the conversation.
    pub(super) fn take_news(&mut self, turn: &mut Turn) -> Result<(), SessionError> {
        while let Some(news) = self.hands.try_next() {
            self.hear(news, Some(turn))?;
        }
        turn.changed |= self.take_changes()?;
        Ok(())
    }

    /// Where the model has nothing else to do, it waits for all that it did not send to the background: one request then has
    /// all of their reports. True: there is something to be read. Who steers is not kept waiting.
    pub(super) async fn wait_for_hands(&mut self, turn: &mut Turn) -> Result<bool, Stop> {
        if !self.hands.in_foreground() {
            return Ok(false);
        }
        while self.hands.in_foreground() && self.held.is_empty() {
            tokio::select! {
                news = self.hands.next() => self.hear(news, Some(turn))?,
                order = self.orders.recv() => {
                    if let Some(stop) = self.order_while_running(order).await? {
                        return Err(stop);
                    }
                }
            }
        }
        Ok(true)
    }

    /// A turn that was stopped stops those that it waited for; at the end all are stopped. What they have done is kept, and
    /// the model will read how far they came.
    pub(crate) async fn stop_hands(
        &mut self,
        all: bool,
        mut turn: Option<&mut Turn>,
    ) -> Result<(), SessionError> {
        let limit = Duration::from_millis(HAND_END_MILLISECONDS_MAX);
        for hard in [false, true] {
            match hard {
                false => self.hands.stop_all(all),
                true => self.hands.abort_all(all),
            }
            let until = Instant::now() + limit;
            while self.hands.in_foreground() || (all && self.hands.at_work()) {
                let Ok(news) = timeout_at(until, self.hands.next()).await else { break };
                self.hear(news, turn.as_deref_mut())?;
            }
        }
        Ok(())
    }

    pub(crate) fn hear(&mut self, news: News, turn: Option<&mut Turn>) -> Result<(), SessionError> {
        match news {
            News::Begun { id, name, task, session } => {
                self.log.record(&Record::Agent { id, name, task, session })
            }
            News::Ended(ended) => self.hear_report(ended, turn),
        }
    }

    fn hear_report(&mut self, ended: Ended, turn: Option<&mut Turn>) -> Result<(), SessionError> {
        self.hands.forget(&ended.id);
        let changed = self.take_changes()?;
        let Ended { id, name, task, report, done, figures } = ended;
        let Some(report) = report else { return Ok(()) };
        let from = report.ceil_char_boundary(report.len().saturating_sub(REPORT_BYTES_MAX));
        let cut = if from > 0 { " (its end)" } else { "" };
        let report = report[from..].to_owned();
        self.log.push(user(&format!("Report of {id} ({name}){cut}:\n\n{report}")))?;
        self.log.record(&Record::Report { id: id.clone(), name: name.clone(), task, report, done })?;
        if let Some(turn) = turn {
            turn.changed |= changed;
            turn.figures.agents.push(Share { id, name, figures: *figures });
        }
        Ok(())
    }

    /// A session that is taken up again: those that were at work then are not any more.
    pub(crate) fn hear_lost(&mut self) -> Result<(), SessionError> {
        for (id, name, task) in std::mem::take(&mut self.lost) {
            let report = Some("It ended with the program, before it was done.".to_owned());
            self.hear_report(Ended { id, name, task, report, done: false, figures: Box::default() }, None)?;
        }
        Ok(())
    }

    /// What other agents changed is this turn's too: it can be taken back, and is checked. True: there was something.
    pub(super) fn take_changes(&mut self) -> Result<bool, SessionError> {
        let changes = self.hands.changes();
        if changes.is_empty() {
            return Ok(false);
        }
        self.log.record(&Record::Files { changes: changes.clone() })?;
        for change in &changes {
            let sha256 = change.after.as_ref().map(|text| hex(&Sha256::digest(text)));
            let fact = Fact::Changed { path: change.path.clone(), sha256 };
            self.log.record(&Record::Fact { fact: fact.clone() })?;
            self.facts.push(fact);
        }
        self.rewind.changed(changes);
        Ok(true)
    }
}

type Started = (String, tokio::sync::oneshot::Receiver<Result<(), String>>);
