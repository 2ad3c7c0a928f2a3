//! What one thing costs beside another, in the same engine: many rows beside one, five variants beside one, a schema
//! beside free text.

use super::{Bench, Measured, median};
use crate::error::CliError;
use flint_engine::batch::Batch;
use flint_engine::constrain::Constraint;
use flint_engine::limits::{BATCH_ROWS_MAX, KV_BLOCK_TOKENS};
use flint_engine::message::{Base, Command, Event, Generate, SequenceId};
use flint_engine::runner::{Runner, RunnerError};
use flint_engine::sample::Sampling;
use serde_json::json;
use std::time::{Duration, Instant};

const ROWS: usize = 16;
const ROWS_DEPTH: usize = 2048; // tokens before them
const VARIANTS: u64 = 5;
const VARIANT_TOKENS: u32 = 128;
const WARM_TOKENS: usize = 32_768; // of a session
const WARM_NEW_TOKENS: usize = 500;
const JSON_TOKENS: u32 = 96;
const PROMPT_TOKENS: usize = 256;

/// A forward pass of 16 rows, all of whose logits are wanted, beside one of one row.
pub fn rows(loaded: &mut dyn Runner, rounds: u32) -> Result<Option<Measured>, CliError> {
    let facts = loaded.facts();
    if facts.sequence_tokens_max() < ROWS_DEPTH + ROWS {
        return Ok(None);
    }
    let blocks: Vec<u32> = (0..(ROWS_DEPTH + ROWS).div_ceil(KV_BLOCK_TOKENS) as u32).collect();
    let tokens: Vec<u32> = (0..ROWS_DEPTH as u32).map(|at| at * 7 % (facts.vocab as u32)).collect();
    for (chunk, tokens) in tokens.chunks(BATCH_ROWS_MAX).enumerate() {
        forward(loaded, tokens, chunk * BATCH_ROWS_MAX, &blocks)?;
    }
    let (mut many, mut one) = (Vec::new(), Vec::new());
    for _ in 0..=4 * rounds {
        many.push(forward(loaded, &tokens[..ROWS], ROWS_DEPTH, &blocks)?);
        one.push(forward(loaded, &tokens[..1], ROWS_DEPTH, &blocks)?);
    }
    Ok(Some(Measured::beside("rows_16_d2048", median(many), "ms", median(one))))
}

/// Milliseconds of a pass with the logits of its last rows.
fn forward(
    loaded: &mut dyn Runner,
    tokens: &[u32],
    position: usize,
    blocks: &[u32],
) -> Result<f64, CliError> {
    let mut batch = Batch::default();
    batch.push(tokens, position, blocks, false);
    batch.logit_rows.extend((0..tokens.len() as u32).rev().take(ROWS).rev());
    let begun = Instant::now();
    loaded.forward(&batch).map_err(failed)?;
    Ok(ms(begun.elapsed()))
}

