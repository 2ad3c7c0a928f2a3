//! From a conversation to what the engine is asked: which sequence, and which tokens are new to it.

use crate::model::Model;
use crate::prompt::{self, Conversation};
use crate::sessions::{Fingerprints, Session};
use flint_engine::message::{Base, Tenant};
use flint_wire::ApiError;
use std::sync::Arc;

pub struct Prepared {
    pub session: Session, // as it was before this turn; without its tokens if these are extended
    pub base: Base,
    pub tokens: Vec<u32>, // all of the prompt
    pub held: usize,      // of these, that the engine is not sent: `base` says where it has them from
    pub prints: Fingerprints,
}

impl Prepared {
    /// A prompt for a session that knows nothing of it but what `base` says.
    pub fn new(session: Session, base: Base, tokens: Vec<u32>, prints: Fingerprints) -> Prepared {
        let held = match base {
            Base::New | Base::Rewrite | Base::Extend => 0,
            Base::Fork { at, .. } => at as usize,
        };
        Prepared { session, base, tokens, held, prints }
    }

    /// A prompt whose first `held` tokens were the session's.
    fn extended(session: Session, tokens: Vec<u32>, held: usize, prints: Fingerprints) -> Prepared {
        let session = Session { tokens: Vec::new(), ..session };
        Prepared { session, base: Base::Extend, tokens, held, prints }
    }

    /// A prompt that may begin with the session's tokens.
    fn compared(session: Session, tokens: Vec<u32>, prints: Fingerprints) -> Prepared {
        let held = session.tokens.len();
        match tokens.starts_with(&session.tokens) {
            true => Prepared::extended(session, tokens, held, prints),
            false => Prepared::new(session, Base::Rewrite, tokens, prints),
        }
    }

    /// The tokens that the engine does not have yet, as `base` counts them.
    pub fn new_tokens(&self) -> &[u32] {
        &self.tokens[self.held..]
    }

    /// The session as it was: the turn comes to nothing.
    pub fn given_up(mut self) -> Session {
        match self.base {
            Base::Extend => {
                self.tokens.truncate(self.held);
                Session { tokens: self.tokens, ..self.session }
            }
            Base::New | Base::Rewrite | Base::Fork { .. } => self.session,
        }
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
    let tokens = prompt::tokens(model, conversation, answer)?;
    check_length(model, &tokens)?;
    let new = model.engine.new_sequence();
    let (session, base) = model.sessions.take_alike(owner.tenant, owner.key, &tokens, new);
    Ok(match base {
        Base::Rewrite => Prepared::compared(session, tokens, prints),
        base => Prepared::new(session, base, tokens, prints),
    })
}

/// The same for a session that is at hand.
pub fn go_on(
    model: &Arc<Model>,
    conversation: &Conversation,
    mut session: Session,
    prints: Fingerprints,
    answer: bool,
) -> Result<Prepared, ApiError> {
    let held = session.tokens.len();
    match extend(model, conversation, &mut session, answer) {
        Ok(None) => {
            let tokens = std::mem::take(&mut session.tokens);
            Ok(Prepared::extended(session, tokens, held, prints))
        }
        Ok(Some(tokens)) => Ok(Prepared::compared(session, tokens, prints)),
        Err(error) => {
            session.tokens.truncate(held);
            model.rest(session);
            Err(error)
        }
    }
}

/// Appends what is new to the session's tokens; where that cannot be done, all tokens anew.
fn extend(
    model: &Model,
    conversation: &Conversation,
    session: &mut Session,
    answer: bool,
) -> Result<Option<Vec<u32>>, ApiError> {
    if session.answered && prompt::append(model, conversation, session.items, answer, &mut session.tokens)? {
        return check_length(model, &session.tokens).map(|()| None);
    }
    let tokens = prompt::tokens(model, conversation, answer)?;
    check_length(model, &tokens)?;
    Ok(Some(tokens))
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
