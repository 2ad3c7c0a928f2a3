//! From logits to a token, in place and without allocation.
//!
//! The order is fixed: what the constraint forbids, repetition, presence and frequency penalties, logit bias (all
//! of which change the logits where they are: `change`), temperature, top-k, top-p, min-p, draw. Temperature 0 takes
//! the best token (the lowest id of equals) right after the bias.

mod change;
mod exp;
mod filter;
mod largest;
mod logprob;
mod random;
mod weights;

use crate::limits::{LOGIT_BIAS_MAX, TOP_LOGPROBS_MAX};
use crate::message::TokenLogprob;
use crate::runner::Runner;
pub use change::{Change, Shift, Shifts};
use filter::Candidate;
pub use largest::{Largest, largest};
use serde::{Deserialize, Serialize};
pub use weights::{CHUNK, Chunk, weight_of};

/// Temperatures below this are 0: dividing by them leaves one token anyway, or overflows.
const GREEDY_BELOW: f32 = 1e-4;

/// Chunks of logits that are brought one by one; of more, all are.
const WANTED_CHUNKS_MAX: usize = 256;

/// How a token is chosen. The default is greedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    pub temperature: f32,        // 0: greedy
    pub top_k: u32,              // 0: off
    pub top_p: f32,              // 1: off
    pub min_p: f32,              // 0: off
    pub repetition_penalty: f32, // 1: off
    pub presence_penalty: f32,   // 0: off
    pub frequency_penalty: f32,  // 0: off
    pub bias: Vec<(u32, f32)>,   // (token, added to its logit)
    pub seed: u64,
    pub logprobs: Option<u8>, // tell the chosen token's log-probability, and this many of the best
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            bias: Vec::new(),
            seed: 0,
            logprobs: None,
        }
    }
}

/// A setting outside its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[error("{field} is {value}, it must be {expected}")]
pub struct BadSampling {
    pub field: String,
    pub value: f64,
    pub expected: String,
}

/// Logits from which no token can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum BadLogits {
    #[error("the model computed a logit that is not a number: the weights or the device are faulty")]
    NotANumber,
    #[error("the model computed an infinite logit: the weights or the device are faulty")]
    Infinite,
    #[error("no token is allowed here: every logit is minus infinity")]
    NoneAllowed,
}

impl Sampling {
    pub fn validate(&self) -> Result<(), BadSampling> {
        in_range("temperature", self.temperature, 0.0, 100.0)?;
        in_range("top_p", self.top_p, 0.0, 1.0)?;
        in_range("min_p", self.min_p, 0.0, 1.0)?;
        in_range("repetition_penalty", self.repetition_penalty, 0.01, 100.0)?;
        in_range("presence_penalty", self.presence_penalty, -100.0, 100.0)?;
        in_range("frequency_penalty", self.frequency_penalty, -100.0, 100.0)?;
        at_most("the count of biased tokens", self.bias.len(), LOGIT_BIAS_MAX)?;
        at_most("logprobs", self.logprobs.unwrap_or(0) as usize, TOP_LOGPROBS_MAX)?;
        self.bias.iter().try_for_each(|&(_, bias)| in_range("a logit bias", bias, -1000.0, 1000.0))
    }

    /// The token of the largest logit is taken, whatever the others are.
    pub fn takes_best(&self) -> bool {
        self.is_greedy() && !self.has_penalties() && self.bias.is_empty() && self.logprobs.is_none()
    }

    fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_BELOW
    }

    fn cuts(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0
    }

    fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}

fn in_range(field: &str, value: f32, min: f32, max: f32) -> Result<(), BadSampling> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err(BadSampling {
            field: field.to_owned(),
            value: value.into(),
            expected: format!("from {min} to {max}"),
        }),
    }
}

fn at_most(field: &str, value: usize, max: usize) -> Result<(), BadSampling> {
    match value <= max {
        true => Ok(()),
        false => Err(BadSampling {
            field: field.to_owned(),
            value: value as f64,
            expected: format!("at most {max}"),
        }),
    }
}

/// Scratch for one token at a time.
pub struct Sampler {
    chunks: Vec<Chunk>,         // (vocab / CHUNK)
    maxima: Vec<f32>,           // (vocab / CHUNK)
    candidates: Vec<Candidate>, // (up to vocab)
    wanted: Vec<u32>,           // (up to WANTED_CHUNKS_MAX) chunks
    raw: Vec<f32>,              // (vocab) the logits that log-probabilities are told of
    log_sum: f32,               // of all their e^logit
    top: Vec<TokenLogprob>,     // (up to TOP_LOGPROBS_MAX) of the last token
}

