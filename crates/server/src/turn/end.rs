//! The end of a response, and what becomes of its sequence.

use super::follow::{Ended, How};
use super::{Leg, Past, Running, Succession, Turn, now, writer};
use crate::prepare::{Prepared, go_on};
use crate::server::Remembered;
use crate::sessions::{Fingerprints, Session};
use crate::store::{Ending, Entry, Pen};
use crate::truth::{self, Timing};
use flint_engine::message::{Break, Counts, FinishReason};
use flint_text::parse::Format;
use flint_wire::{ApiError, Incomplete, Item, Response, Status, Usage};
use std::sync::Arc;
use std::time::Instant;

impl Turn {
    /// Ends the response, and leaves its sequence to who comes next.
    pub(super) fn finish(&mut self, prepared: Prepared, ended: Ended) -> Leg {
        let Ended { how, counts, broke, tokens, done, surplus, reasoning } = ended;
        let asked = self.conversation.items.len();
        self.account(prepared.tokens.len() as u32, counts, broke, reasoning);
        let mut steered = None;
        match how {
            How::Finished(FinishReason::Length | FinishReason::Context) => {
                self.end(Status::Incomplete, Some(Incomplete::MaxOutputTokens));
            }
            How::Finished(FinishReason::Stop) | How::StopString => self.end(Status::Completed, None),
            How::Finished(FinishReason::Cancelled) | How::Cancelled => self.end(Status::Cancelled, None),
            How::Interrupted => {
                self.writer.interrupt();
                self.close();
            }
            How::Steered(items) => {
                let successor = self.promise_successor();
                let metadata = &mut self.writer.response.metadata;
                metadata.insert("flint.successor".into(), successor.id.clone().into());
                self.write_end(Status::Incomplete, Some(Incomplete::Steered));
                self.remember();
                steered = Some((items, successor));
            }
            How::Failed(error) => {
                self.fail(&error);
                return Leg::Over(None);
            }
        }
        let session = self.settle(prepared, asked, tokens, done, surplus);
        match steered {
            None => Leg::Over(Some(session)),
            Some((items, successor)) => self.succeed(session, items, successor),
        }
    }

    /// From now on who reads this response knows that another one follows.
    fn promise_successor(&self) -> Arc<Running> {
        let (controls, store) = (self.running.controls.clone(), self.running.store.clone());
        let successor = Arc::new(Running::new(self.tenant, controls, store));
        self.running.successor.get_or_init(|| successor).clone()
    }

    /// The session after the response to the first `asked` items: its tokens say exactly what the response's items
    /// say.
    fn settle(
        &mut self,
        prepared: Prepared,
        asked: usize,
        generated: Vec<u32>,
        done: usize,
        surplus: u32,
    ) -> Session {
        let Prepared { session, mut tokens, prints, .. } = prepared;
        let strange = self.called_strangely(&generated);
        let kept = match self.writer.dropped_an_item() {
            _ if strange => &[],
            true => &generated[..done],
            false => &generated[..],
        };
        tokens.extend_from_slice(kept);
        if kept.len() < generated.len() || surplus > 0 {
            // If the engine is down it forgets the sequence, and a longer one does no harm.
            let _ = self.model.engine.truncate(session.sequence, tokens.len() as u32);
        }
        let (items, prints) = match strange {
            true => (asked, prints),
            false => (self.conversation.items.len(), prints.later(&self.conversation.items)),
        };
        Session {
            tokens,
            items,
            history: prints.whole(),
            answered: !kept.is_empty(),
            key: self.request.cache_key.clone().or(session.key),
            warming: None,
            ..session
        }
    }

    /// Whether a call is not in the tags that the template writes around it. A small model that reads its own slip
    /// repeats the call for ever: so the next turn has the call from the template.
    fn called_strangely(&self, generated: &[u32]) -> bool {
        const TAG: &str = "<tool_call>";
        let calls = self.writer.required_input().len();
        if calls == 0 || self.model.facts.format != Format::Tagged {
            return false;
        }
        let tokenizer = &self.model.text.tokenizer;
        // Most vocabularies have one token for it.
        let tag = tokenizer.control_id(TAG);
        if tag.is_some() && generated.iter().filter(|&&token| Some(token) == tag).count() >= calls {
            return false;
        }
        let written: Vec<u8> =
            generated.iter().flat_map(|&token| tokenizer.token_bytes(token)).copied().collect();
        written.windows(TAG.len()).filter(|window| *window == TAG.as_bytes()).count() < calls
    }

