//! Generations held to a grammar, or with penalties, whose logits are changed on the card: the tokens are those that come
//! where the host changes them, alone and together; and what either costs.

use super::cuda;
use crate::alone::{is_on, load, narrow};
use crate::common::{request, tokens_of};
use crate::support::Random;
use flint_engine::batch::Batch;
use flint_engine::constrain::{Constraint, Piece, Vocabulary};
use flint_engine::device::cuda::Cuda;
use flint_engine::load::MadeUp;
use flint_engine::message::{Base, Command, Event, Generate};
use flint_engine::model::Loaded;
use flint_engine::runner::{Runner, RunnerError, RunnerFacts};
use flint_engine::sample::{Change, Chunk, Sampling};
use flint_engine::step::Engine;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const BLOCKS: usize = 512;

/// A model that may leave it to the host to change logits, once the pass is over.
struct Leaving {
    loaded: Loaded<Cuda>,
    leaves: Arc<AtomicBool>,
}

impl Leaving {
    fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Relaxed)
    }
}

impl Runner for Leaving {
    fn facts(&self) -> RunnerFacts {
        self.loaded.facts()
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        self.loaded.forward(batch)
    }

    fn begin(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        if self.leaves() { self.forward(batch) } else { self.loaded.begin(batch) }
    }

    fn finish(&mut self) -> Result<(), RunnerError> {
        self.loaded.finish()
    }

    fn logits(&mut self, index: usize) -> &mut [f32] {
        self.loaded.logits(index)
    }

    fn change(&mut self, index: usize, change: &Change<'_>) {
        if self.leaves() { change.apply(self.logits(index)) } else { self.loaded.change(index, change) }
    }

    fn best(&mut self, index: usize) -> Option<u32> {
        self.loaded.best(index)
    }

    fn weigh(&mut self, index: usize, scale: f32, chunks: &mut Vec<Chunk>) -> Option<f32> {
        self.loaded.weigh(index, scale, chunks)
    }

    fn chunks_of_logits(&mut self, index: usize, wanted: &[u32]) -> &mut [f32] {
        self.loaded.chunks_of_logits(index, wanted)
    }

    fn rest(&mut self) {
        self.loaded.rest();
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.loaded.copy_block(from, to);
    }
}

/// An engine, and the switch that leaves changes to the host.
struct Held {
    engine: Engine,
    leaves: Arc<AtomicBool>,
    asked: u64,
}

/// How a generation is asked for.
#[derive(Debug, Clone)]
struct Way {
    name: &'static str,
    sampling: Sampling,
    schema: bool,
}

impl Held {
    fn new(loaded: Loaded<Cuda>) -> Held {
        let (leaves, vocab) = (Arc::new(AtomicBool::new(false)), loaded.facts().vocab);
        let runner = Leaving { loaded, leaves: leaves.clone() };
        let engine = Engine::new(Box::new(runner)).with_vocabulary(Box::new(move || Ok(vocabulary(vocab))));
        Held { engine, leaves, asked: 0 }
    }

    /// The tokens of so many generations at once, and the microseconds of a step in which all decode.
    fn answer(&mut self, way: &Way, at_once: usize, prompt: usize, tokens: u32) -> (Vec<Vec<u32>>, f64) {
        let ids = self.asked + 1..self.asked + 1 + at_once as u64;
        self.asked += at_once as u64;
        let mut events = Vec::new();
        for (id, place) in ids.clone().zip(0u64..) {
            let given: Vec<u32> =
                (0..prompt as u64).map(|i| ((i * 7919 + 31 * place + i * i * 13) % 4000) as u32).collect();
            let sampling = Sampling { seed: place + 3, ..way.sampling.clone() };
            let constraint = way.schema.then(|| Constraint::json_schema(&schema()));
            let asked = request(id, Base::New, &given, tokens);
            let asked = Generate { sampling, constraint, ..asked };
            self.engine.command(&Command::Generate(asked), &mut events);
        }
        let (mut begun, mut steps) = (None, 0);
        let mut took = 0.0;
        while !self.engine.is_idle() {
            let before = events.len();
            self.engine.step(&mut events).unwrap();
            let said = ids.clone().filter(|id| !tokens_of(&events[before..], *id).is_empty()).count();
            match begun {
                None if said == at_once => begun = Some(Instant::now()),
                Some(since) if said == at_once => {
                    steps += 1;
                    took = Instant::elapsed(&since).as_secs_f64();
                }
                _ => {}
            }
        }
        let failed = events.iter().find(|event| matches!(event, Event::Failed { .. }));
        failed.iter().for_each(|event| println!("  {event:?}"));
        (ids.map(|id| tokens_of(&events, id)).collect(), took * 1e6 / f64::from(steps.max(1)))
    }
}

