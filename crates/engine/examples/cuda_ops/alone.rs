//! Models whose lone tokens come from the decode step in one kernel: against `plain`, against the general path through forks,
//! truncations and company, stopped in mid-run, and timed.

use super::cuda;
use crate::common::{request, run, tokens_of};
use crate::golden_data::{Model, Reference, files, top};
use flint_engine::batch::Batch;
use flint_engine::device::Device;
use flint_engine::device::cuda::{Cuda, Shape, Way, machine_code};
use flint_engine::device::plain::Plain;
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::load::{MadeUp, ModelFile};
use flint_engine::message::{Base, Command as Order};
use flint_engine::model::Loaded;
use flint_engine::model::config::{Config, Experts};
use flint_engine::quant::Format;
use flint_engine::runner::Runner;
use flint_engine::sample::Sampling;
use flint_engine::step::Engine;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Instant;

/// Logits may differ by so much from `plain`, on weights that both have exactly, with keys and values rounded the same.
const TOLERANCE: f64 = 1e-2;
/// What 8-bit keys and values may cost.
const KV_TOLERANCE: f64 = 2e-2;
const BLOCKS: usize = 24;

fn full_width(layers: usize, experts: usize, vocab: usize) -> MadeUp {
    let made_up = MadeUp::named("gpt-oss-20b").unwrap();
    let experts = Some(Experts { count: experts, used: 4, normalize: true });
    MadeUp { config: Config { layers, experts, vocab, ..made_up.config.clone() }, ..made_up }
}

/// As many experts as are used: no rounding can change the choice.
pub fn narrow(layers: usize) -> MadeUp {
    let full = full_width(layers, 4, 4096);
    let config = Config { hidden: 288, heads: 16, kv_heads: 2, ffn: 224, ..full.config.clone() };
    MadeUp { config, ..full }
}

/// A dense model of a published shape, with fewer layers and tokens.
fn dense(name: &str, layers: usize) -> MadeUp {
    let made_up = MadeUp::named(name).unwrap();
    MadeUp { config: Config { layers, vocab: 8192, ..made_up.config.clone() }, tied: false, ..made_up }
}

/// Seven query heads a KV head, and rows that many blocks share.
fn narrow_dense(layers: usize, matrices: Format) -> MadeUp {
    let full = dense("qwen2.5-coder-7b", layers);
    let config =
        Config { hidden: 512, heads: 14, kv_heads: 2, ffn: 1280, vocab: 4096, ..full.config.clone() };
    MadeUp { config, matrices, ..full }
}

/// Experts with head norms: as many as are used, so no rounding can change the choice.
fn narrow_experts(layers: usize, hidden: usize) -> MadeUp {
    let full = MadeUp::named("qwen3-coder-30b-a3b").unwrap();
    let experts = Some(Experts { count: 8, used: 8, normalize: true });
    let sizes = if hidden < full.config.hidden { (8, 2, 256) } else { (32, 4, 768) };
    let (heads, kv_heads, ffn) = sizes;
    let narrow = Config { layers, hidden, heads, kv_heads, ffn, vocab: 4096, experts, ..full.config.clone() };
    MadeUp { config: narrow, ..full }
}

pub fn load<D: Device + 'static>(made_up: &MadeUp, device: D, blocks: usize) -> Loaded<D> {
    Loaded::new(&ModelFile::made_up("made up", made_up), device, blocks, &mut |_, _| ()).unwrap()
}

fn fast() -> Cuda {
    cuda().replaying().fast()
}

fn relative_error(found: &[f32], expected: &[f32]) -> f64 {
    let square = |value: f64| value * value;
    let off: f64 = found.iter().zip(expected).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = expected.iter().map(|b| square(f64::from(*b))).sum();
    let error = (off / size).sqrt();
    if error.is_nan() { f64::INFINITY } else { error }
}

fn argmax(values: &[f32]) -> u32 {
    let first = |best: usize, (i, value): (usize, &f32)| if *value > values[best] { i } else { best };
    values.iter().enumerate().fold(0, first) as u32
}

