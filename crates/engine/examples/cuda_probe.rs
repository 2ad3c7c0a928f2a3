//! The CUDA decode step, checked against the reference device and measured.
//!
//! `check` compares logits and greedy tokens on small shapes. `bench SHAPE [CONTEXT ...]` makes weights of a
//! published shape on the card and times decoding; `marks` does so with the kernel's own clocks, stage by stage.
//! Compiled kernels are kept in `FLINT_CUDA_CACHE`; `FLINT_CUDA_SOURCES` may name a folder of other kernels.

use flint_engine::batch::Batch;
use flint_engine::device::cuda::{
    Build, Card, Cuda, Decoder, HostLayer, HostModel, MARKS, Matrix8, Mxfp4, Packing, Run, Sequence, Shape,
};
use flint_engine::device::plain::{Plain, Rows};
use flint_engine::device::{Activation, Attention, Device, Head, Mixture, Norm};
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::load::{MadeUp, Tensor};
use flint_engine::model::config::{Arch, Config, Experts};
use flint_engine::quant::Format;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let build = Build {
        cache: folder("FLINT_CUDA_CACHE").unwrap_or_else(|| std::env::temp_dir().join("flint-cuda")),
        marking: args.first() == Some(&"marks"),
        sources: folder("FLINT_CUDA_SOURCES"),
    };
    match args.as_slice() {
        ["check"] => check_all(&build, None),
        ["check", positions] => check_all(&build, Some(positions.parse()?)),
        ["bench" | "marks", name, contexts @ ..] => bench(&build, name, contexts),
        _ => {
            Err("cuda_probe check [POSITIONS] | bench SHAPE [CONTEXT ...] | marks SHAPE [CONTEXT ...]".into())
        }
    }
}

// ---- Checking

/// `positions`: so many, and of narrow shapes only, for a checker under which all is slow.
fn check_all(build: &Build, positions: Option<usize>) -> Outcome<()> {
    let card = Card::open()?;
    let wide = Shape::named("gpt-oss-20b", card.multiprocessors).ok_or("no such shape")?;
    let narrow = Shape {
        name: "narrow".into(),
        layers: 3,
        hidden: 288,
        heads: 16,
        kv_heads: 2,
        ffn: 224,
        vocab: 4096,
        grid: 16,
        ..wide.clone()
    };
    let full_width = Shape { name: "two full layers".into(), layers: 2, experts: 8, vocab: 8192, ..wide };
    // With as many experts as are used, no rounding can change the choice: every position must agree.
    let all_experts = Shape { name: "narrow, all experts".into(), experts: narrow.used, ..narrow.clone() };
    let mut checks = vec![(all_experts, 600), (narrow, 600), (full_width, 12)];
    if let Some(positions) = positions {
        checks.truncate(2);
        checks.iter_mut().for_each(|(_, tokens)| *tokens = positions);
    }
    let mut agree = true;
    for (seed, (shape, tokens)) in checks.into_iter().enumerate() {
        agree &= check(shape, tokens, seed as u64 + 1, build)?;
    }
    if agree { Ok(()) } else { Err("the card does not agree with the reference".into()) }
}

/// Forced tokens through both devices, then tokens of the card's own choosing.
fn check(shape: Shape, tokens: usize, seed: u64, build: &Build) -> Outcome<bool> {
    let model = HostModel::random(&shape, seed);
    let forced: Vec<u32> = (0..tokens).map(|i| ((i * 7919 + 13 * i * i) % shape.vocab) as u32).collect();
    let Reference { logits: expected, margins } = reference(&shape, &model, &forced)?;

    let mut decoder = Decoder::with_model(Card::open()?, shape.clone(), &model, build)?;
    let blocks = (tokens + 64).div_ceil(KV_BLOCK_TOKENS) as u32;
    let sequence = decoder.sequence(tokens + 64, |i| blocks - 1 - i)?;
    let run = decoder.run(&sequence, 0, &forced, tokens, true)?;
    let found = run.logits.ok_or("no logits")?;
    let (mut errors, mut equal) = (Vec::new(), 0);
    for (row, expected) in expected.values.chunks_exact(shape.vocab).enumerate() {
        let found = &found[row * shape.vocab..][..shape.vocab];
        errors.push((relative_error(found, expected), row));
        equal += usize::from(argmax(found) == argmax(expected));
        if argmax(found) as u32 != run.tokens[row] {
            return Err(format!("row {row}: token {} is not the largest logit", run.tokens[row]).into());
        }
    }
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (median, worst) = (errors[tokens / 2].0, errors[tokens - 1].0);
    println!(
        "{}: {tokens} positions, logits differ by {median:.1e} (median), {worst:.1e} (worst); largest logit the same in {equal}",
        shape.name,
    );
    let explained = explain(&errors, &margins);
    let again = decoder.run(&sequence, 0, &forced, tokens, true)?.logits.ok_or("no logits")?;
    let same = again.iter().zip(&found).all(|(a, b)| a.to_bits() == b.to_bits());
    println!("{}: a second run gives {} bits", shape.name, if same { "the same" } else { "OTHER" });
    let screened = decoder.run(&sequence, 0, &forced, tokens, false)?.tokens;
    let alike = screened.iter().zip(&run.tokens).filter(|(a, b)| a == b).count();
    println!("{}: {alike} of {tokens} tokens are found by the rounded head", shape.name);
    let mut agrees = median < 1e-2 && explained && same && alike == tokens;
    if shape.hidden < 1024 {
        greedy(&mut decoder, &shape, &model, &forced)?;
        agrees &= check_choices(&mut decoder, &shape, &model)?;
    }
    Ok(agrees)
}