impl Sampler {
    pub fn new(vocab: usize) -> Sampler {
        let chunks = vocab.div_ceil(CHUNK);
        Sampler {
            chunks: Vec::with_capacity(chunks),
            maxima: Vec::with_capacity(chunks),
            candidates: Vec::with_capacity(vocab),
            wanted: Vec::with_capacity(WANTED_CHUNKS_MAX),
            raw: Vec::with_capacity(vocab),
            log_sum: 0.0,
            top: Vec::with_capacity(TOP_LOGPROBS_MAX),
        }
    }

    /// Chooses the token for `position` of a sequence by the `index`-th logits, as they were changed: by what the runner tells
    /// of them, if it does and that is enough, or by all of them, which are used up then.
    pub fn choose(
        &mut self,
        runner: &mut dyn Runner,
        index: usize,
        sampling: &Sampling,
        position: usize,
    ) -> Result<u32, BadLogits> {
        let share = random::uniform(sampling.seed, position);
        let told = match sampling.is_greedy() {
            true => runner.best(index),
            false => self.draw_told(runner, index, sampling, share),
        };
        match told {
            Some(token) => Ok(token),
            None => self.choose_by(runner.logits(index), sampling, share),
        }
    }

    /// Draws by what the runner tells of the logits.
    fn draw_told(
        &mut self,
        runner: &mut dyn Runner,
        index: usize,
        sampling: &Sampling,
        share: f64,
    ) -> Option<u32> {
        let scale = 1.0 / sampling.temperature;
        let best = runner.weigh(index, scale, &mut self.chunks)?;
        self.want(sampling, share, runner.facts().vocab)?;
        let weights = runner.chunks_of_logits(index, &self.wanted);
        self.wanted.iter().for_each(|&chunk| weights::weigh_part(chunk as usize, weights, best, scale));
        self.draw(weights, sampling, share)
    }

    fn choose_by(&mut self, logits: &mut [f32], sampling: &Sampling, share: f64) -> Result<u32, BadLogits> {
        let best = checked_largest(logits)?;
        if sampling.is_greedy() {
            return Ok(best.place as u32);
        }
        weights::weigh(logits, best.value, 1.0 / sampling.temperature, &mut self.chunks);
        self.draw(logits, sampling, share).ok_or(BadLogits::NoneAllowed)
    }

    /// Finds the chunks whose weights decide, if they are few.
    fn want(&mut self, sampling: &Sampling, share: f64, vocab: usize) -> Option<()> {
        self.wanted.clear();
        if !sampling.cuts() {
            self.wanted.push(weights::find(&self.chunks, share)?.0 as u32);
            return Some(());
        }
        let least = self.least(sampling, vocab);
        let wanted = filter::wanted(&self.chunks, least).take(WANTED_CHUNKS_MAX + 1);
        let few = wanted.clone().count() <= WANTED_CHUNKS_MAX;
        self.wanted.extend(wanted.map(|chunk| chunk as u32));
        few.then_some(())
    }

    /// The most likely tokens beside the last chosen one; empty when none were asked for.
    pub fn top(&self, sampling: &Sampling) -> &[TokenLogprob] {
        if sampling.logprobs.is_some() { &self.top } else { &[] }
    }

    /// Keeps the logits that log-probabilities are told of, `count` of the best beside the chosen one's.
    pub fn remember(&mut self, logits: &[f32], count: u8) -> Result<(), BadLogits> {
        self.log_sum = weights::log_sum_exp(logits, checked_largest(logits)?.value);
        self.raw.clear();
        self.raw.extend_from_slice(logits);
        logprob::most_likely(logits, self.log_sum, count.into(), &mut self.top);
        Ok(())
    }

    /// A token's log-probability by the remembered logits.
    pub fn logprob(&self, token: u32) -> Option<f32> {
        self.raw.get(token as usize).map(|logit| logit - self.log_sum)
    }

    /// The token at `share` of what the settings leave.
    fn draw(&mut self, weights: &[f32], sampling: &Sampling, share: f64) -> Option<u32> {
        if !sampling.cuts() {
            return weights::draw(weights, &self.chunks, share);
        }
        self.cut(weights, sampling);
        filter::draw(&self.candidates, share)
    }

