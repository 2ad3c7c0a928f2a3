//! The model's tokens, as they come, to the events of a response, until one side ends it.

use super::{Control, Steered, Turn, engine_error};
use crate::decode::{Decoder, Delta, Sampled};
use crate::ids::new_id;
use crate::store::Pen;
use flint_engine::message::{Break, Counts, Event, FinishReason};
use flint_engine::supervise::{Generation, Told};
use flint_wire::{ApiError, Item};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

/// How the engine's part of a turn came to its end.
pub(super) struct Ended {
    pub(super) how: How,
    pub(super) counts: Counts,
    pub(super) broke: Option<Break>,
    pub(super) tokens: Vec<u32>, // generated
    pub(super) done: usize,      // of these, up to the end of the last whole item
    pub(super) surplus: u32,     // tokens that came after them, and too late
    pub(super) reasoning: u32,
}

/// What has become of the model's tokens so far.
pub(super) struct Answer {
    pub(super) decoder: Decoder,
    pub(super) deltas: Vec<Delta>,
    pub(super) tokens: Vec<u32>,
    pub(super) done: usize,  // of these, up to the end of the last whole item
    pub(super) surplus: u32, // tokens that came when it was over; a step may bring many
}

pub(super) enum How {
    Finished(FinishReason),
    StopString,
    Cancelled,
    Interrupted,
    Steered(Vec<Arc<Item>>),
    Failed(ApiError),
}

impl Turn {
    /// The state of the answer after the tokens of an earlier process, whose events have been told.
    pub(super) fn replay(&mut self) -> Answer {
        let (decoder, next) = (self.decoder(), self.writer.next_number());
        let mut answer = Answer { decoder, deltas: Vec::new(), tokens: Vec::new(), done: 0, surplus: 0 };
        for heard in std::mem::take(&mut self.past.heard) {
            self.hear(&mut answer, &heard.sampled());
        }
        self.writer.resume_at(next);
        answer
    }

    /// How the answer had ended already, if its last event is all that is missing.
    pub(super) fn ended_before(&self, answer: &Answer, max_tokens: u32) -> Option<How> {
        match answer.tokens.last() {
            None => None,
            Some(_) if answer.decoder.stopped() || self.has_called_enough() => Some(How::StopString),
            Some(last) if self.stop_tokens().contains(last) => Some(How::Finished(FinishReason::Stop)),
            Some(_) if answer.tokens.len() >= max_tokens as usize => {
                Some(How::Finished(FinishReason::Length))
            }
            Some(_) => None,
        }
    }

    /// The loop of a response: tokens in, events out, until one side ends it.
    pub(super) async fn follow(
        &mut self,
        mut answer: Answer,
        generation: &Generation,
        controls: &mut mpsc::Receiver<Control>,
    ) -> Ended {
        let (mut broke, mut stopping) = (None, None);
        // Who comes back to a response that has outlived its process may also leave it again.
        let detached = self.request.background || self.past.resumed;
        let log = self.running.log.clone();
        let abandoned = log.abandoned(self.grace());
        tokio::pin!(abandoned);
        let (counts, finished) = loop {
            let heartbeat = tokio::time::sleep_until(self.silent_until().into());
            tokio::select! {
                biased;
                told = next_event(&self.pen, generation) => match told.map(|told| (told.event, told.at)) {
                    Some((Event::Started { broke: at, .. }, _)) => broke = at,
                    Some((Event::Token { token, logprob, top, .. }, at)) => {
                        self.timing.first_token.get_or_insert_with(Instant::now);
                        if stopping.is_some() {
                            answer.surplus += 1;
                            continue;
                        }
                        let sampled = Sampled { token, logprob, top: &top };
                        self.pen.hear(&sampled);
                        self.writer.token_at(Some(at));
                        self.hear(&mut answer, &sampled);
                        self.flush();
                        self.writer.token_at(None);
                        if answer.decoder.stopped() || self.has_called_enough() {
                            stopping = Some(How::StopString);
                            self.stop(generation);
                        }
                        self.writer.gather();
                    }
                    Some((Event::Finished { reason, counts, .. }, _)) => break (counts, How::Finished(reason)),
                    Some((Event::Failed { failure, .. } | Event::Refused { failure, .. }, _)) => {
                        break (Counts::default(), How::Failed(engine_error(&failure.into())));
                    }
                    Some(_) => {}
                    None => break (Counts::default(), How::Failed(ApiError::internal("the engine was stopped"))),
                },
                Some(control) = controls.recv() => {
                    if let Some(how) = self.control(control, &mut stopping) {
                        stopping = Some(how);
                        self.stop(generation);
                    }
                }
                () = &mut abandoned, if stopping.is_none() && !detached => {
                    stopping = Some(How::Cancelled);
                    self.stop(generation);
                }
                // What says that a steer was accepted goes out with the end, not before.
                () = heartbeat, if stopping.is_none() => self.beat(),
            }
        };
        self.timing.ended = Some(Instant::now());
        let how = match (stopping, finished) {
            (Some(how), How::Finished(_)) => how,
            (_, finished) => finished,
        };
        self.conclude(answer, how, counts, broke)
    }

