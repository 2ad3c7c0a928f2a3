//! What was said before a request: from the connection's memory, or from the store.

use crate::items::Items;
use crate::limits::CHAIN_RESPONSES_MAX;
use crate::model::Model;
use crate::prompt::Conversation;
use crate::server::{Memory, Server};
use crate::store::{Kept, Store, unreadable};
use flint_engine::message::Tenant;
use flint_wire::{ApiError, Item, Meaning, Previous, Request, Tools};
use serde_json::Value;
use std::sync::Arc;

/// The items before a request's own.
#[derive(Debug, Default)]
pub struct History {
    pub items: Items,
    pub linked: bool, // the store can find them again
}

impl Server {
    /// What a request follows. Reads the store: it may block.
    pub fn history(
        &self,
        request: &Request,
        tenant: Tenant,
        memory: Option<&Memory>,
    ) -> Result<History, ApiError> {
        let Previous::Response(id) = &request.previous else {
            return Ok(History { items: Items::default(), linked: true });
        };
        if let Some(found) = memory.and_then(|memory| memory.find(id)).filter(|found| found.tenant == tenant)
        {
            return Ok(History { items: found.items, linked: found.stored });
        }
        let items = chain(&*self.archive.store, id, tenant)?.into();
        Ok(History { items, linked: true })
    }
}

/// The whole conversation that a request goes on with, after what was said `before`. It takes the request's input.
pub fn conversation(model: &Model, request: &mut Request, before: Items) -> Result<Conversation, ApiError> {
    let mut tools = Tools::default();
    for item in before.declaring() {
        if let Meaning::AdditionalTools { tools: more } = &item.meaning {
            tools.join(more)?;
        }
    }
    tools.join(&request.tools)?;
    let mut items = before;
    items.extend(std::mem::take(&mut request.input).into_iter().map(|mut item| {
        if let Meaning::AdditionalTools { tools } = &mut item.meaning {
            model.hold_once(&mut tools.known);
        }
        Arc::new(item)
    }));
    Ok(Conversation {
        instructions: request.instructions.clone(),
        tools: model.toolbook(tools.known),
        items,
        effort: request.effort.clone(),
        raw: request.raw.clone(),
    })
}

/// The items of a stored conversation, up to and with this response.
pub fn chain(store: &dyn Store, id: &str, tenant: Tenant) -> Result<Vec<Arc<Item>>, ApiError> {
    let mut links: Vec<Kept> = Vec::new();
    let mut next = Some(id.to_owned());
    while let Some(id) = next.take() {
        let kept = store.kept(&id, tenant).map_err(unreadable)?.ok_or_else(|| unknown(&id))?;
        if !kept.status.is_final() {
            return Err(unfinished(&id));
        }
        if kept.history.is_none() {
            next = kept.previous.clone();
        }
        links.push(kept);
        if links.len() > CHAIN_RESPONSES_MAX {
            let problem =
                format!("the conversation has more than {CHAIN_RESPONSES_MAX} responses: start anew");
            return Err(ApiError::invalid("previous_response_id", problem));
        }
    }
    Ok(links.iter().rev().flat_map(said).collect())
}

/// What one response added to its conversation.
fn said(kept: &Kept) -> impl Iterator<Item = Arc<Item>> {
    let response: Value = serde_json::from_str(&kept.response).unwrap_or_default();
    let output = response.get("output").cloned().unwrap_or_default();
    let before = kept.history.as_deref().map(items).unwrap_or_default();
    before.into_iter().chain(items(&kept.input)).chain(parse(&output))
}

/// Items that were stored as JSON.
pub fn items(json: &str) -> Vec<Arc<Item>> {
    parse(&serde_json::from_str(json).unwrap_or_default())
}

fn parse(json: &Value) -> Vec<Arc<Item>> {
    let all = json.as_array().into_iter().flatten();
    all.filter_map(|item| Item::parse("input", item).ok()).map(Arc::new).collect()
}

fn unknown(id: &str) -> ApiError {
    let message = format!("the response `{id}` is not known: send the whole input instead");
    ApiError {
        param: Some("previous_response_id".into()),
        status: 400,
        ..ApiError::not_found("previous_response_not_found", message)
    }
}

fn unfinished(id: &str) -> ApiError {
    let message = format!("the response `{id}` is still being made: wait for its end, or cancel it");
    ApiError {
        param: Some("previous_response_id".into()),
        ..ApiError::conflict("previous_response_not_finished", message)
    }
}