    /// Becomes the successor of a response that was steered.
    fn succeed(&mut self, session: Session, items: Vec<Arc<Item>>, successor: Arc<Running>) -> Leg {
        let arrived = Instant::now();
        let last = self.entry();
        let previous = std::mem::replace(&mut self.running, successor);
        self.origin = self.origin.take().map(|origin| origin.successor(self));
        self.conversation.items.extend(items);
        let prints = Fingerprints::of(&self.conversation);
        self.request.previous = flint_wire::Previous::Response(previous.id.clone());
        self.writer = writer(&self.model, &self.request, &self.conversation, &self.running, now());
        self.described = false;
        self.pen = Pen::unstored(self.running.clone(), self.server.registry.clone());
        self.past = Past::default();
        let next = go_on(&self.model, &self.conversation, session, prints, true);
        self.timing = Timing { arrived: Some(arrived), rendered: arrived.elapsed(), ..Timing::default() };
        Leg::Steered(Box::new(Succession { last, next }))
    }

    /// Makes the successor known; one that has no place in the model's context ends here.
    pub(super) async fn begin_successor(
        &mut self,
        Succession { last, next }: Succession,
    ) -> Option<Prepared> {
        // Before its name is told: who asks for it at once must find it.
        self.server.registry.started(&self.running);
        let prompt = next.as_ref().map_or(&[][..], |prepared| &prepared.tokens);
        self.enrol_successor(prompt, last).await;
        match next {
            Ok(prepared) => Some(prepared),
            Err(error) => {
                self.describe();
                self.writer.created();
                self.fail(&error);
                None
            }
        }
    }

    pub(super) fn account(&mut self, input: u32, counts: Counts, broke: Option<Break>, reasoning: u32) {
        self.running.timing.get_or_init(|| self.timing);
        let response = &mut self.writer.response;
        let usage = Usage {
            input,
            // After a restart the tokens that had been generated are prefilled too.
            cached: counts.cached.min(input),
            output: counts.generated,
            reasoning,
        };
        response.usage = Some(usage);
        if let Some(ticket) = &mut self.ticket {
            ticket.spent(&self.running.id, usage, &self.timing);
        }
        truth::add_measured(&mut response.metadata, &self.timing, counts, broke);
    }

    pub(super) fn end(&mut self, status: Status, incomplete: Option<Incomplete>) {
        self.write_end(status, incomplete);
        self.close();
    }

    fn write_end(&mut self, status: Status, incomplete: Option<Incomplete>) {
        self.writer.response.completed_at = (status == Status::Completed).then(now);
        self.writer.response.usage.get_or_insert_default();
        self.writer.end(status, incomplete);
    }

    pub(super) fn fail(&mut self, error: &ApiError) {
        if let Some(ticket) = &self.ticket {
            ticket.failed(error);
        }
        self.writer.fail(error.code, error.message.clone());
        self.close();
    }

    /// The last event goes out after everyone who may ask for more knows the response.
    pub(super) fn close(&mut self) {
        self.remember();
        self.flush();
    }

    /// The conversation has one response more.
    fn remember(&mut self) {
        self.conversation.items.extend(self.writer.items().iter().cloned());
        if let Some(on_end) = &self.on_end {
            let (items, tenant, stored) =
                (self.conversation.items.clone(), self.tenant, self.pen.is_stored());
            self.forgotten = on_end(&self.running.id, Remembered { items, tenant, stored });
        }
    }

    /// Lets go of the events that were written since the last time, as one whole.
    pub(super) fn flush(&mut self) {
        let frames = self.writer.take();
        if !frames.is_empty() {
            self.told_at = Instant::now();
        }
        let response = &self.writer.response;
        self.pen.write(frames, || ending(response));
    }

    /// The same for the last ones of a response that has a successor.
    fn entry(&mut self) -> Option<Entry> {
        let frames = self.writer.take();
        let response = &self.writer.response;
        self.pen.entry(frames, || ending(response))
    }
}

fn ending(response: &Response) -> Option<Ending> {
    let Response { status, .. } = *response;
    status.is_final().then(|| Ending { status, response: response.json() })
}