fn failed(error: RunnerError) -> CliError {
    CliError::Peer(error.to_string())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Bench {
    /// Variants of one prompt, each with its own random numbers, beside one of them.
    pub fn variants(&mut self, rounds: u32, temperature: f32) -> Result<Measured, CliError> {
        let (mut many, mut one) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let many_ms = self.variants_ms(VARIANTS, round, temperature)?;
            let one_ms = self.variants_ms(1, round, temperature)?;
            // The first round warms.
            if round > 0 {
                many.push(many_ms);
                one.push(one_ms);
            }
        }
        let name = if temperature > 0.0 { "variants_5" } else { "variants_5_greedy" };
        Ok(Measured::beside(name, median(many), "ms", median(one)))
    }

    fn variants_ms(&mut self, count: u64, round: u32, temperature: f32) -> Result<f64, CliError> {
        let prompt = self.prompt(PROMPT_TOKENS, round);
        let parent = self.request(&prompt, 0);
        let (of, tenant) = (parent.sequence, parent.tenant);
        self.finish(vec![parent])?;
        let variants: Vec<Generate> = (0..count)
            .map(|seed| {
                let own = self.request(&prompt[..1], VARIANT_TOKENS);
                let base = Base::Fork { of, at: prompt.len() as u32 };
                let sampling = Sampling { temperature, seed, ..Sampling::default() };
                Generate { base, tenant, sampling, ..own }
            })
            .collect();
        let took = self.finish(variants)?;
        self.engine.command(&Command::Release { sequence: of }, &mut Vec::new());
        Ok(ms(took))
    }

    /// The time to the first token of a turn in a long session whose KV is there, beside that of the session's first turn.
    pub fn warm_turn(&mut self, rounds: u32) -> Result<Option<Measured>, CliError> {
        if self.context <= WARM_TOKENS + (rounds as usize + 1) * (WARM_NEW_TOKENS + 1) {
            return Ok(None);
        }
        let first = self.prompt(WARM_TOKENS, 0);
        let session = self.request(&first, 0);
        let (sequence, tenant) = (session.sequence, session.tenant);
        let cold = ms(self.finish(vec![session])?);
        let mut warm = Vec::new();
        for round in 0..=rounds {
            let turn = self.request(&self.prompt(WARM_NEW_TOKENS, round), 1);
            warm.push(self.turn_ms(Generate { base: Base::Extend, sequence, tenant, ..turn })?);
        }
        self.engine.command(&Command::Release { sequence }, &mut Vec::new());
        // The first one warms.
        Ok(Some(Measured::beside("warm_turn_32k", median(warm.split_off(1)), "ms", cold)))
    }

    /// Milliseconds of a turn, which stays in its session.
    fn turn_ms(&mut self, turn: Generate) -> Result<f64, CliError> {
        let (begun, mut events) = (Instant::now(), Vec::new());
        self.engine.command(&Command::Generate(turn), &mut events);
        while !events.iter().any(|event| matches!(event, Event::Finished { .. })) {
            events.clear();
            self.step(&mut events)?;
        }
        Ok(ms(begun.elapsed()))
    }

    /// A generation under a schema beside a free one, as milliseconds a token: with its masks only, with what it forces
    /// guessed, and with a mask for every token, which only sampling needs: a greedy token that is allowed is taken without.
    /// And free text with guesses allowed, which must cost nothing where they do not pay.
    pub fn constrained(&mut self, rounds: u32) -> Result<[Measured; 4], CliError> {
        let item = json!({"type": "object", "additionalProperties": false,
            "required": ["file_name", "line_number", "replacement"],
            "properties": {"file_name": {"type": "string", "maxLength": 12}, "replacement": {"type": "string", "maxLength": 16},
                "line_number": {"type": "integer", "minimum": 1, "maximum": 9999}}});
        let schema = Constraint::json_schema(&json!({"type": "array", "items": item, "minItems": 50}));
        let held = Some(&schema);
        // Free ones, and what stands beside them.
        let kinds = [
            (None, 0.0, false),
            (held, 0.0, false),
            (held, 0.0, true),
            (None, 1.0, false),
            (held, 1.0, false),
            (None, 1.0, true),
        ];
        let mut times = kinds.map(|_| Vec::new());
        for round in 0..=rounds {
            let prompt = self.prompt(PROMPT_TOKENS, round);
            for ((constraint, temperature, speculate), times) in kinds.into_iter().zip(&mut times) {
                let mut request = self.request(&prompt, JSON_TOKENS);
                request.sampling = Sampling { temperature, seed: u64::from(round), ..Sampling::default() };
                (request.constraint, request.speculate) = (constraint.cloned(), speculate);
                let took = self.token_ms(request)?;
                // The first round warms.
                if round > 0 {
                    times.push(took);
                }
            }
        }
        let [free, masked, forced, sampled, masked_sampled, guessed] = times.map(median);
        Ok([
            Measured::beside("json_masked", masked, "ms", free),
            Measured::beside("json_forced", forced, "ms", free),
            Measured::beside("json_masked_sampled", masked_sampled, "ms", sampled),
            Measured::beside("free_guessed", guessed, "ms", sampled),
        ])
    }

    /// Milliseconds a token, after the first.
    fn token_ms(&mut self, request: Generate) -> Result<f64, CliError> {
        let sequence = request.sequence;
        let mut events = Vec::new();
        self.engine.command(&Command::Generate(request), &mut events);
        let (mut first, mut tokens) = (None, 0);
        while !events.iter().any(|event| matches!(event, Event::Finished { .. })) {
            events.clear();
            self.step(&mut events)?;
            let now = Instant::now();
            let come = events.iter().filter(|event| matches!(event, Event::Token { .. })).count();
            match first {
                None if come > 0 => first = Some(now),
                _ => tokens += come,
            }
        }
        let took = first.map_or(Duration::ZERO, |first| first.elapsed());
        self.engine.command(&Command::Release { sequence }, &mut Vec::new());
        Ok(ms(took) / tokens.max(1) as f64)
    }

    /// Runs generations to their end and forgets all but the first of several.
    fn finish(&mut self, requests: Vec<Generate>) -> Result<Duration, CliError> {
        let ids: Vec<SequenceId> = requests.iter().map(|request| request.sequence).collect();
        let keeps = requests.iter().all(|request| request.max_tokens == 0);
        let (begun, mut events) = (Instant::now(), Vec::new());
        for request in requests {
            self.engine.command(&Command::Generate(request), &mut events);
        }
        let mut running = ids.len();
        while running > 0 {
            self.step(&mut events)?;
            running -= events.drain(..).filter(|event| matches!(event, Event::Finished { .. })).count();
        }
        let took = begun.elapsed();
        for &sequence in ids.iter().filter(|_| !keeps) {
            self.engine.command(&Command::Release { sequence }, &mut Vec::new());
        }
        Ok(took)
    }

    /// One step; a generation that comes to a bad end ends the bench.
    pub fn step(&mut self, events: &mut Vec<Event>) -> Result<(), CliError> {
        self.engine.step(events).map_err(failed)?;
        for event in &*events {
            match event {
                Event::Failed { failure, .. } | Event::Refused { failure, .. } => {
                    return Err(failure.clone().into());
                }
                _ => {}
            }
        }
        Ok(())
    }
}
