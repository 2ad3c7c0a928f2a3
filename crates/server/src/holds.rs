//! What requests were held to lately: clients send the same tools with every turn.

use crate::grammar::{Held, held};
use crate::limits::HOLDS_MAX;
use crate::model::Model;
use crate::prompt::Conversation;
use crate::toolbook::Toolbook;
use flint_wire::{ApiError, Choice, Format, Request};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub struct Holds {
    recent: Mutex<VecDeque<(Asked, Held)>>,
}

/// Everything that decides what a request is held to.
#[derive(Debug, PartialEq)]
struct Asked {
    tools: Toolbook,
    choice: Choice,
    format: Format,
    compaction: bool,
}

impl Holds {
    pub fn of(
        &self,
        model: &Model,
        request: &Request,
        conversation: &Conversation,
    ) -> Result<Held, ApiError> {
        let asked = Asked {
            tools: conversation.tools.clone(),
            choice: request.tool_choice.clone(),
            format: request.format.clone(),
            compaction: conversation.is_compaction(),
        };
        let known = self.lock().iter().find(|(known, _)| *known == asked).map(|(_, held)| held.clone());
        if let Some(held) = known {
            return Ok(held);
        }
        let held = held(model, request, conversation)?;
        let mut recent = self.lock();
        recent.push_back((asked, held.clone()));
        let surplus = recent.len().saturating_sub(HOLDS_MAX);
        recent.drain(..surplus);
        Ok(held)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Asked, Held)>> {
        // A panic elsewhere leaves the list whole.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
