//! One turn: the model is asked, what it calls for is done, and it is asked again, until it has nothing more to call for.

mod answer;
mod call;
mod check;
mod claim;
mod diagnose;
mod hands;
mod rewrite;
mod run;

use crate::agent::{Agent, Next};
use crate::client::{Ended, Known};
use crate::history::user;
use crate::limits::REQUESTS_A_TURN_MAX;
use crate::prompt;
use crate::question::is_question;
use crate::sessions::SessionError;
use crate::talk::{Event, Failure, Figures, Item, Outcome, State, What};
use call::Call;
pub(crate) use diagnose::Diagnosis;
pub(crate) use run::blocking;
use std::time::Instant;

/// Why a turn goes no further.
#[derive(Debug)]
pub(crate) enum Stop {
    Interrupted,
    /// And nothing is to follow.
    Ended,
    Failed(Failure),
}

impl From<SessionError> for Stop {
    fn from(error: SessionError) -> Stop {
        Stop::Failed(Failure::Turn(error.to_string()))
    }
}

/// A turn as far as it has come.
#[derive(Debug)]
pub(crate) struct Turn {
    began: Instant,
    figures: Figures,
    changed: bool, // files
    acted: bool,   // a tool was called, or asked for
    asks_for_change: bool,
    checks: u32,
    failed_check: Option<String>, // the last one, if nothing was changed since
    last_failed: Option<FailedCheck>,
    target: Option<String>,    // the file that the person named first
    rewriting: Option<String>, // the file that the next answer is
}

/// A check that found something wrong, and the end of what it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailedCheck {
    pub command: String,
    pub code: Option<i32>,
    pub output: String,
}

impl FailedCheck {
    pub fn ended(&self) -> String {
        self.code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"))
    }
}

impl Turn {
    /// Of the conversation, as the last response counted them.
    pub(crate) fn tokens(&self) -> u64 {
        self.figures.context.tokens
    }
}

impl Agent {
    pub(crate) async fn turn(&mut self, text: &str) -> Result<Next, SessionError> {
        self.tell(Event::TurnBegan).await;
        let (began, figures) = (Instant::now(), Figures::default());
        let mut turn = Turn {
            began,
            figures,
            changed: false,
            acted: false,
            asks_for_change: !is_question(text),
            checks: 0,
            failed_check: None,
            last_failed: None,
            target: None,
            rewriting: None,
        };
        let mut outcome = self.work(text, &mut turn).await;
        if outcome.is_err()
            && let Err(error) = self.stop_hands(false, Some(&mut turn)).await
        {
            outcome = Err(error.into());
        }
        self.release_held().await;
        let again = self.escalation(&outcome, turn.last_failed.as_ref(), turn.tokens()).await;
        let next = match (&outcome, again) {
            (Err(Stop::Ended), _) => Next::End,
            (_, Some(words)) => Next::Again { words },
            (_, None) => Next::Turn,
        };
        let outcome = outcome.map_or_else(Outcome::from, |()| Outcome::Done);
        turn.figures.took = turn.began.elapsed();
        self.tell(Event::TurnEnded { outcome, figures: turn.figures.into() }).await;
        Ok(next)
    }

    async fn work(&mut self, text: &str, turn: &mut Turn) -> Result<(), Stop> {
        self.boldness = 0;
        self.begin_diagnosis();
        // Before the person's words: these are what is to be answered.
        self.take_news(turn)?;
        self.rewind.begin(text, self.log.items().len());
        let (said, shown) = prompt::with_files(text, self.workshop.root());
        turn.target = shown.first().cloned();
        shown.into_iter().for_each(|path| self.has_seen(path));
        self.log.begin_turn(text, user(&said))?;
        let said =
            Item { id: format!("said_{}", self.log.items().len()), what: What::Said { text: text.into() } };
        self.tell(Event::ItemEnded(said)).await;
        loop {
            self.take_news(turn)?;
            self.keep_within_window(turn).await?;
            let calls = self.respond(turn).await?;
            turn.acted |= !calls.is_empty();
            self.take_shown(turn);
            self.take_rewritten(turn).await?;
            let idle = calls.is_empty() && self.held.is_empty();
            let rests = idle && !self.holds_to_claim(turn)? && !self.wait_for_hands(turn).await?;
            if rests && self.check(turn).await? {
                return Ok(());
            }
            self.make_calls(calls, turn).await?;
            if turn.figures.requests >= REQUESTS_A_TURN_MAX {
                let why = format!(
                    "the model asked for more after {REQUESTS_A_TURN_MAX} requests: say how to go on"
                );
                return Err(Stop::Failed(Failure::Turn(why)));
            }
        }
    }

