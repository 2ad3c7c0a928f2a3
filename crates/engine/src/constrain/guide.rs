//! One generation's place in its grammar.

use super::compile::Draft;
use super::error::{BadConstraint, words};
use llguidance::api::StopReason;
use llguidance::toktrie::{SimpleVob, TokEnv, TokTrie};
use llguidance::{TokenParser, panic_utils};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// Follows a sequence token by token. What it allows depends on the grammar and the generated tokens alone.
pub struct Guide {
    draft: Arc<Draft>,
    parser: Option<TokenParser>, // once the first mask was wanted
    next: usize,                 // position of the first token that the parser has not seen
}

/// What may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// Some tokens.
    Some,
    /// Nothing: the grammar is at its end.
    End,
}

/// Tokens that may come: a bit for each.
pub struct Mask(SimpleVob);

impl Mask {
    pub fn words(&self) -> &[u32] {
        self.0.as_slice()
    }

    pub fn allows(&self, token: u32) -> bool {
        (token as usize) < self.0.len() && self.0.is_allowed(token)
    }
}

impl Guide {
    pub(super) fn new(draft: Arc<Draft>, begin: usize) -> Guide {
        Guide { draft, parser: None, next: begin }
    }

    /// The same grammar from its beginning, for a generation whose first token has the position `begin`.
    pub fn restart(self, begin: usize) -> Guide {
        Guide::new(self.draft, begin)
    }

    /// Whether the next mask can be had at once.
    pub fn is_ready(&self) -> bool {
        self.parser.is_some() || self.draft.is_ready()
    }

    /// Waits until it is, but not longer than this.
    pub fn wait(&self, limit: Duration) {
        self.draft.wait(limit);
    }

    /// The tokens that the grammar allows after `tokens`; none when it is at its end. Any of the `stops` is allowed where
    /// the grammar may end, and nowhere else.
    pub fn mask(&mut self, tokens: &[u32], stops: &[u32]) -> Result<Option<Mask>, BadConstraint> {
        if self.advance(tokens)? == Allowed::End {
            return Ok(None);
        }
        let parser = self.parser()?;
        let Some(mut mask) = guarded(|| allowed(parser))? else { return Ok(None) };
        guarded(|| allow_stops(parser, stops, &mut mask))?;
        if mask.is_zero() {
            return Err(BadConstraint::refused("a stop token would end it before its end"));
        }
        Ok(Some(Mask(mask)))
    }

    /// Whether the grammar allows this one token after `tokens`, which takes far less than a mask. Where it may not go on, and
    /// of `stops`, it says no: a mask tells what comes then.
    pub fn allows(&mut self, tokens: &[u32], stops: &[u32], token: u32) -> Result<bool, BadConstraint> {
        if stops.contains(&token) || self.advance(tokens)? == Allowed::End {
            return Ok(false);
        }
        let parser = self.parser()?;
        let known = (token as usize) < parser.token_env.tok_trie().vocab_size();
        guarded(|| Ok(known && parser.validate_token(token)?))
    }

    /// Hears of the tokens that have come since. Says whether the grammar is at its end.
    pub fn advance(&mut self, tokens: &[u32]) -> Result<Allowed, BadConstraint> {
        let fresh = tokens.get(self.next..).unwrap_or_default();
        let parser = self.parser()?;
        let ended = guarded(|| {
            anyhow::ensure!(parser.stop_reason().is_ok(), "{}", parser.stop_reason());
            if parser.stopped() || (fresh.is_empty() && parser.check_stop()?) {
                return Ok(true);
            }
            for &token in fresh {
                parser.consume_token(token)?;
                if parser.check_stop()? {
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        self.next = tokens.len();
        Ok(if ended { Allowed::End } else { Allowed::Some })
    }

    /// What the grammar allows only one text for, as tokens. A guess: the model may cut that text otherwise.
    /// Empty where nothing is known yet.
    pub fn forced(&self, tokens: &[u32]) -> Vec<u32> {
        let Some(parser) = self.parser.as_ref().filter(|_| self.next == tokens.len()) else {
            return Vec::new();
        };
        // On a copy: once bytes are forced, the masks are those of what follows them.
        let forced = guarded(|| Ok(spelled(&parser.token_env, &parser.clone().force_bytes())));
        forced.unwrap_or_default()
    }

    fn parser(&mut self) -> Result<&mut TokenParser, BadConstraint> {
        match &mut self.parser {
            Some(parser) => Ok(parser),
            none => Ok(none.insert(self.draft.parser()?)),
        }
    }
}

/// The tokens that the grammar allows; none when it can only end.
fn allowed(parser: &mut TokenParser) -> anyhow::Result<Option<SimpleVob>> {
    let ends = parser.is_accepting();
    match parser.compute_mask() {
        Ok(mask) => Ok(Some(mask)),
        Err(_) if ends && parser.stop_reason() == StopReason::NoExtensionBias => Ok(None),
        Err(error) => Err(error),
    }
}

/// A stop token that the grammar itself wants here, as its last word, is one that ends it too.
fn allow_stops(parser: &mut TokenParser, stops: &[u32], mask: &mut SimpleVob) -> anyhow::Result<()> {
    let (ends, count) = (parser.is_accepting(), mask.len());
    for &stop in stops.iter().filter(|&&stop| (stop as usize) < count) {
        let last = !ends && mask.is_allowed(stop) && {
            let mut after = parser.clone();
            after.consume_token(stop)?;
            after.is_accepting()
        };
        mask.set(stop as usize, ends || last);
    }
    Ok(())
}

/// Bytes as tokens. A special token is written as a mark and its id in brackets.
fn spelled(env: &TokEnv, bytes: &[u8]) -> Vec<u32> {
    let mut parts = bytes.split(|&byte| byte == TokTrie::SPECIAL_TOKEN_MARKER);
    let mut tokens = env.tokenize_bytes(parts.next().unwrap_or_default());
    for part in parts {
        let Some((id, text)) = special(part) else { break };
        tokens.push(id);
        tokens.extend(env.tokenize_bytes(text));
    }
    tokens
}

/// The id in brackets, and what follows.
fn special(part: &[u8]) -> Option<(u32, &[u8])> {
    let close = part.iter().position(|&byte| byte == b']')?;
    let id = std::str::from_utf8(part.get(1..close)?).ok()?.parse().ok()?;
    Some((id, &part[close + 1..]))
}

/// A panic of llguidance's costs one generation, not the worker.
fn guarded<T>(work: impl FnOnce() -> anyhow::Result<T>) -> Result<T, BadConstraint> {
    panic_utils::catch_unwind(AssertUnwindSafe(work)).map_err(|error| BadConstraint::TooComplex(words(error)))
}