/// How near to each other the last expert that is used and the first that is not may be for rounding to swap them: some
/// times what the router's logits differ by between the devices.
const TIE: f32 = 0.03;

/// Whether each position that differs by more than rounding has a tie in the router, or sees one that has: another expert
/// there is no error of the kernel.
fn explain(errors: &[(f64, usize)], margins: &[f32]) -> bool {
    let differs = errors.iter().rev().take_while(|(error, _)| *error > 1e-2).count();
    for (error, row) in errors.iter().rev().take(differs.min(3)) {
        println!(
            "    position {row} differs by {error:.1e}; its nearest experts are {:.1e} apart",
            margins[*row]
        );
    }
    let first_tie = margins.iter().position(|&margin| margin < TIE).unwrap_or(margins.len());
    errors.iter().rev().take(differs).all(|&(_, row)| row >= first_tie)
}

/// Many short sequences: until one has a tie in the router, every position must agree.
fn check_choices(decoder: &mut Decoder, shape: &Shape, model: &HostModel) -> Outcome<bool> {
    const SEQUENCES: usize = 48;
    const POSITIONS: usize = 4;
    let sequence = decoder.sequence(KV_BLOCK_TOKENS, |i| i)?;
    let (mut judged, mut worst) = (0, 0f64);
    for first in 0..SEQUENCES {
        let tokens: Vec<u32> =
            (0..POSITIONS).map(|i| ((first * 617 + i * 97) % shape.vocab) as u32).collect();
        let expected = reference(shape, model, &tokens)?;
        let found = decoder.run(&sequence, 0, &tokens, POSITIONS, true)?.logits.ok_or("no logits")?;
        let before_tie = expected.margins.iter().take_while(|&&margin| margin >= TIE).count();
        for row in 0..before_tie {
            worst = worst
                .max(relative_error(&found[row * shape.vocab..][..shape.vocab], expected.logits.row(row)));
        }
        judged += before_tie;
    }
    println!(
        "{}: {judged} positions of {SEQUENCES} sequences without a tie differ by {worst:.1e} (worst)",
        shape.name
    );
    Ok(judged > 0 && worst < 1e-2)
}

/// Sixteen tokens of the model's own, from one launch and from the reference.
fn greedy(decoder: &mut Decoder, shape: &Shape, model: &HostModel, forced: &[u32]) -> Outcome<()> {
    let start = &forced[..forced.len().min(8)];
    let sequence = decoder.sequence(64, |i| i)?;
    let found = decoder.run(&sequence, 0, start, start.len() + 15, false)?.tokens;
    let mut tokens = start.to_vec();
    for _ in 0..16 {
        let logits = reference(shape, model, &tokens)?.logits;
        tokens.push(argmax(logits.row(tokens.len() - 1)) as u32);
    }
    let expected = &tokens[start.len()..];
    let found = &found[start.len() - 1..];
    let equal = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    println!("{}: {equal} of 16 greedy tokens are the reference's", shape.name);
    Ok(())
}

fn relative_error(found: &[f32], expected: &[f32]) -> f64 {
    let square = |value: f64| value * value;
    let off: f64 = found.iter().zip(expected).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let size: f64 = expected.iter().map(|b| square(f64::from(*b))).sum();
    let error = (off / size).sqrt();
    if error.is_nan() { f64::INFINITY } else { error }
}

fn argmax(values: &[f32]) -> usize {
    let first = |best: usize, (i, value): (usize, &f32)| if *value > values[best] { i } else { best };
    values.iter().enumerate().fold(0, first)
}

struct Reference {
    logits: Rows,      // (positions, vocab)
    margins: Vec<f32>, // (positions) between the last expert used and the first that is not, in the nearest layer
}