pub fn is_on(loaded: &Loaded<Cuda>) -> bool {
    match loaded.device().alone() {
        Way::On(_) => true,
        Way::Not(why) => {
            println!("  not alone: {why}");
            false
        }
        Way::Off | Way::Waiting => false,
    }
}

/// A runner beside another that computes the same batches.
struct Beside<D: Device> {
    want: Loaded<D>,
    got: Loaded<Cuda>,
    errors: Vec<f64>,
    same: usize,  // largest logits
    seen: usize,  // rows that went through the one kernel
    alone: usize, // that should have
    wrong: usize, // likeliest tokens that the device named wrongly
}

/// A sequence, as far as it is.
struct Line {
    token: u32, // the next one
    position: usize,
    table: Vec<u32>,
}

impl<D: Device + 'static> Beside<D> {
    fn new(made_up: &MadeUp, device: D, blocks: usize) -> Option<Beside<D>> {
        let (want, got) = (load(made_up, device, blocks), load(made_up, fast(), blocks));
        let new = Beside { want, got, errors: Vec::new(), same: 0, seen: 0, alone: 0, wrong: 0 };
        is_on(&new.got).then_some(new)
    }

    /// Tells the tokens that the first runner finds likeliest.
    fn pass(&mut self, batch: &Batch) -> Vec<u32> {
        self.want.forward(batch).unwrap();
        self.got.forward(batch).unwrap();
        self.seen += usize::from(self.got.device().decoded_alone());
        let row = |row: usize| {
            let best = self.got.best(row);
            let expected = self.want.logits(row).to_vec();
            let found = self.got.logits(row);
            self.errors.push(relative_error(found, &expected));
            self.same += usize::from(argmax(&expected) == argmax(found));
            self.wrong += usize::from(best.is_some_and(|best| best != argmax(found)));
            argmax(&expected)
        };
        (0..batch.logit_rows.len()).map(row).collect()
    }

    /// Goes on for `count` tokens, alone, over a table that grows as the scheduler's do.
    fn decode(&mut self, line: &mut Line, count: usize) {
        for _ in 0..count {
            let table = &line.table[..line.position / KV_BLOCK_TOKENS + 1];
            line.token = self.pass(&one(&[line.token], line.position, table))[0];
            line.position += 1;
        }
        self.alone += count;
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.want.copy_block(from, to);
        self.got.copy_block(from, to);
    }

    fn report(mut self, name: &str, tolerance: f64) -> usize {
        self.errors.sort_by(f64::total_cmp);
        let (count, worst) = (self.errors.len(), *self.errors.last().unwrap_or(&f64::INFINITY));
        let median = self.errors.get(count / 2).copied().unwrap_or(f64::INFINITY);
        println!(
            "{name:<44} {count:>4} rows, {:>4} alone, logits off {median:.1e} (median) {worst:.1e} (worst), top-1 {} of {count}",
            self.seen, self.same
        );
        let bad = self.seen != self.alone || self.wrong > 0 || worst > tolerance;
        if bad {
            println!("  FAILED: {} should have been alone, {} were named wrongly", self.alone, self.wrong);
        }
        usize::from(bad)
    }
}

fn one(tokens: &[u32], position: usize, table: &[u32]) -> Batch {
    let mut batch = Batch::default();
    batch.push(tokens, position, table, true);
    batch
}

fn given(position: usize, vocab: usize) -> u32 {
    ((position * 7919 + 13 * position * position) % vocab) as u32
}

/// Given tokens beside another device: `prompt` at once, then `count` alone.
fn beside_device<D: Device + 'static>(
    name: &str,
    made_up: &MadeUp,
    device: D,
    (prompt, count): (usize, usize),
    tolerance: f64,
) -> usize {
    let Some(mut beside) = Beside::new(made_up, device, BLOCKS) else { return 1 };
    let table: Vec<u32> = (0..BLOCKS as u32).rev().collect();
    let tokens: Vec<u32> =
        (0..prompt + count).map(|position| given(position, made_up.config.vocab)).collect();
    if prompt > 0 {
        beside.pass(&one(&tokens[..prompt], 0, &table));
    }
    for position in prompt..prompt + count {
        beside.pass(&one(&tokens[position..=position], position, &table));
    }
    beside.alone = count;
    beside.report(name, tolerance)
}