    /// A weight that every token has that top-k, top-p and min-p leave.
    fn least(&mut self, sampling: &Sampling, vocab: usize) -> f32 {
        let Sampling { top_k, top_p, min_p, .. } = *sampling;
        match (top_k, top_p < 1.0) {
            (0, false) => min_p,
            (0, true) => filter::least_of_top_p(top_p, weights::total(&self.chunks), vocab),
            (k, _) => filter::least_of_top_k(&self.chunks, k as usize, &mut self.maxima),
        }
    }

    /// Leaves those that top-k, top-p and min-p allow as candidates.
    fn cut(&mut self, weights: &[f32], sampling: &Sampling) {
        let least = self.least(sampling, weights.len());
        let Sampler { chunks, candidates, .. } = self;
        let Sampling { top_k, top_p, min_p, .. } = *sampling;
        filter::gather(weights, chunks, least, candidates);
        if top_k > 0 {
            filter::top_k(top_k as usize, candidates);
        }
        if top_p < 1.0 {
            let total = if top_k > 0 { filter::total(candidates) } else { weights::total(chunks) };
            filter::top_p(f64::from(top_p) * total, candidates);
        }
        candidates.retain(|candidate| candidate.weight >= min_p);
    }
}

/// The largest logit and its token, once it is sure that they make sense.
fn checked_largest(logits: &[f32]) -> Result<Largest, BadLogits> {
    let largest = largest(logits);
    match largest.value {
        _ if largest.nan => Err(BadLogits::NotANumber),
        f32::INFINITY => Err(BadLogits::Infinite),
        f32::NEG_INFINITY => Err(BadLogits::NoneAllowed),
        _ => Ok(largest),
    }
}

/// The token with the largest logit, the lowest of equals; none if no token can be chosen by them.
pub fn likeliest(logits: &[f32]) -> Option<u32> {
    checked_largest(logits).ok().map(|largest| largest.place as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::runner::{RunnerError, RunnerFacts};

    const VOCAB: usize = 5003;

    /// Tells of its logits as a device would, and hands out no chunk that was not asked for.
    struct Telling(Vec<f32>, Vec<f32>);

    impl Runner for Telling {
        fn facts(&self) -> RunnerFacts {
            RunnerFacts { vocab: VOCAB, context: 1, kv_blocks: 1 }
        }

        fn forward(&mut self, _: &Batch) -> Result<(), RunnerError> {
            Ok(())
        }

        fn logits(&mut self, _: usize) -> &mut [f32] {
            &mut self.0
        }

        fn weigh(&mut self, _: usize, scale: f32, chunks: &mut Vec<Chunk>) -> Option<f32> {
            let best = checked_largest(&self.0).ok()?.value;
            weights::weigh(&mut self.0.clone(), best, scale, chunks);
            Some(best)
        }

        fn chunks_of_logits(&mut self, _: usize, wanted: &[u32]) -> &mut [f32] {
            self.1 = vec![f32::NAN; VOCAB];
            for at in wanted.iter().flat_map(|&chunk| chunk as usize * CHUNK..(chunk as usize + 1) * CHUNK) {
                self.1.iter_mut().zip(&self.0).skip(at).take(1).for_each(|(to, from)| *to = *from);
            }
            &mut self.1
        }

        fn copy_block(&mut self, _: u32, _: u32) {}
    }

    #[test]
    fn what_is_told_of_logits_gives_the_same_tokens_as_the_logits() {
        let plain = Sampling { temperature: 1.0, ..Sampling::default() };
        let settings = [
            plain.clone(),
            Sampling { temperature: 0.4, top_p: 0.9, ..plain.clone() },
            Sampling { top_k: 30, ..plain.clone() },
            Sampling { top_k: 50, top_p: 0.7, min_p: 0.01, ..plain.clone() },
            Sampling { min_p: 0.05, ..plain },
        ];
        let mut sampler = Sampler::new(VOCAB);
        for (sampling, spread) in settings.iter().flat_map(|sampling| [(sampling, 2.0), (sampling, 12.0)]) {
            let logit = |token: usize| (random::uniform(9, token) as f32 - 0.5) * spread;
            let mut runner = Telling((0..VOCAB).map(logit).collect(), Vec::new());
            let mut told = 0;
            for seed in 0..100 {
                let sampling = Sampling { seed, ..sampling.clone() };
                let share = random::uniform(seed, 3);
                let Some(token) = sampler.draw_told(&mut runner, 0, &sampling, share) else { continue };
                let want = sampler.choose_by(&mut runner.0.clone(), &sampling, share);
                assert_eq!(Ok(token), want, "{sampling:?}");
                told += 1;
            }
            assert_eq!(told, 100, "{sampling:?}");
        }
    }
}