/// All positions on the reference device with the same, dequantised weights, and keys and values that are rounded the same.
fn reference(shape: &Shape, model: &HostModel, tokens: &[u32]) -> Outcome<Reference> {
    let mut device = Plain::default().rounding_kv();
    let config = config(shape);
    let blocks = tokens.len().div_ceil(KV_BLOCK_TOKENS);
    let mut batch = Batch::default();
    batch.push(tokens, 0, &(0..blocks as u32).collect::<Vec<u32>>(), false);
    batch.logit_rows = (0..tokens.len() as u32).collect();

    let rows = tokens.len();
    let mut x = device.buffer(rows, shape.hidden)?;
    let mut qkv = device.buffer(rows, shape.qkv_rows())?;
    let mut attended = device.buffer(rows, shape.q_rows())?;
    let mut logits = device.buffer(rows, shape.vocab)?;
    let mut cache = device.cache(&config, blocks)?;
    let table = floats("embedding", &[shape.vocab, shape.hidden], &model.embedding)?;
    let mut margins = vec![f32::INFINITY; rows];
    device.begin(&shape.rope, &batch);
    device.embed(&table, &batch, &mut x);
    for (index, layer) in model.layers.iter().enumerate() {
        let attention = attention(&mut device, shape, layer, index)?;
        let mixture = mixture(&mut device, shape, layer)?;
        device.qkv(&attention, &x, &batch, &mut qkv, &mut cache);
        device.attend(&attention, &qkv, &batch, &cache, &mut attended);
        device.project_add(&attention.out, attention.out_bias.as_ref(), &attended, &mut x, &batch);
        for (margin, x) in margins.iter_mut().zip(x.values.chunks_exact(shape.hidden)) {
            *margin = margin.min(router_margin(shape, layer, x));
        }
        device.mixture(&mixture, &mut x, &batch);
    }
    let head =
        Head { norm: norm(shape, &model.final_norm), matrix: device.matrix(&[matrix8(&model.head)?])? };
    device.head(&head, &x, &batch, &mut logits);
    Ok(Reference { logits, margins })
}

/// Between the logits of the last expert used and of the first that is not.
fn router_margin(shape: &Shape, layer: &HostLayer, x: &[f32]) -> f32 {
    let squares: f32 = x.iter().map(|x| x * x).sum();
    let scale = (squares / x.len() as f32 + shape.norm_eps).sqrt().recip();
    let input: Vec<f32> = x.iter().zip(&layer.mixture_norm).map(|(x, weight)| x * weight * scale).collect();
    let dot = |row: &[f32]| row.iter().zip(&input).map(|(a, b)| a * b).sum::<f32>();
    let rows = layer.router.chunks_exact(shape.hidden).zip(&layer.router_bias);
    let mut logits: Vec<f32> = rows.map(|(row, bias)| dot(row) + bias).collect();
    logits.sort_by(|a, b| b.total_cmp(a));
    logits.get(shape.used).map_or(f32::INFINITY, |next| logits[shape.used - 1] - next)
}

fn config(shape: &Shape) -> Config {
    Config {
        arch: Arch::GptOss,
        layers: shape.layers,
        hidden: shape.hidden,
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        head_dim: 64,
        ffn: shape.ffn,
        experts: Some(Experts { count: shape.experts, used: shape.used, normalize: true }),
        vocab: shape.vocab,
        context: 131_072,
        norm_eps: shape.norm_eps,
        rope: shape.rope.clone(),
        window: Some(shape.window),
    }
}

fn attention(
    device: &mut Plain,
    shape: &Shape,
    layer: &HostLayer,
    index: usize,
) -> Outcome<Attention<Plain>> {
    Ok(Attention {
        layer: index,
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        head_dim: 64,
        window: config(shape).window(index),
        norm: norm(shape, &layer.attention_norm),
        qkv: device.matrix(&[matrix8(&layer.qkv)?])?,
        qkv_bias: Some(layer.qkv_bias.clone()),
        q_norm: None,
        k_norm: None,
        sinks: Some(layer.sinks.clone()),
        out: device.matrix(&[matrix8(&layer.out)?])?,
        out_bias: Some(layer.out_bias.clone()),
    })
}

fn mixture(device: &mut Plain, shape: &Shape, layer: &HostLayer) -> Outcome<Mixture<Plain>> {
    let Shape { hidden, experts, ffn, .. } = *shape;
    Ok(Mixture {
        norm: norm(shape, &layer.mixture_norm),
        used: shape.used,
        normalize: true,
        activation: Activation::ClampedSwiglu,
        router: device.matrix(&[floats("router", &[experts, hidden], &layer.router)?])?,
        router_bias: Some(layer.router_bias.clone()),
        gate: device.experts(&mxfp4(&layer.gate, &[experts, ffn, hidden])?)?,
        gate_bias: Some(layer.gate_bias.clone()),
        up: device.experts(&mxfp4(&layer.up, &[experts, ffn, hidden])?)?,
        up_bias: Some(layer.up_bias.clone()),
        down: device.experts(&mxfp4(&layer.down, &[experts, hidden, ffn])?)?,
        down_bias: Some(layer.down_bias.clone()),
    })
}

