//! Which tokens a sequence has used, kept up to date token by token, and what that costs them.

use super::Sampling;
use std::collections::HashMap;

/// The tokens of one generation. Empty, and free of cost, when no penalty is asked for.
#[derive(Default)]
pub struct Seen {
    tokens: HashMap<u32, u32>, // generated how often; 0: only in the prompt
    active: bool,
}

impl Seen {
    /// Counts a history whose first `prompt` tokens were not generated, with room to grow to `len` tokens.
    pub fn new(sampling: &Sampling, history: &[u32], prompt: usize, len: usize) -> Seen {
        if !sampling.has_penalties() {
            return Seen::default();
        }
        let mut seen = Seen { tokens: HashMap::with_capacity(len), active: true };
        let (prompt, generated) = history.split_at(prompt);
        if sampling.repetition_penalty != 1.0 {
            seen.tokens.extend(prompt.iter().map(|&token| (token, 0)));
        }
        generated.iter().for_each(|&token| seen.add(token));
        seen
    }

    /// A token was generated.
    pub fn add(&mut self, token: u32) {
        if self.active {
            *self.tokens.entry(token).or_insert(0) += 1;
        }
    }

    /// The repetition penalty falls on the prompt's tokens too; presence and frequency on generated ones.
    pub(super) fn penalize(&self, logits: &mut [f32], sampling: &Sampling) {
        for (&token, &count) in &self.tokens {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            let factor = sampling.repetition_penalty;
            *logit = if *logit > 0.0 { *logit / factor } else { *logit * factor };
            if count > 0 {
                *logit -= sampling.presence_penalty + sampling.frequency_penalty * count as f32;
            }
        }
    }
}
