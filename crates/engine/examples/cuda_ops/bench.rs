//! Prefill and decode of made-up weights in the shapes of known models.
//!
//! A model has a few layers of weights that are gone through in turn as often as it has layers: more than the caches of
//! a card hold, and loaded in seconds.

use super::cuda;
use crate::support::{Random, vector_tensor};
use flint_engine::batch::Batch;
use flint_engine::device::cuda::Cuda;
use flint_engine::device::{Activation, Attention, Device, Head, Mixture, Mlp, Norm};
use flint_engine::load::Tensor;
use flint_engine::model::State;
use flint_engine::model::config::{Arch, Config, Experts, Rope, RopePairs};
use flint_engine::quant::Format;
use std::time::Instant;

struct Shape {
    name: &'static str,
    layers: usize,
    distinct: usize, // layers with weights of their own
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    ffn: usize,
    experts: Option<(usize, usize)>, // all, used
    vocab: usize,
    attention: Format,
    mlp: Format,
}

const SHAPES: [Shape; 4] = [
    Shape {
        name: "gpt-oss-20b",
        layers: 24,
        distinct: 2,
        hidden: 2880,
        heads: 64,
        kv_heads: 8,
        head_dim: 64,
        ffn: 2880,
        experts: Some((32, 4)),
        vocab: 201_088,
        attention: Format::Q8_0,
        mlp: Format::Mxfp4,
    },
    Shape {
        name: "qwen3-coder-30b",
        layers: 48,
        distinct: 2,
        hidden: 2048,
        heads: 32,
        kv_heads: 4,
        head_dim: 128,
        ffn: 768,
        experts: Some((128, 8)),
        vocab: 151_936,
        attention: Format::Q4K,
        mlp: Format::Q4K,
    },
    Shape {
        name: "qwen2.5-coder-7b",
        layers: 28,
        distinct: 4,
        hidden: 3584,
        heads: 28,
        kv_heads: 4,
        head_dim: 128,
        ffn: 18_944,
        experts: None,
        vocab: 152_064,
        attention: Format::Q4K,
        mlp: Format::Q4K,
    },
    Shape {
        name: "qwen2.5-coder-1.5b",
        layers: 28,
        distinct: 6,
        hidden: 1536,
        heads: 12,
        kv_heads: 2,
        head_dim: 128,
        ffn: 8960,
        experts: None,
        vocab: 151_936,
        attention: Format::Q4K,
        mlp: Format::Q4K,
    },
];

/// What follows attention in a layer.
enum Inner {
    Dense(Mlp<Cuda>),
    Mixed(Box<Mixture<Cuda>>),
}

struct Made {
    device: Cuda,
    config: Config,
    layers: usize,
    table: Tensor,
    weights: Vec<(Attention<Cuda>, Inner)>,
    head: Head<Cuda>,
    state: State<Cuda>,
}

const CONTEXT: usize = 8192;
const TABLE_ROWS: usize = 512;

/// Weights of random bytes with small scales; the same blocks come again and again.
fn tensor(random: &mut Random, shape: &[usize], format: Format) -> Tensor {
    let blocks = shape.iter().product::<usize>() / format.block_len();
    let mut some = Vec::new();
    for _ in 0..1021.min(blocks) {
        let start = some.len();
        some.extend((0..format.block_bytes()).map(|_| random.next() as u8));
        let block = &mut some[start..];
        match format {
            Format::Mxfp4 => block[0] = 119,
            Format::Q8_0 => block[..2].copy_from_slice(&[0x00, 0x08]), // 2^-13
            // 2^-14, and as much below as makes the mean zero.
            Format::Q4K => block[..4].copy_from_slice(&[0x00, 0x04, 0x80, 0x0F]),
            _ => block.iter_mut().for_each(|byte| *byte &= 0x3B),
        }
    }
    let bytes: Vec<u8> = some.iter().copied().cycle().take(blocks * format.block_bytes()).collect();
    Tensor::in_memory("made up", shape, format, &bytes).unwrap()
}

