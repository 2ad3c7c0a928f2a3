//! From a conversation to what the engine is asked: which sequence, and which tokens are new to it.

use crate::model::Model;
use crate::prompt::{self, Conversation, Known};
use crate::sessions::{Fingerprints, Session};
use flint_engine::message::{Base, Tenant};
use flint_wire::ApiError;
use std::sync::Arc;

pub struct Prepared {
    pub session: Session, // its tokens are still those before this turn
    pub base: Base,
    pub tokens: Vec<u32>, // all of the prompt
    pub prints: Fingerprints,
}

impl Prepared {
    /// The tokens that the engine does not have yet, as `base` counts them.
    pub fn new_tokens(&self) -> &[u32] {
        let held = match self.base {
            Base::New | Base::Rewrite => 0,
            Base::Extend => self.session.tokens.len(),
            Base::Fork { at, .. } => at as usize,
        };
        &self.tokens[held..]
    }
}

/// Who asks, and by which key they find their session again.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    pub tenant: Tenant,
    pub key: Option<&'a str>,
}

/// Renders, tokenizes and finds the sequence that knows most of it.
pub fn prepare(
    model: &Arc<Model>,
    conversation: &Conversation,
    owner: Owner<'_>,
    answer: bool,
) -> Result<Prepared, ApiError> {
    let prints = Fingerprints::of(conversation);
    if let Some(session) = model.sessions.take_known(owner.tenant, &prints) {
        return go_on(model, conversation, session, prints, answer);
    }
    let tokens = prompt::tokens(model, conversation, None, answer)?;
    check_length(model, &tokens)?;
    let new = model.engine.new_sequence();
    let (session, base) = model.sessions.take_alike(owner.tenant, owner.key, &tokens, new);
    let base = match base {
        Base::Rewrite => extend_or_rewrite(&session, &tokens),
        base => base,
    };
    Ok(Prepared { session, base, tokens, prints })
}

/// The same for a session that is at hand.
pub fn go_on(
    model: &Arc<Model>,
    conversation: &Conversation,
    session: Session,
    prints: Fingerprints,
    answer: bool,
) -> Result<Prepared, ApiError> {
    let known = session.answered.then_some(Known { items: session.items, tokens: &session.tokens });
    let tokens = prompt::tokens(model, conversation, known, answer)
        .and_then(|tokens| check_length(model, &tokens).map(|()| tokens));
    match tokens {
        Ok(tokens) => {
            let base = extend_or_rewrite(&session, &tokens);
            Ok(Prepared { session, base, tokens, prints })
        }
        Err(error) => {
            model.rest(session);
            Err(error)
        }
    }
}

fn extend_or_rewrite(session: &Session, tokens: &[u32]) -> Base {
    match tokens.starts_with(&session.tokens) {
        true => Base::Extend,
        false => Base::Rewrite,
    }
}

fn check_length(model: &Model, tokens: &[u32]) -> Result<(), ApiError> {
    let (len, context) = (tokens.len(), model.context());
    match len < context as usize {
        true => Ok(()),
        false => {
            let problem =
                format!("the input has {len} tokens, {} has room for {context}: shorten it", model.name);
            Err(ApiError {
                param: Some("input".into()),
                ..ApiError::bad_request("context_length_exceeded", problem)
            })
        }
    }
}