fn norm(shape: &Shape, weight: &[f32]) -> Norm<Plain> {
    Norm { weight: weight.to_vec(), eps: shape.norm_eps }
}

fn floats(name: &str, shape: &[usize], values: &[f32]) -> Outcome<Tensor> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok(Tensor::in_memory(name, shape, Format::F32, &bytes)?)
}

fn matrix8(matrix: &Matrix8) -> Outcome<Tensor> {
    floats("matrix", &[matrix.scales.len(), matrix.cols], &matrix.values_f32())
}

fn mxfp4(experts: &Mxfp4, shape: &[usize]) -> Outcome<Tensor> {
    Ok(Tensor::in_memory("experts", shape, Format::Mxfp4, &experts.blocks)?)
}

// ---- Measuring

fn bench(build: &Build, name: &str, contexts: &[&str]) -> Outcome<()> {
    let card = Card::open()?;
    let shape = Shape::named(name, card.multiprocessors)
        .ok_or_else(|| format!("shapes: {}", MadeUp::NAMES.join(", ")))?;
    println!("{}, {} multiprocessors; {name}, random weights", card.name, card.multiprocessors);
    let mut decoder = Decoder::with_random_weights(card, shape.clone(), build)?;
    let (registers, spilled) = decoder.registers()?;
    let bandwidth = Cuda::open(&build.cache)?.read_bandwidth()?;
    println!("{registers} registers, {spilled} bytes of local memory; reads at {:.2} TB/s", bandwidth / 1e12);
    println!(
        "| context | tok/s | us a token | floor us | share of floor | us a layer beyond the floor | with all logits | the same tokens |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let contexts = if contexts.is_empty() { &["4096"] } else { contexts };
    for context in contexts {
        let context: usize = context.parse()?;
        let steps = if context > 32_768 { 64 } else { 256 };
        let sequence = decoder.sequence(context + steps, |i| i)?;
        decoder.run(&sequence, context, &[1], 16, false)?;
        let run = middle(&mut decoder, &sequence, context, steps, false)?;
        let whole = middle(&mut decoder, &sequence, context, steps, true)?;
        let alike = run.tokens.iter().zip(&whole.tokens).take_while(|(a, b)| a == b).count();
        let micros = run.seconds * 1e6 / steps as f64;
        let floor = step_bytes(&shape, context) / bandwidth * 1e6;
        println!(
            "| {context} | {:.0} | {micros:.1} | {floor:.1} | {:.0}% | {:.1} | {:.0} | {alike} of {steps} |",
            1e6 / micros,
            100.0 * floor / micros,
            (micros - floor) / shape.layers as f64,
            steps as f64 / whole.seconds,
        );
        if build.marking {
            print_marks(&run.clocks_ns, steps);
        }
    }
    Ok(())
}

/// The middle of three runs.
fn middle(
    decoder: &mut Decoder,
    sequence: &Sequence,
    context: usize,
    steps: usize,
    want_logits: bool,
) -> Outcome<Run> {
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(decoder.run(sequence, context, &[1], steps, want_logits)?);
    }
    runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(runs.swap_remove(1))
}

fn print_marks(clocks_ns: &[u64], steps: usize) {
    for (what, ns) in MARKS.iter().zip(clocks_ns) {
        println!("    {what:16} {:8.1} us a token", *ns as f64 / 1000.0 / steps as f64);
    }
}

/// Bytes that a step must read: the active weights, and the keys and values seen.
fn step_bytes(shape: &Shape, context: usize) -> f64 {
    let (attention, inner) = match shape.gpt_oss {
        true => (Packing::Rows8, Packing::Mxfp4),
        false => (Packing::Levels4, Packing::Levels4),
    };
    let layer = attention.bytes(shape.qkv_rows(), shape.hidden)
        + attention.bytes(shape.hidden, shape.q_rows())
        + inner.bytes(3 * shape.used * shape.ffn, shape.hidden);
    let token = shape.cache_bytes(1) / (shape.layers * KV_BLOCK_TOKENS); // bytes of KV in one layer
    let windowed = if shape.window > 0 { context.min(shape.window) } else { context };
    let seen = (context + windowed) as f64 / 2.0; // by a full layer and one with a window
    let head = Packing::Rows8.bytes(shape.vocab, shape.hidden) as f64;
    shape.layers as f64 * (layer as f64 + token as f64 * seen) + head
}