impl Made {
    fn new(shape: &Shape) -> Made {
        let mut random = Random::new(5);
        let mut device = cuda().replaying();
        let config = config(shape);
        let Shape { hidden, ffn, heads, kv_heads, head_dim, .. } = *shape;
        let one = std::slice::from_ref;
        let ones =
            |device: &mut Cuda, len: usize| device.vector(&[vector_tensor("v", &vec![1.0; len])]).unwrap();
        let bias = |device: &mut Cuda, len: usize| {
            let values = Random::new(len as u64).normals(len, 0.01);
            device.vector(&[vector_tensor("v", &values)]).unwrap()
        };
        let norm = |device: &mut Cuda| Norm { weight: ones(device, hidden), eps: 1e-5 };
        let mut weights = Vec::new();
        for layer in 0..shape.distinct {
            let qkv = (heads + 2 * kv_heads) * head_dim;
            let attention = Attention {
                layer,
                heads,
                kv_heads,
                head_dim,
                window: config.window(layer),
                norm: norm(&mut device),
                qkv: device.matrix(one(&tensor(&mut random, &[qkv, hidden], shape.attention))).unwrap(),
                qkv_bias: Some(bias(&mut device, qkv)),
                q_norm: None,
                k_norm: None,
                sinks: shape.experts.map(|_| ones(&mut device, heads)),
                out: device
                    .matrix(one(&tensor(&mut random, &[hidden, heads * head_dim], shape.attention)))
                    .unwrap(),
                out_bias: None,
            };
            let inner = match shape.experts {
                None => Inner::Dense(Mlp {
                    norm: norm(&mut device),
                    gate: device.matrix(one(&tensor(&mut random, &[ffn, hidden], shape.mlp))).unwrap(),
                    up: device.matrix(one(&tensor(&mut random, &[ffn, hidden], shape.mlp))).unwrap(),
                    down: device.matrix(one(&tensor(&mut random, &[hidden, ffn], shape.mlp))).unwrap(),
                }),
                Some((count, used)) => {
                    let values = random.normals(count * hidden, 0.02);
                    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                    let router = Tensor::in_memory("router", &[count, hidden], Format::F32, &bytes).unwrap();
                    let mut experts = |device: &mut Cuda, rows: usize, cols: usize| {
                        device.experts(&tensor(&mut random, &[count, rows, cols], shape.mlp)).unwrap()
                    };
                    Inner::Mixed(Box::new(Mixture {
                        norm: norm(&mut device),
                        used,
                        normalize: true,
                        activation: Activation::ClampedSwiglu,
                        router: device.matrix(one(&router)).unwrap(),
                        router_bias: None,
                        gate: experts(&mut device, ffn, hidden),
                        gate_bias: Some(bias(&mut device, count * ffn)),
                        up: experts(&mut device, ffn, hidden),
                        up_bias: Some(bias(&mut device, count * ffn)),
                        down: experts(&mut device, hidden, ffn),
                        down_bias: Some(bias(&mut device, count * hidden)),
                    }))
                }
            };
            weights.push((attention, inner));
        }
        let matrix =
            device.matrix(one(&tensor(&mut random, &[shape.vocab, hidden], shape.attention))).unwrap();
        let head = Head { norm: norm(&mut device), matrix };
        device.ready(&config, 512).unwrap();
        let state = State {
            x: device.buffer(512, hidden).unwrap(),
            qkv: device.buffer(512, (heads + 2 * kv_heads) * head_dim).unwrap(),
            attended: device.buffer(512, heads * head_dim).unwrap(),
            inner: device.buffer(512, ffn).unwrap(),
            logits: device.buffer(64, shape.vocab).unwrap(),
            cache: device.cache(&config, CONTEXT / 32).unwrap(),
        };
        let table = tensor(&mut random, &[TABLE_ROWS, hidden], Format::Bf16);
        Made { device, config, layers: shape.layers, table, weights, head, state }
    }