/// Bytes, what JSON is written with, and made-up words.
fn vocabulary(count: usize) -> Vocabulary {
    let mut random = Random::new(77);
    let bytes = (0..=255).map(|byte| vec![byte]);
    let json =
        ["{\"", "\":", "\": \"", "\", \"", "\"}", "\"},", "{\"name\"", "\"line\"", "true", "null", "[{\""];
    let json = json.iter().map(|text| text.as_bytes().to_vec());
    let word = |at: usize| {
        let space = if at.is_multiple_of(3) { " " } else { "" };
        let letters = (0..2 + random.below(7)).map(|_| char::from(b'a' + random.below(26) as u8));
        letters.fold(space.to_owned(), |word, letter| word + &letter.to_string()).into_bytes()
    };
    let known: Vec<Vec<u8>> = bytes.chain(json).collect();
    let words = (known.len()..count).map(word);
    Vocabulary { pieces: known.iter().cloned().chain(words).map(Piece::Text).collect(), cut: None }
}

fn schema() -> serde_json::Value {
    json!({
        "type": "array",
        "minItems": 200,
        "items": {
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "line": { "type": "integer" },
                "kind": { "enum": ["insert", "replace", "remove"] },
            },
            "required": ["name", "line", "kind"],
            "additionalProperties": false,
        },
    })
}

fn ways() -> Vec<Way> {
    let greedy = Sampling::default();
    let drawn = Sampling { temperature: 1.0, ..greedy.clone() };
    let penalised = |sampling: &Sampling| Sampling {
        repetition_penalty: 1.1,
        presence_penalty: 0.2,
        frequency_penalty: 0.1,
        ..sampling.clone()
    };
    let way = |name, sampling: &Sampling, schema| Way { name, sampling: sampling.clone(), schema };
    vec![
        way("greedy", &greedy, false),
        way("greedy, schema", &greedy, true),
        way("greedy, penalties", &penalised(&greedy), false),
        way("greedy, schema, penalties", &penalised(&greedy), true),
        way("temperature 1", &drawn, false),
        way("temperature 1, schema", &drawn, true),
        way("temperature 1, penalties", &penalised(&drawn), false),
        way("temperature 1, schema, penalties", &penalised(&drawn), true),
    ]
}

/// Ways that are not timed.
fn more_ways() -> Vec<Way> {
    let drawn = Sampling { temperature: 0.8, top_p: 0.95, ..Sampling::default() };
    let bias = (256..300).map(|token| (token, 3.0)).collect();
    let biased = Sampling { top_k: 50, bias, ..drawn.clone() };
    let told = Sampling { logprobs: Some(3), frequency_penalty: 0.5, ..drawn.clone() };
    vec![
        Way { name: "top-p, schema", sampling: drawn, schema: true },
        Way { name: "top-k, bias, schema", sampling: biased, schema: true },
        Way { name: "log-probabilities, penalties, schema", sampling: told, schema: true },
    ]
}

fn beside_host(name: &str, device: Cuda) -> usize {
    let mut held = Held::new(load(&narrow(4), device, BLOCKS));
    let mut failures = 0;
    for way in ways().into_iter().chain(more_ways()) {
        for at_once in [1, 4] {
            let mut answer = |leaves: bool| {
                held.leaves.store(leaves, Ordering::Relaxed);
                held.answer(&way, at_once, 60, 150).0
            };
            let (card, host) = (answer(false), answer(true));
            let count: usize = card.iter().map(Vec::len).sum();
            let same = card == host && count > 20 * at_once;
            if !same {
                println!("  {name}, {}, {at_once} at once: FAILED, {count} tokens", way.name);
            }
            failures += usize::from(!same);
        }
    }
    println!("{name:<24} grammars and penalties on the card: {failures} answers are not those of the host");
    failures
}

pub fn check() -> usize {
    let _held = cuda();
    beside_host("general path", cuda().replaying()) + beside_host("alone", cuda().replaying().fast())
}

/// Microseconds a step, alone (the one kernel) and several at once (the general path), changed on the card and by the host, by
/// turns.
pub fn time(shape: &str) -> usize {
    const ROUNDS: usize = 3;
    let Some(made_up) = MadeUp::named(shape) else { return 1 };
    let loaded = load(&made_up, cuda().replaying().fast().making_up().unwrap(), BLOCKS);
    if !is_on(&loaded) {
        return 1;
    }
    let mut held = Held::new(loaded);
    for (at_once, tokens) in [(1, 160), (4, 160), (16, 64)] {
        let mut free = 0.0;
        for way in ways() {
            let mut took = [[0.0; ROUNDS]; 2];
            for round in 0..ROUNDS {
                for (leaves, took) in took.iter_mut().enumerate() {
                    held.leaves.store(leaves == 1, Ordering::Relaxed);
                    took[round] = held.answer(&way, at_once, 512, tokens).1;
                }
            }
            let [card, host] = took.map(|mut took| {
                took.sort_by(f64::total_cmp);
                took[ROUNDS / 2]
            });
            free = if way.name.contains(',') { free } else { card };
            println!(
                "{at_once:>2} at once, {:<34} card {card:>6.0} us ({:>+5.1}%)   host {host:>6.0} us ({:>+5.1}%)",
                way.name,
                (card / free - 1.0) * 100.0,
                (host / free - 1.0) * 100.0
            );
        }
    }
    0
}