/// Given tokens, one a pass, beside `plain`.
fn against_plain(name: &str, made_up: &MadeUp, positions: usize, tolerance: f64) -> usize {
    beside_device(name, made_up, Plain::default().rounding_kv(), (0, positions), tolerance)
}

/// Prefill, alone, with company, alone, guesses, a fork, a truncation: beside the general path, fed with what that one finds
/// likeliest.
fn continuity(name: &str, made_up: &MadeUp, tolerance: f64) -> usize {
    let Some(mut beside) = Beside::new(made_up, cuda().replaying(), 3 * BLOCKS) else { return 1 };
    let prompt: Vec<u32> = (0..70).map(|i| i * 37 % 4000).collect();
    let mut first = Line { token: 0, position: 70, table: (0..BLOCKS as u32).rev().collect() };
    let mut second = Line { token: 0, position: 40, table: (30..50).collect() };
    // The beginning of a prompt has no logits.
    let mut beginning = Batch::default();
    beginning.push(&prompt[..33], 0, &first.table, false);
    beside.pass(&beginning);
    first.token = beside.pass(&one(&prompt[33..], 33, &first.table))[0];
    beside.decode(&mut first, 64);
    second.token = beside.pass(&one(&prompt[..40], 0, &second.table))[0];
    for _ in 0..8 {
        let mut batch = one(&[first.token], first.position, &first.table);
        batch.push(&[second.token], second.position, &second.table, true);
        let next = beside.pass(&batch);
        (first.token, second.token) = (next[0], next[1]);
        (first.position, second.position) = (first.position + 1, second.position + 1);
    }
    beside.decode(&mut first, 40);
    beside.decode(&mut second, 20);
    beside.decode(&mut first, 12);
    // Guesses, of which the first two are kept.
    let mut guessed = one(&[first.token], first.position, &first.table);
    guessed.push_draft(&[5, 6, 7, 8]);
    first.token = beside.pass(&guessed)[2];
    first.position += 3;
    beside.decode(&mut first, 12);
    // A fork with a copy of the block that is written to.
    let mut fork = Line { token: 17, position: first.position, table: first.table.clone() };
    let open = first.position / KV_BLOCK_TOKENS;
    fork.table[open] = 60;
    beside.copy_block(first.table[open], 60);
    beside.decode(&mut fork, 20);
    beside.decode(&mut first, 20);
    (first.position, first.token) = (first.position - 45, 11);
    beside.decode(&mut first, 60);
    beside.report(name, tolerance)
}

/// The same tokens again and again: where a warp of the kernel does not wait for another, bits differ now and then.
fn again(name: &str, made_up: &MadeUp, times: usize) -> usize {
    const TOKENS: usize = 200;
    let mut loaded = load(made_up, fast(), BLOCKS);
    let table: Vec<u32> = (0..BLOCKS as u32).collect();
    let mut bits = || -> Vec<u64> {
        let of = |position: usize| {
            let batch = one(&[given(position, made_up.config.vocab)], position, &table);
            loaded.forward(&batch).unwrap();
            let mut hasher = DefaultHasher::new();
            loaded.logits(0).iter().for_each(|logit| logit.to_bits().hash(&mut hasher));
            hasher.finish()
        };
        (0..TOKENS).map(of).collect()
    };
    let first = bits();
    let others = (0..times).filter(|_| bits() != first).count();
    println!("{name:<44} {TOKENS} tokens {times} times again, {others} times with other bits");
    others
}

/// How far the tiny models' logits are from transformers', of the largest one: each token alone, then an answer.
const TINY_TOLERANCE: f32 = 5e-2;

