//! What requests were held to lately: clients send the same tools with every turn.

use crate::grammar::{Held, held};
use crate::limits::HOLDS_MAX;
use crate::model::Model;
use crate::prompt::Conversation;
use crate::recent::Recent;
use crate::toolbook::Toolbook;
use flint_wire::{ApiError, Choice, Format, Request};
use serde_json::Value;

#[derive(Debug)]
pub struct Holds {
    recent: Recent<Asked, Held>,
}

/// Everything that decides what a request is held to.
#[derive(Debug, PartialEq)]
struct Asked {
    tools: Toolbook,
    untold: Vec<Option<Value>>,
    choice: Choice,
    format: Format,
    compaction: bool,
}

impl Default for Holds {
    fn default() -> Holds {
        Holds { recent: Recent::new(HOLDS_MAX) }
    }
}

impl Holds {
    pub fn of(
        &self,
        model: &Model,
        request: &Request,
        conversation: &Conversation,
    ) -> Result<Held, ApiError> {
        let asked = Asked {
            untold: conversation.tools.untold(),
            tools: conversation.tools.clone(),
            choice: request.tool_choice.clone(),
            format: request.format.clone(),
            compaction: conversation.is_compaction(),
        };
        self.recent.get(asked, |_| held(model, request, conversation))
    }
}