    /// When it has said nothing for so long that its reader may give up. A token may say nothing for now, or for good.
    pub(super) fn silent_until(&self) -> Instant {
        self.told_at + self.server.pace.heartbeat
    }

    /// Lets the reader know that the response is still being made.
    pub(super) fn beat(&mut self) {
        self.writer.in_progress();
        self.flush();
    }

    /// Takes one token into the answer.
    fn hear(&mut self, answer: &mut Answer, sampled: &Sampled<'_>) {
        answer.tokens.push(sampled.token);
        answer.decoder.push(sampled, &mut answer.deltas);
        answer.deltas.drain(..).for_each(|delta| self.writer.delta(delta));
        if self.writer.between_items() {
            answer.done = answer.tokens.len();
        }
    }

    /// What was held back comes out, but only together with the last event: it belongs to no token, so it could
    /// not be told from what is yet to come if the process ended in between.
    pub(super) fn conclude(
        &mut self,
        answer: Answer,
        how: How,
        counts: Counts,
        broke: Option<Break>,
    ) -> Ended {
        let Answer { mut decoder, mut deltas, tokens, done, surplus } = answer;
        let counts = Counts { generated: counts.generated.saturating_sub(surplus), ..counts };
        if !matches!(how, How::Interrupted) {
            decoder.finish(&mut deltas);
            deltas.drain(..).for_each(|delta| self.writer.delta(delta));
        }
        Ended { how, counts, broke, tokens, done, surplus, reasoning: decoder.reasoning_tokens() }
    }

    fn decoder(&self) -> Decoder {
        match self.conversation.raw {
            Some(_) => Decoder::plain(self.model.clone(), &self.request.stop),
            None => {
                let tools = self.conversation.tools.declared();
                Decoder::chat(self.model.clone(), tools, &self.request.stop, false)
            }
        }
    }

    /// What a control makes of the response: nothing, or its end.
    fn control(&mut self, control: Control, stopping: &mut Option<How>) -> Option<How> {
        match (control, stopping) {
            (Control::Steer { items, answer }, Some(How::Steered(waiting))) => {
                waiting.extend(items);
                self.writer.steer_accepted(&new_id("steer"));
                let _ = answer.send(Steered::Accepted);
                None
            }
            (Control::Steer { answer, .. }, None) if !self.writer.required_input().is_empty() => {
                self.writer.steer_pending(&new_id("steer"));
                self.flush();
                let _ = answer.send(Steered::Pending);
                None
            }
            (Control::Steer { items, answer }, None) => {
                // Told with the response's last events, at the next token: a process that dies before has promised
                // nothing that the next one does not know of.
                self.writer.steer_accepted(&new_id("steer"));
                let _ = answer.send(Steered::Accepted);
                Some(How::Steered(items))
            }
            (Control::Steer { answer, .. }, Some(_)) => {
                let _ = answer.send(Steered::Late);
                None
            }
            (Control::Cancel, _) => Some(How::Cancelled),
            (Control::Interrupt, _) => Some(How::Interrupted),
        }
    }

    /// Whether the one call that was allowed is there.
    fn has_called_enough(&self) -> bool {
        !self.request.parallel_tool_calls
            && self.writer.between_items()
            && !self.writer.required_input().is_empty()
    }

    fn stop(&self, generation: &Generation) {
        // An engine that is down has stopped by itself, and the generation tells so.
        let _ = self.model.engine.cancel(generation.sequence());
    }
}

/// The next thing the engine tells, once there is room for what it will be made into.
async fn next_event(pen: &Pen, generation: &Generation) -> Option<Told> {
    pen.room().await;
    generation.next_told().await
}