/// The tiny model with heads that the kernel knows, from its folder and its GGUF file, token by token.
fn tiny() -> usize {
    let Reference { prompts } = Reference::read("gpt-oss-heads");
    let mut failures = 0;
    for path in files("gpt-oss-heads") {
        let file = ModelFile::open(&path).unwrap();
        if !is_on(&Loaded::new(&file, fast(), BLOCKS, &mut |_, _| ()).unwrap()) {
            return 1;
        }
        let mut model = Model::load(&path, fast(), 1, 240);
        let (mut worst, mut agreed, mut all, mut same) = (0f32, 0, 0, 0);
        for prompt in &prompts {
            let logits = model.logits(&prompt.tokens, 1);
            agreed += logits.iter().zip(&prompt.top).filter(|(logits, want)| top(logits) == **want).count();
            all += logits.len();
            for (&position, want) in prompt.logit_positions.iter().zip(&prompt.logits) {
                let largest = want.iter().fold(0f32, |most, v| most.max(v.abs()));
                let off = logits[position].iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                worst = worst.max(off / largest);
            }
            let answer = model.greedy(std::slice::from_ref(prompt), 64, prompt.greedy.len());
            same += usize::from(answer[0] == prompt.greedy);
        }
        let name = format!("tiny, {}", path.file_name().unwrap_or_default().display());
        let count = prompts.len();
        println!(
            "{name:<44} logits off {worst:.1e}, top-1 {agreed} of {all}, {same} of {count} answers are transformers'"
        );
        failures += usize::from(worst > TINY_TOLERANCE || (agreed as f64) < 0.97 * all as f64);
    }
    failures + unknown_heads()
}

/// Another tiny model has heads that the kernel does not know: it says so, and the general path answers.
fn unknown_heads() -> usize {
    let file = ModelFile::open(&files("gpt-oss-mxfp4")[0]).unwrap();
    let loaded = Loaded::new(&file, fast(), BLOCKS, &mut |_, _| ()).unwrap();
    usize::from(is_on(&loaded))
}

/// A greedy answer through the whole engine, and what the steps were like.
fn answers(made_up: &MadeUp) -> usize {
    let prompt: Vec<u32> = (0..50).map(|i| i * 41 % 4000).collect();
    let answer = |device: Cuda| {
        let loaded = load(made_up, device, BLOCKS);
        let mut engine = Engine::new(Box::new(loaded));
        engine.command(&Order::Generate(request(1, Base::New, &prompt, 200)), &mut Vec::new());
        tokens_of(&run(&mut engine), 1)
    };
    let (want, got) = (answer(cuda().replaying()), answer(fast()));
    let same = want.iter().zip(&got).take_while(|(a, b)| a == b).count();
    println!(
        "{:<44} {same} of {} greedy tokens before the first other one",
        "an answer, fast beside exact",
        want.len()
    );
    usize::from(got.len() != want.len())
}

/// How long the card works on after nobody wants more.
fn stop(made_up: &MadeUp) -> usize {
    let mut loaded = load(made_up, fast(), BLOCKS);
    let table: Vec<u32> = (0..BLOCKS as u32).collect();
    let (mut token, mut position) = (1, 0);
    // Its tokens are taken for a while: it runs ahead.
    while position < 78 {
        loaded.forward(&one(&[token], position, &table)).unwrap();
        token = loaded.best(0).unwrap_or(0);
        position += 1;
    }
    let begun = Instant::now();
    let steps = 4;
    for _ in 0..steps {
        loaded.forward(&one(&[token], position, &table)).unwrap();
        token = loaded.best(0).unwrap_or(0);
        position += 1;
    }
    let step_us = begun.elapsed().as_secs_f64() * 1e6 / f64::from(steps);
    let cancelled = Instant::now();
    loaded.rest();
    loaded.device().card().finish().unwrap();
    let idle_us = cancelled.elapsed().as_secs_f64() * 1e6;
    let Way::On(alone) = loaded.device().alone() else { return 1 };
    println!(
        "{:<44} {} of {} steps were taken; a step {step_us:.0} us, idle {idle_us:.0} us ({:.1} steps) after the word",
        "stopped in mid-run",
        alone.steps,
        alone.begun,
        idle_us / step_us
    );
    let after = loaded.forward(&one(&[token], position, &table));
    usize::from(idle_us > 3.0 * step_us || after.is_err())
}

