//! Who is let in, who waits, and who is told to come back later. It is decided before any work is done.

mod floor;
mod limits;
mod meter;
mod pool;

pub use floor::{Floor, Refusal, Standing, Why};
pub use limits::{Limits, Rule};
pub use meter::Level;
pub use pool::Entry;

use crate::keys::Holder;
use crate::limits::{BYTES_A_TOKEN_ESTIMATE, OUTPUT_TOKENS_ESTIMATE};
use flint_engine::message::Tenant;
use flint_wire::{ApiError, Meaning, Part, Request, Tier};
use serde::Deserialize;

/// Who waits for a turn: an editor at the next key, a person, or nobody. The order is that of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Keystroke,
    Interactive,
    Background,
}

impl Class {
    pub const ALL: [Class; 3] = [Class::Keystroke, Class::Interactive, Class::Background];

    pub fn of(request: &Request) -> Class {
        let fills_a_hole = request.raw.as_ref().is_some_and(|raw| raw.suffix.is_some());
        match (request.background, request.tier) {
            (true, _) | (_, Tier::Flex) => Class::Background,
            (false, Tier::Default | Tier::Priority) if fills_a_hole => Class::Keystroke,
            (false, Tier::Default | Tier::Priority) => Class::Interactive,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Class::Keystroke => "keystroke",
            Class::Interactive => "interactive",
            Class::Background => "background",
        }
    }
}

/// What a turn asks for.
#[derive(Debug, Clone)]
pub struct Ask {
    pub holder: Holder,
    pub model: String,
    pub class: Class,
    pub ahead: bool, // of others of its class, for a higher price
    pub tokens: u64, // that it may use, about
}

impl Ask {
    pub fn new(holder: Holder, model: &str, request: &Request) -> Ask {
        Ask {
            holder,
            model: model.to_owned(),
            class: Class::of(request),
            ahead: request.tier == Tier::Priority,
            tokens: estimate(request),
        }
    }

    fn account(&self) -> (Tenant, String, Class) {
        (self.holder.tenant, self.model.clone(), self.class)
    }
}

/// Tokens that a request may take, without looking at it closely: what it really took is settled when it ends.
fn estimate(request: &Request) -> u64 {
    let of_parts = |parts: &[Part]| {
        let bytes = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Image | Part::File | Part::Audio => 0,
        };
        parts.iter().map(bytes).sum::<usize>()
    };
    let of_item = |meaning: &Meaning| match meaning {
        Meaning::Message { parts, .. } | Meaning::CallOutput { parts, .. } => of_parts(parts),
        Meaning::Call { arguments, .. } => arguments.len(),
        Meaning::Reasoning { text } => text.len(),
        Meaning::Compaction { content } => content.len(),
        Meaning::AdditionalTools { .. } | Meaning::CompactionTrigger | Meaning::Other { .. } => 0,
    };
    let items = request.input.iter().map(|item| of_item(&item.meaning)).sum::<usize>();
    let raw = request.raw.as_ref().map_or(0, |raw| raw.prompt.len());
    let instructions = request.instructions.as_ref().map_or(0, String::len);
    let input = (items + raw + instructions) / BYTES_A_TOKEN_ESTIMATE;
    let output = request.max_output_tokens.map_or(OUTPUT_TOKENS_ESTIMATE, u64::from);
    input as u64 + output.min(OUTPUT_TOKENS_ESTIMATE)
}

impl Refusal {
    pub fn error(&self, ask: &Ask) -> ApiError {
        let (model, class) = (&ask.model, ask.class.name());
        let what = match self.why {
            Why::Requests { a_minute } => format!("{a_minute} requests a minute"),
            Why::Tokens { a_minute } => format!("{a_minute} tokens a minute"),
            Why::Turns { max } => format!("{max} turns at the same time"),
            Why::QueueFull { waiting } => {
                let message = format!("{model} is busy, and {waiting} {class} turns wait already");
                return ApiError { code: "queue_full", ..ApiError::limited(message, self.wait_s) };
            }
        };
        let message =
            format!("this key may have {what} with {model} ({class}): try again in {} s", self.wait_s);
        ApiError::limited(message, self.wait_s)
    }
}