    /// All calls of a response, one after the other. Each has an output, whatever happens: the model would wait for it.
    async fn make_calls(&mut self, calls: Vec<Call>, turn: &mut Turn) -> Result<(), Stop> {
        let mut stopped = None;
        for call in calls {
            let output = match stopped {
                None => match self.make_call(&call, turn).await {
                    Ok(output) => output,
                    Err(stop) => {
                        stopped = Some(stop);
                        "The user stopped this; what was done by then stays.".to_owned()
                    }
                },
                Some(_) => "Not done: the user stopped the turn.".to_owned(),
            };
            self.log.push(crate::history::output(&call.call_id, &output))?;
        }
        stopped.map_or(Ok(()), Err)
    }

    /// Steers that came when no response could take them.
    async fn say_held(&mut self) -> Result<(), SessionError> {
        while let Some(steer) = self.held.pop_front() {
            self.say(&steer).await?;
        }
        Ok(())
    }

    /// What a turn that was stopped did not get to say begins the next one.
    async fn release_held(&mut self) {
        while let Some(waiting) = self.held.pop_back() {
            self.sent(&waiting, State::Waiting).await;
            self.waiting.push_front(waiting);
        }
    }

    /// Waits for something. Orders are taken meanwhile.
    async fn meanwhile<T>(&mut self, wanted: impl Future<Output = T>) -> Result<T, Stop> {
        let mut wanted = std::pin::pin!(wanted);
        loop {
            tokio::select! {
                came = &mut wanted => return Ok(came),
                order = self.orders.recv() => {
                    if let Some(stop) = self.order_while_running(order).await? {
                        return Err(stop);
                    }
                }
            }
        }
    }

    pub(crate) fn has_seen(&mut self, path: String) {
        if !self.shown.contains(&path) {
            self.shown.push(path);
        }
    }

    /// What the server has of the conversation, if this connection has it.
    pub(crate) fn known(&self) -> Option<Known> {
        self.log.known().filter(|_| self.client.remembers())
    }

    /// What a response took, and who it was by.
    async fn account(&mut self, ended: &Ended, turn: &mut Turn) -> Result<(), Stop> {
        let window = self.window().await;
        let figures = &mut turn.figures;
        figures.requests += 1;
        figures.tokens_in += ended.tokens.input;
        figures.tokens_cached += ended.tokens.cached;
        figures.tokens_out += ended.tokens.output;
        figures.tokens_reasoning += ended.tokens.reasoning;
        figures.queued = ended.queued.or(figures.queued);
        figures.tokens_a_second = ended.tokens_a_second.or(figures.tokens_a_second);
        figures.context.tokens = ended.tokens.input + ended.tokens.output;
        figures.context.window = window;
        figures.limits.clone_from(&self.limits);
        figures.served = Some(ended.served.clone());
        self.served = Some(ended.served.clone());
        self.flint = ended.flint;
        self.tell_ignored(&ended.served).await;
        let mut so_far = turn.figures.clone();
        so_far.took = turn.began.elapsed();
        self.tell(Event::Counted(so_far.into())).await;
        if let Some(why) = &ended.cache_break {
            self.tell(Event::Notice { text: format!("the prompt was read anew: {why}") }).await;
        }
        let (asked, served) = (&self.settings.model, &ended.served.model);
        if !asked.is_empty() && !is_same_model(asked, served) {
            let why = format!("{asked} was asked for, and {served} answered");
            return Err(Stop::Failed(Failure::Model(why)));
        }
        Ok(())
    }
}

/// Providers add a date to the name that was asked for; anything else is another model.
pub(crate) fn is_same_model(asked: &str, served: &str) -> bool {
    match served.strip_prefix(asked) {
        Some(rest) => rest.chars().all(|c| c == '-' || c.is_ascii_digit()),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_model_is_not_the_one_that_was_asked_for() {
        for (asked, served, same) in [
            ("qwen", "qwen", true),
            ("gpt-5", "gpt-5-2025-08-07", true),
            ("gpt-5", "gpt-5-mini", false),
            ("gpt-5-mini", "gpt-5", false),
            ("qwen", "", false),
        ] {
            assert_eq!(is_same_model(asked, served), same, "{asked} {served}");
        }
    }
}