/// Milliseconds a token at `depth`, by the way that the product goes.
pub fn pace(loaded: Loaded<Cuda>, name: &str, depth: usize, sampling: &Sampling) {
    let mut engine = Engine::new(Box::new(loaded));
    for round in 0..3u64 {
        let prompt: Vec<u32> = (0..depth as u64).map(|i| ((i * 7919 + round * 31) % 4000) as u32).collect();
        let mut asked = request(round + 1, Base::New, &prompt, 200);
        asked.sampling = sampling.clone();
        let (mut events, mut first, mut count) = (Vec::new(), None, 0);
        engine.command(&Order::Generate(asked), &mut events);
        while !engine.is_idle() {
            engine.step(&mut events).unwrap();
            if tokens_of(&events, round + 1).is_empty() {
                continue;
            }
            match first {
                None => first = Some(Instant::now()),
                Some(_) => count += tokens_of(&events, round + 1).len(),
            }
            events.clear();
        }
        let took = first.map_or(0.0, |first| first.elapsed().as_secs_f64());
        println!(
            "{name:<44} round {round}: {:.0} tok/s ({:.1} us)",
            count as f64 / took,
            took * 1e6 / count as f64
        );
    }
}

pub fn check() -> usize {
    let _held = cuda();
    let bf16 = MadeUp { matrices: Format::Bf16, ..full_width(2, 8, 8192) };
    against_plain("narrow, 4 layers, all experts", &narrow(4), 600, TOLERANCE)
        + against_plain("narrow, 3 layers, all experts", &narrow(3), 200, TOLERANCE)
        + against_plain("two full layers", &full_width(2, 8, 8192), 12, TOLERANCE)
        + beside_device(
            "two full layers: 8-bit KV costs",
            &full_width(2, 8, 8192),
            Plain::default(),
            (0, 12),
            KV_TOLERANCE,
        )
        + against_plain("two full layers, bf16: 8-bit rows cost", &bf16, 12, 0.1)
        + continuity("narrow: prefill, company, guesses, fork, cut", &narrow(4), KV_TOLERANCE)
        + continuity("four full layers, the same", &full_width(4, 4, 8192), KV_TOLERANCE)
        + again("four full layers", &full_width(4, 4, 8192), 50)
        + tiny()
        + answers(&full_width(4, 4, 8192))
        + stop(&full_width(24, 4, 8192))
}

/// What 8-bit rows of the head may cost, on weights of 4 bits.
const HEAD_TOLERANCE: f64 = 2e-2;