    fn forward(&mut self, batch: &Batch) {
        let Made { device, config, table, weights, head, state, .. } = self;
        let State { x, qkv, attended, inner, logits, cache } = state;
        device.begin(&config.rope, batch);
        device.embed(table, batch, x);
        for (attention, mlp) in weights.iter().cycle().take(self.layers) {
            device.qkv(attention, x, batch, qkv, cache);
            device.attend(attention, qkv, batch, cache, attended);
            device.project_add(&attention.out, attention.out_bias.as_ref(), attended, x, batch);
            match mlp {
                Inner::Dense(mlp) => {
                    device.gate_up(mlp, x, inner, batch);
                    device.project_add(&mlp.down, None, inner, x, batch);
                }
                Inner::Mixed(mixture) => device.mixture(mixture, x, batch),
            }
        }
        device.head(head, x, batch, logits);
        device.finish().unwrap();
    }

    /// Milliseconds of a pass over `rows` rows of each of `sequences` sequences at `position`; the median.
    fn pass(&mut self, sequences: usize, rows: usize, position: usize, times: usize) -> f64 {
        let blocks: Vec<u32> = (0..(CONTEXT / 32) as u32).collect();
        let mut took: Vec<f64> = (0..times)
            .map(|time| {
                let mut batch = Batch::default();
                let tokens: Vec<u32> = (0..rows).map(|row| ((row * 7 + time) % TABLE_ROWS) as u32).collect();
                for _ in 0..sequences {
                    batch.push(&tokens, position, &blocks, true);
                }
                let begun = Instant::now();
                self.forward(&batch);
                begun.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        took.sort_by(f64::total_cmp);
        took[took.len() / 2]
    }
}

fn config(shape: &Shape) -> Config {
    Config {
        arch: Arch::GptOss,
        layers: shape.distinct,
        hidden: shape.hidden,
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
        ffn: shape.ffn,
        experts: shape.experts.map(|(count, used)| Experts { count, used, normalize: true }),
        vocab: shape.vocab,
        context: CONTEXT,
        norm_eps: 1e-5,
        rope: Rope {
            frequencies: (0..shape.head_dim / 2).map(|i| 0.8f32.powi(i as i32)).collect(),
            magnitude: 1.0,
            pairs: RopePairs::Halves,
        },
        window: (shape.name == "gpt-oss-20b").then_some(128),
    }
}

pub fn bench(only: &str) -> usize {
    for shape in SHAPES.iter().filter(|shape| shape.name.contains(only)) {
        let begun = Instant::now();
        let mut made = Made::new(shape);
        let loaded = begun.elapsed().as_secs_f64();
        made.pass(1, 512, 0, 1);
        let begun = Instant::now();
        for chunk in 0..8 {
            made.pass(1, 512, 512 * chunk, 1);
        }
        let prefill = 4096.0 / begun.elapsed().as_secs_f64();
        let [one, four, sixteen] = [1, 4, 16].map(|sequences| made.pass(sequences, 1, 4096, 12));
        let [eight, many] = [8, 64].map(|rows| made.pass(1, rows, 4096, 12));
        println!(
            "{:<20} prefill 4096: {prefill:.0} tok/s; at 4096 tokens, ms: decode {one:.3} ({:.0} tok/s), of 4 {four:.3}, of 16 {sixteen:.3}; verify 8 {eight:.3}, 64 {many:.3}; made in {loaded:.1} s",
            shape.name,
            1e3 / one
        );
    }
    0
}

/// Decode alone, at 4,096 tokens.
pub fn decode(only: &str) -> usize {
    for shape in SHAPES.iter().filter(|shape| shape.name.contains(only)) {
        let mut made = Made::new(shape);
        made.pass(1, 1, 4096, 300);
        let ms = made.pass(1, 1, 4096, 60);
        println!("{:<20} decode {ms:.3} ms ({:.0} tok/s)", shape.name, 1e3 / ms);
    }
    0
}

/// One pass of so many rows at 4,096 tokens.
pub fn pass(name: &str, rows: usize) -> usize {
    let Some(shape) = SHAPES.iter().find(|shape| shape.name == name) else { return 1 };
    println!("{:.3} ms", Made::new(shape).pass(1, rows, 4096, 1));
    0
}