/// Levels of 8 bits whose rows have one scale are exact on both sides; of Q4_K the head is rounded, of bf16 everything. Narrow
/// models beside `plain`, full widths beside the general path: `plain` makes every weight up anew for every token.
pub fn check_levels() -> usize {
    let _held = cuda();
    let narrow = |name: &str, made_up: &MadeUp, tolerance: f64| {
        beside_device(name, made_up, Plain::default(), (300, 12), tolerance)
    };
    let wide = |name: &str, made_up: &MadeUp, tolerance: f64| {
        beside_device(name, made_up, cuda().replaying(), (300, 40), tolerance)
    };
    let small = "qwen2.5-coder-1.5b";
    let bf16 = MadeUp { matrices: Format::Bf16, ..dense(small, 2) };
    let exact = MadeUp { matrices: Format::Q8_0, ..dense(small, 2) };
    narrow("narrow, 4 layers, levels of 8 bits", &narrow_dense(4, Format::Q8_0), KV_TOLERANCE)
        + narrow("narrow, 3 layers, Q4_K", &narrow_dense(3, Format::Q4K), HEAD_TOLERANCE)
        + narrow("narrow, experts and head norms, Q4_K", &narrow_experts(4, 512), HEAD_TOLERANCE)
        + wide("two layers of 1.5B, levels of 8 bits", &exact, KV_TOLERANCE)
        + wide("two layers of 1.5B, Q4_K", &dense(small, 2), HEAD_TOLERANCE)
        + wide("two layers of 1.5B, bf16", &bf16, HEAD_TOLERANCE)
        + wide("two layers of 7B, Q4_K", &dense("qwen2.5-coder-7b", 2), HEAD_TOLERANCE)
        + wide("two layers of 30B, all experts, Q4_K", &narrow_experts(2, 2048), HEAD_TOLERANCE)
        + continuity(
            "narrow: prefill, company, guesses, fork, cut",
            &narrow_dense(4, Format::Q4K),
            HEAD_TOLERANCE,
        )
        + continuity("narrow experts, the same", &narrow_experts(4, 512), HEAD_TOLERANCE)
        + continuity("four layers of 1.5B, the same", &dense(small, 4), HEAD_TOLERANCE)
        + again("four layers of 1.5B", &dense(small, 4), 100)
        + again("two layers of 7B", &dense("qwen2.5-coder-7b", 2), 50)
        + again("two layers of 30B, all experts", &narrow_experts(2, 2048), 50)
        + answers(&dense(small, 4))
        + stop(&dense(small, 28))
}

pub fn time(name: &str, depth: usize) -> usize {
    let Some(made_up) = MadeUp::named(name) else { return 1 };
    let made = |device: Cuda| {
        let begun = Instant::now();
        let loaded = load(&made_up, device.making_up().unwrap(), depth / KV_BLOCK_TOKENS + 64);
        println!("{name} loaded in {:.1} s", begun.elapsed().as_secs_f64());
        loaded
    };
    let greedy = Sampling::default();
    let drawn = Sampling { temperature: 1.0, seed: 3, ..Sampling::default() };
    let depth_of = |what: &str| format!("{what}, {depth}");
    pace(made(cuda().replaying()), &depth_of("exact, greedy"), depth, &greedy);
    let loaded = made(fast());
    if let Way::On(alone) = loaded.device().alone() {
        println!("alone takes {:.1} GiB more", alone.bytes() as f64 / (1u64 << 30) as f64);
    }
    is_on(&loaded);
    pace(loaded, &depth_of("fast, greedy"), depth, &greedy);
    pace(made(fast()), &depth_of("fast, drawn at temperature 1"), depth, &drawn);
    0
}

/// The decode kernel for every shape here, on a card like an H200.
pub fn compile(arch: &str, folder: &Path) -> usize {
    const MULTIPROCESSORS: usize = 132;
    let shapes = [
        narrow(4),
        narrow(3),
        full_width(2, 8, 8192),
        full_width(4, 4, 8192),
        full_width(24, 4, 8192),
        narrow_dense(4, Format::Q4K),
        narrow_dense(3, Format::Q4K),
        narrow_experts(4, 512),
        narrow_experts(2, 2048),
        dense("qwen2.5-coder-1.5b", 2),
        dense("qwen2.5-coder-1.5b", 4),
        dense("qwen2.5-coder-1.5b", 28),
        dense("qwen2.5-coder-7b", 2),
    ];
    let named = MadeUp::NAMES.into_iter().filter_map(MadeUp::named);
    let tiny = ModelFile::open(&files("gpt-oss-heads")[0]).unwrap().config;
    let configs = shapes.into_iter().chain(named).map(|made_up| made_up.config).chain([tiny]);
    let failed = |config: Config| {
        let shape = Shape::of(&config, MULTIPROCESSORS);
        let code = shape.and_then(|shape| machine_code(&shape, arch, Some(folder)));
        code.map_or_else(super::said, |_| 0)
    };
    configs.map(failed).sum()
}
