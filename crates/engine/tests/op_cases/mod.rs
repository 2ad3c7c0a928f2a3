//! Every operation with weights and inputs, to be run on any device and compared with the plain one.
#![allow(dead_code, unreachable_pub, reason = "each user has its own part")]

mod errors;

use crate::support::{Random, random_tensor, vector_tensor};
pub use errors::Errors;
use errors::{ATTENTION, LONG_ATTENTION, SUMS, rounded};
use flint_engine::batch::Batch;
use flint_engine::device::{Activation, Attention, Device, Head, Mixture, Mlp, Norm};
use flint_engine::load::Tensor;
use flint_engine::model::config::{Arch, Config, Experts, Rope, RopePairs};
use flint_engine::quant::Format;

pub const ROWS_MAX: usize = 256;
pub const BLOCKS: usize = 64;

pub fn config(heads: usize, kv_heads: usize, head_dim: usize) -> Config {
    Config {
        arch: Arch::Llama,
        layers: 2,
        hidden: 64,
        heads,
        kv_heads,
        head_dim,
        ffn: 64,
        experts: Some(Experts { count: 8, used: 4, normalize: true }),
        vocab: 128,
        context: BLOCKS * 32,
        norm_eps: 1e-5,
        rope: Rope {
            frequencies: (0..head_dim / 2).map(|i| 0.7f32.powi(i as i32)).collect(),
            magnitude: 1.1,
            pairs: RopePairs::Halves,
        },
        window: None,
    }
}

/// An operation with its weights and inputs, to be run on any device.
pub trait Case {
    fn run<D: Device>(&self, device: &mut D) -> Vec<f32>;
}

/// Whoever runs the cases.
pub trait Visit {
    fn case<C: Case>(&mut self, name: &str, case: &C, most: Errors);
}

/// A buffer with these rows; what the operation should overwrite is poisoned by the caller.
pub fn buffer<D: Device>(device: &mut D, rows: &[Vec<f32>]) -> D::Buffer {
    let mut buffer = device.buffer(ROWS_MAX, rows[0].len()).unwrap();
    for (i, row) in rows.iter().enumerate() {
        device.read(&mut buffer, i).copy_from_slice(row);
    }
    buffer
}

pub fn read_all<D: Device>(device: &mut D, buffer: &mut D::Buffer, rows: usize) -> Vec<f32> {
    (0..rows).flat_map(|row| device.read(buffer, row).to_vec()).collect()
}

pub fn poisoned(rows: usize, width: usize) -> Vec<Vec<f32>> {
    vec![vec![f32::NAN; width]; rows]
}

pub fn simple_batch(rows: usize) -> Batch {
    let mut batch = Batch::default();
    batch.push(&vec![1; rows], 0, &(0..BLOCKS as u32).collect::<Vec<_>>(), true);
    batch
}

pub fn begin<D: Device>(device: &mut D, batch: Batch) -> Batch {
    device.begin(&config(4, 2, 32).rope, &batch);
    batch
}

pub fn norm<D: Device>(device: &mut D, weight: &Tensor) -> Norm<D> {
    Norm { weight: device.vector(std::slice::from_ref(weight)).unwrap(), eps: 1e-5 }
}

pub struct Project {
    pub parts: Vec<Tensor>,
    pub bias: Option<Tensor>,
    pub input: Vec<Vec<f32>>,
    pub x: Vec<Vec<f32>>,
}

impl Case for Project {
    fn run<D: Device>(&self, device: &mut D) -> Vec<f32> {
        let rows = self.input.len();
        let matrix = device.matrix(&self.parts).unwrap();
        let bias = self.bias.as_ref().map(|bias| device.vector(std::slice::from_ref(bias)).unwrap());
        device.ready(&config(4, 2, 32), ROWS_MAX).unwrap();
        let input = buffer(device, &self.input);
        let mut x = buffer(device, &self.x);
        let batch = begin(device, simple_batch(rows));
        device.project_add(&matrix, bias.as_ref(), &input, &mut x, &batch);
        read_all(device, &mut x, rows)
    }
}

/// Rows whose 8-bit form is exact, with a scale for each `block` columns and for each 32 of them, so that only the
/// arithmetic of the kernel is compared.
pub fn exact_rows(random: &mut Random, rows: usize, cols: usize, block: usize) -> Vec<Vec<f32>> {
    let row = |random: &mut Random| {
        let mut scale = 0.0;
        let value = |at: usize| {
            if at.is_multiple_of(block) {
                scale = random.uniform(0.5, 2.0);
            }
            let level = if at % 32 == 16 { 127.0 } else { random.below(255) as f32 - 127.0 };
            level * scale / 127.0
        };
        (0..cols).map(value).collect()
    };
    (0..rows).map(|_| row(random)).collect()
}

#[derive(Clone)]
pub struct Attend {
    pub heads: (usize, usize, usize),
    pub window: Option<usize>,
    pub pairs: RopePairs,
    pub norm: Tensor,
    pub qkv: Vec<Tensor>,
    pub bias: Option<Tensor>,
    pub head_norms: Option<(Tensor, Tensor)>,
    pub sinks: Option<Tensor>,
    pub steps: Vec<(Batch, Vec<Vec<f32>>)>, // batches in order, with x of each
}

impl Attend {
    pub fn config(&self) -> Config {
        let (heads, kv_heads, head_dim) = self.heads;
        let mut config = config(heads, kv_heads, head_dim);
        config.rope.pairs = self.pairs;
        config
    }

    pub fn weights<D: Device>(&self, device: &mut D, out: &Tensor) -> Attention<D> {
        let (heads, kv_heads, head_dim) = self.heads;
        Attention {
            layer: 1,
            heads,
            kv_heads,
            head_dim,
            window: self.window,
            norm: norm(device, &self.norm),
            qkv: device.matrix(&self.qkv).unwrap(),
            qkv_bias: self.bias.as_ref().map(|b| device.vector(std::slice::from_ref(b)).unwrap()),
            q_norm: self.head_norms.as_ref().map(|(q, _)| norm(device, q)),
            k_norm: self.head_norms.as_ref().map(|(_, k)| norm(device, k)),
            sinks: self.sinks.as_ref().map(|s| device.vector(std::slice::from_ref(s)).unwrap()),
            out: device.matrix(std::slice::from_ref(out)).unwrap(),
            out_bias: None,
        }
    }
}

impl Case for Attend {
    fn run<D: Device>(&self, device: &mut D) -> Vec<f32> {
        let ((heads, kv_heads, head_dim), config) = (self.heads, self.config());
        let weights = self.weights(device, &self.qkv[0]);
        device.ready(&config, ROWS_MAX).unwrap();
        let mut cache = device.cache(&config, BLOCKS).unwrap();
        let mut results = Vec::new();
        for (batch, x) in &self.steps {
            let x = buffer(device, x);
            let mut qkv = buffer(device, &poisoned(batch.rows(), (heads + 2 * kv_heads) * head_dim));
            let mut out = buffer(device, &poisoned(batch.rows(), heads * head_dim));
            device.begin(&config.rope, batch);
            device.qkv(&weights, &x, batch, &mut qkv, &mut cache);
            device.attend(&weights, &qkv, batch, &cache, &mut out);
            results.extend(read_all(device, &mut out, batch.rows()));
        }
        results
    }
}

/// Two sequences whose rows alternate between prefill and decode, over scattered blocks.
pub fn two_sequences(random: &mut Random, hidden: usize, long: usize) -> Vec<(Batch, Vec<Vec<f32>>)> {
    let mut blocks: Vec<u32> = (0..BLOCKS as u32).collect();
    random.shuffle(&mut blocks);
    let (a, b) = blocks.split_at(BLOCKS / 2);
    let mut steps = Vec::new();
    let (mut at_a, mut at_b) = (0, 0);
    let mut step = |rows_a: usize, rows_b: usize, random: &mut Random| {
        let mut batch = Batch::default();
        for (rows, at, blocks) in [(rows_a, &mut at_a, a), (rows_b, &mut at_b, b)] {
            if rows > 0 {
                batch.push(&vec![0; rows], *at, blocks, true);
                *at += rows;
            }
        }
        let x = (0..batch.rows()).map(|_| random.normals(hidden, 1.0)).collect();
        steps.push((batch, x));
    };
    for _ in 0..long {
        step(50, 0, random);
    }
    step(7, 20, random);
    step(1, 9, random);
    step(1, 1, random);
    step(0, 1, random);
    step(13, 1, random);
    steps
}

pub fn attend_case(
    random: &mut Random,
    heads: (usize, usize, usize),
    window: Option<usize>,
    long: usize,
) -> Attend {
    let (q, kv, dim) = heads;
    let hidden = 48;
    let matrix = |random: &mut Random, name: &str, rows: usize| {
        random_tensor(random, name, &[rows * dim, hidden], Format::F32)
    };
    Attend {
        heads,
        window,
        pairs: if random.below(2) == 0 { RopePairs::Halves } else { RopePairs::Adjacent },
        norm: vector_tensor("norm", &random.normals(hidden, 1.0)),
        qkv: vec![matrix(random, "q", q), matrix(random, "k", kv), matrix(random, "v", kv)],
        bias: (random.below(2) == 0).then(|| vector_tensor("bias", &random.normals((q + 2 * kv) * dim, 1.0))),
        head_norms: (random.below(2) == 0).then(|| {
            (vector_tensor("qn", &random.normals(dim, 1.0)), vector_tensor("kn", &random.normals(dim, 1.0)))
        }),
        sinks: (random.below(2) == 0).then(|| vector_tensor("sinks", &random.normals(q, 1.0))),
        steps: two_sequences(random, hidden, long),
    }
}

pub struct Gated {
    pub norm: Tensor,
    pub gate: Tensor,
    pub up: Tensor,
    pub x: Vec<Vec<f32>>,
}

impl Case for Gated {
    fn run<D: Device>(&self, device: &mut D) -> Vec<f32> {
        let [gate, up] = device.gated(&self.gate, &self.up).unwrap();
        let down = device.matrix(std::slice::from_ref(&self.up)).unwrap();
        let weights = Mlp { norm: norm(device, &self.norm), gate, up, down };
        device.ready(&config(4, 2, 32), ROWS_MAX).unwrap();
        let rows = self.x.len();
        let x = buffer(device, &self.x);
        let mut hidden = buffer(device, &poisoned(rows, self.gate.rows()));
        let batch = begin(device, simple_batch(rows));
        device.gate_up(&weights, &x, &mut hidden, &batch);
        read_all(device, &mut hidden, rows)
    }
}

#[derive(Clone)]
pub struct Mixed {
    pub used: usize,
    pub normalize: bool,
    pub activation: Activation,
    pub norm: Tensor,
    pub router: Tensor,
    pub experts: [Tensor; 3],        // gate, up, down
    pub biases: Option<[Tensor; 4]>, // router, gate, up, down
    pub x: Vec<Vec<f32>>,
}

impl Mixed {
    fn weights<D: Device>(&self, device: &mut D) -> Mixture<D> {
        let one = std::slice::from_ref;
        let bias = |device: &mut D, i: usize| {
            self.biases.as_ref().map(|biases| device.vector(one(&biases[i])).unwrap())
        };
        let [gate, up] = device.gated_experts(&self.experts[0], &self.experts[1]).unwrap();
        Mixture {
            norm: norm(device, &self.norm),
            used: self.used,
            normalize: self.normalize,
            activation: self.activation,
            router: device.matrix(one(&self.router)).unwrap(),
            router_bias: bias(device, 0),
            gate,
            gate_bias: bias(device, 1),
            up,
            up_bias: bias(device, 2),
            down: device.experts(&self.experts[2]).unwrap(),
            down_bias: bias(device, 3),
        }
    }
}

impl Case for Mixed {
    fn run<D: Device>(&self, device: &mut D) -> Vec<f32> {
        let weights = self.weights(device);
        device.ready(&config(4, 2, 32), ROWS_MAX).unwrap();
        let mut x = buffer(device, &self.x);
        let batch = begin(device, simple_batch(self.x.len()));
        device.mixture(&weights, &mut x, &batch);
        read_all(device, &mut x, self.x.len())
    }
}

/// The end of a layer and the beginning of the next, without a look at what lies between. Each row is a sequence of its own, whose
/// cached keys and values are zeros.
#[derive(Clone)]
pub struct Joint {
    pub mixed: Mixed,
    pub attend: Attend,
    pub out: Tensor,
    pub position: usize,
}

impl Case for Joint {
    fn run<D: Device>(&self, device: &mut D) -> Vec<f32> {
        let ((heads, kv_heads, head_dim), config) = (self.attend.heads, self.attend.config());
        let (mixture, attention) = (self.mixed.weights(device), self.attend.weights(device, &self.out));
        let rows = self.mixed.x.len();
        device.ready(&config, ROWS_MAX).unwrap();
        let mut cache = device.cache(&config, BLOCKS).unwrap();
        let mut batch = Batch::default();
        let of_each = self.position / 32 + 1;
        for row in 0..rows {
            let blocks: Vec<u32> = (row * of_each..(row + 1) * of_each).map(|block| block as u32).collect();
            batch.push(&[1], self.position, &blocks, true);
        }
        let mut x = buffer(device, &self.mixed.x);
        let mut qkv = buffer(device, &poisoned(rows, (heads + 2 * kv_heads) * head_dim));
        let mut attended = buffer(device, &poisoned(rows, heads * head_dim));
        device.begin(&config.rope, &batch);
        device.mixture(&mixture, &mut x, &batch);
        device.qkv(&attention, &x, &batch, &mut qkv, &mut cache);
        device.attend(&attention, &qkv, &batch, &cache, &mut attended);
        device.project_add(&attention.out, None, &attended, &mut x, &batch);
        read_all(device, &mut x, rows)
    }
}

/// With sizes that a card's kernels for a few rows take: whole ranges a KV head, and two chunks.
pub fn joint_case(random: &mut Random, rows: usize) -> Joint {
    let (heads, hidden, ffn, experts, position) = ((16, 8, 64), 704, 1408, 8, 200);
    let (q, kv, dim) = heads;
    let matrix = |random: &mut Random, name: &str, rows: usize, cols: usize| {
        random_tensor(random, name, &[rows, cols], Format::F32)
    };
    let expert = |random: &mut Random, name: &str, [rows, cols]: [usize; 2]| {
        random_tensor(random, name, &[experts, rows, cols], Format::Mxfp4)
    };
    Joint {
        mixed: Mixed {
            used: 3,
            normalize: true,
            activation: Activation::ClampedSwiglu,
            norm: vector_tensor("norm", &random.normals(hidden, 1.0)),
            router: matrix(random, "router", experts, hidden),
            experts: [
                expert(random, "gate", [ffn, hidden]),
                expert(random, "up", [ffn, hidden]),
                expert(random, "down", [hidden, ffn]),
            ],
            biases: None,
            x: (0..rows).map(|_| random.normals(hidden, 1.0)).collect(),
        },
        attend: Attend {
            heads,
            window: Some(150),
            pairs: RopePairs::Halves,
            norm: vector_tensor("norm", &random.normals(hidden, 1.0)),
            qkv: vec![
                matrix(random, "q", q * dim, hidden),
                matrix(random, "k", kv * dim, hidden),
                matrix(random, "v", kv * dim, hidden),
            ],
            bias: None,
            head_norms: None,
            sinks: Some(vector_tensor("sinks", &random.normals(q, 1.0))),
            steps: Vec::new(),
        },
        out: matrix(random, "out", hidden, q * dim),
        position,
    }
}

pub fn joints<V: Visit>(visit: &mut V) {
    for rows in [1, 2, 5, 8, 9] {
        visit.case(
            &format!("mixture and attention, {rows} rows"),
            &joint_case(&mut Random::new(51), rows),
            rounded(3e-2, 1e-1),
        );
    }
}

pub struct Logits {
    pub norm: Tensor,
    pub matrix: Tensor,
    pub x: Vec<Vec<f32>>,
    pub rows: Vec<u32>,
}

impl Case for Logits {
    fn run<D: Device>(&self, device: &mut D) -> Vec<f32> {
        let weights = Head {
            norm: norm(device, &self.norm),
            matrix: device.matrix(std::slice::from_ref(&self.matrix)).unwrap(),
        };
        device.ready(&config(4, 2, 32), ROWS_MAX).unwrap();
        let mut batch = simple_batch(self.x.len());
        batch.logit_rows = self.rows.clone();
        let batch = begin(device, batch);
        let x = buffer(device, &self.x);
        let mut logits = buffer(device, &poisoned(self.rows.len(), self.matrix.rows()));
        device.head(&weights, &x, &batch, &mut logits);
        read_all(device, &mut logits, self.rows.len())
    }
}

pub struct Embed {
    pub table: Tensor,
    pub tokens: Vec<u32>,
}

impl Case for Embed {
    fn run<D: Device>(&self, device: &mut D) -> Vec<f32> {
        let table = device.table(&self.table).unwrap();
        let mut batch = simple_batch(self.tokens.len());
        batch.tokens = self.tokens.clone();
        let mut x = buffer(device, &poisoned(self.tokens.len(), self.table.cols()));
        device.embed(&table, &batch, &mut x);
        read_all(device, &mut x, self.tokens.len())
    }
}

/// A copied block serves as the original does.
pub struct CopyBlock(pub Attend);

impl Case for CopyBlock {
    fn run<D: Device>(&self, device: &mut D) -> Vec<f32> {
        let Attend { heads: (heads, kv_heads, head_dim), .. } = self.0;
        let config = config(heads, kv_heads, head_dim);
        let weights = Attention {
            layer: 1,
            heads,
            kv_heads,
            head_dim,
            window: None,
            norm: norm(device, &self.0.norm),
            qkv: device.matrix(&self.0.qkv).unwrap(),
            qkv_bias: None,
            q_norm: None,
            k_norm: None,
            sinks: None,
            out: device.matrix(&self.0.qkv[..1]).unwrap(),
            out_bias: None,
        };
        device.ready(&config, ROWS_MAX).unwrap();
        let mut cache = device.cache(&config, BLOCKS).unwrap();
        let x = buffer(device, &self.0.steps[0].1);
        let rows = self.0.steps[0].1.len();
        let mut results = Vec::new();
        for (position, blocks) in [(0, [3, 9]), (rows, [5, 9])] {
            let mut batch = Batch::default();
            batch.push(&vec![0; rows.min(6)], position, &blocks, true);
            let mut qkv = buffer(device, &poisoned(rows, (heads + 2 * kv_heads) * head_dim));
            let mut out = buffer(device, &poisoned(rows, heads * head_dim));
            device.begin(&config.rope, &batch);
            device.qkv(&weights, &x, &batch, &mut qkv, &mut cache);
            device.attend(&weights, &qkv, &batch, &cache, &mut out);
            results.extend(read_all(device, &mut out, batch.rows()));
            device.copy_block(&mut cache, 3, 5);
        }
        results
    }
}

/// Tiles of 8, 4, 2 and 1 rows, and both sides of where the cut into rows begins and ends.
const ROW_COUNTS: [usize; 13] = [1, 2, 3, 5, 8, 12, 16, 17, 31, 63, 64, 65, 200];

pub fn products<V: Visit>(visit: &mut V) {
    let mut random = Random::new(1);
    for format in Format::ALL.into_iter().filter(|format| *format != Format::Fp8) {
        for (round, rows) in ROW_COUNTS.into_iter().enumerate() {
            let block = format.block_len();
            let cols = if block == 1 { 37 + 13 * round } else { block * (1 + round % 3) };
            let outs = [5, 16, 33, 48, 100][round % 5];
            let case = Project {
                parts: vec![random_tensor(&mut random, "a", &[outs, cols], format)],
                bias: (round % 2 == 0).then(|| vector_tensor("b", &random.normals(outs, 1.0))),
                input: exact_rows(&mut random, rows, cols, block.max(32)),
                x: (0..rows).map(|_| random.normals(outs, 1.0)).collect(),
            };
            visit.case(&format!("{} {outs}x{cols} rows {rows}", format.name()), &case, SUMS);
        }
    }
}

/// Rows so long that a few of them go in more than one group, and that threads share one.
pub fn wide_products<V: Visit>(visit: &mut V) {
    let mut random = Random::new(13);
    let (outs, cols) = (33, 8960);
    for format in [Format::Q4_1, Format::Q4K, Format::Q6K, Format::Q8_0, Format::Mxfp4] {
        for rows in [1, 2, 40] {
            let case = Project {
                parts: vec![random_tensor(&mut random, "a", &[outs, cols], format)],
                bias: Some(vector_tensor("b", &random.normals(outs, 1.0))),
                input: exact_rows(&mut random, rows, cols, format.block_len().max(32)),
                x: (0..rows).map(|_| random.normals(outs, 1.0)).collect(),
            };
            visit.case(&format!("{} {outs}x{cols} rows {rows}", format.name()), &case, SUMS);
        }
    }
}

pub fn stacked_products<V: Visit>(visit: &mut V) {
    let mut random = Random::new(2);
    let parts = vec![
        random_tensor(&mut random, "q", &[48, 256], Format::Q4K),
        random_tensor(&mut random, "k", &[16, 256], Format::Q6K),
        random_tensor(&mut random, "v", &[32, 256], Format::Q8_0),
    ];
    let case = Project {
        parts,
        bias: Some(vector_tensor("b", &random.normals(96, 1.0))),
        input: exact_rows(&mut random, 11, 256, 256),
        x: vec![vec![0.0; 96]; 11],
    };
    visit.case("stacked", &case, SUMS);
}

pub fn ordinary_products<V: Visit>(visit: &mut V) {
    let mut random = Random::new(3);
    let case = Project {
        parts: vec![random_tensor(&mut random, "a", &[96, 512], Format::Q4K)],
        bias: None,
        input: (0..9).map(|_| random.normals(512, 1.0)).collect(),
        x: vec![vec![0.0; 96]; 9],
    };
    visit.case("8-bit inputs", &case, rounded(1.5e-2, 3e-2));
}

pub fn attention_shapes<V: Visit>(visit: &mut V) {
    let mut random = Random::new(4);
    let shapes = [(3, 3, 16), (9, 3, 64), (6, 1, 32), (4, 2, 128), (16, 2, 48), (5, 5, 80), (12, 1, 16)];
    for (round, heads) in shapes.into_iter().enumerate() {
        for window in [None, Some(1), Some(8), Some(100)] {
            let case = attend_case(&mut random, heads, window, round % 2);
            visit.case(&format!("attention {heads:?}, window {window:?}"), &case, ATTENTION);
        }
    }
}

pub fn attention_chunks<V: Visit>(visit: &mut V) {
    let mut random = Random::new(5);
    for window in [None, Some(128), Some(300)] {
        let case = attend_case(&mut random, (6, 2, 32), window, 12);
        visit.case(&format!("attention over 600 positions, window {window:?}"), &case, ATTENTION);
    }
}

pub fn gated<V: Visit>(visit: &mut V) {
    let mut random = Random::new(6);
    for (rows, ffn, hidden, formats, most) in [
        (1, 7, 33, [Format::F32; 2], SUMS),
        (3, 32, 64, [Format::F16; 2], SUMS),
        (9, 75, 40, [Format::Bf16; 2], SUMS),
        (5, 96, 256, [Format::Q4K; 2], rounded(4e-2, 1.5e-1)),
        (40, 64, 32, [Format::Q8_0; 2], rounded(2e-2, 1e-1)),
        // Panels of two sizes by turns, the last of each of some rows.
        (5, 100, 512, [Format::Q4K, Format::Q6K], rounded(3e-2, 1.5e-1)),
        (12, 41, 256, [Format::Q6K, Format::Q4K], rounded(4e-2, 2.5e-1)),
        (33, 72, 96, [Format::Q4_0, Format::Mxfp4], rounded(2e-2, 2e-1)),
        (70, 50, 64, [Format::Bf16, Format::Q8_0], rounded(1.5e-2, 1.5e-1)),
        (2, 23, 256, [Format::Q8_0, Format::Q5K], rounded(3e-2, 1.5e-1)),
        // A row so long that threads prepare it together.
        (1, 37, 5120, [Format::Q4K, Format::Q6K], rounded(5e-2, 2e-1)),
    ] {
        let [gate, up] = formats;
        let case = Gated {
            norm: vector_tensor("norm", &random.normals(hidden, 1.0)),
            gate: random_tensor(&mut random, "gate", &[ffn, hidden], gate),
            up: random_tensor(&mut random, "up", &[ffn, hidden], up),
            x: (0..rows).map(|_| random.normals(hidden, 1.0)).collect(),
        };
        let formats = formats.map(Format::name).join(" and ");
        visit.case(&format!("gated {rows} rows {ffn}x{hidden} {formats}"), &case, most);
    }
}

pub fn mixtures<V: Visit>(visit: &mut V) {
    let mut random = Random::new(7);
    let usual = [64, 96];
    for (round, (rows, experts, formats, [hidden, ffn], most)) in [
        (1, 8, [Format::F32; 3], usual, SUMS),
        (13, 5, [Format::F32; 3], usual, SUMS),
        (40, 8, [Format::Bf16; 3], usual, SUMS),
        (6, 8, [Format::Mxfp4; 3], usual, rounded(2e-3, 1e-2)),
        (21, 3, [Format::Q8_0; 3], usual, rounded(2e-2, 6e-2)),
        (9, 4, [Format::Q4K; 3], [256, 256], rounded(1.5e-2, 5e-2)),
        (20, 4, [Format::Q6K, Format::Q4K, Format::Q6K], [512, 256], rounded(3e-2, 1e-1)),
        // Widths of no whole panels; a quantised down would not have them.
        (30, 3, [Format::Q4K, Format::Q6K, Format::F16], [256, 75], rounded(1.5e-2, 8e-2)),
        (9, 5, [Format::Mxfp4, Format::Q8_0, Format::F32], [64, 41], rounded(8e-3, 3e-2)),
    ]
    .into_iter()
    .enumerate()
    {
        let case = Mixed {
            used: 1 + round % 3,
            normalize: round % 2 == 0,
            activation: if round % 2 == 0 { Activation::ClampedSwiglu } else { Activation::Swiglu },
            norm: vector_tensor("norm", &random.normals(hidden, 1.0)),
            router: random_tensor(&mut random, "router", &[experts, hidden], Format::F32),
            experts: [
                random_tensor(&mut random, "gate", &[experts, ffn, hidden], formats[0]),
                random_tensor(&mut random, "up", &[experts, ffn, hidden], formats[1]),
                random_tensor(&mut random, "down", &[experts, hidden, ffn], formats[2]),
            ],
            biases: (round % 2 == 0).then(|| {
                [experts, experts * ffn, experts * ffn, experts * hidden]
                    .map(|len| vector_tensor("bias", &random.normals(len, 1.0)))
            }),
            x: (0..rows).map(|_| random.normals(hidden, 1.0)).collect(),
        };
        let formats = formats.map(Format::name).join(", ");
        visit.case(&format!("mixture {rows} rows, {experts} experts {formats}"), &case, most);
    }
}

pub fn logits<V: Visit>(visit: &mut V) {
    let mut random = Random::new(8);
    for (vocab, hidden, format) in [(77, 40, Format::F32), (130, 64, Format::F16), (31, 17, Format::Bf16)] {
        let case = Logits {
            norm: vector_tensor("norm", &random.normals(hidden, 1.0)),
            matrix: random_tensor(&mut random, "head", &[vocab, hidden], format),
            x: (0..12).map(|_| random.normals(hidden, 1.0)).collect(),
            rows: vec![0, 3, 4, 11],
        };
        visit.case(&format!("head {vocab}x{hidden}"), &case, SUMS);
    }
}

pub fn embeddings<V: Visit>(visit: &mut V) {
    let mut random = Random::new(9);
    for format in [Format::F32, Format::F16, Format::Q8_0, Format::Q6K, Format::Q4_1] {
        let table = random_tensor(&mut random, "table", &[50, 256], format);
        visit.case(format.name(), &Embed { table, tokens: vec![0, 49, 7, 7, 21] }, Errors::NONE);
    }
}

/// The longest heads that there may be.
pub fn attention_of_long_heads<V: Visit>(visit: &mut V) {
    let mut random = Random::new(19);
    for (heads, window) in [((4, 2, 256), None), ((7, 1, 256), Some(30)), ((2, 2, 240), None)] {
        let case = attend_case(&mut random, heads, window, 1);
        visit.case(&format!("attention {heads:?}, window {window:?}"), &case, LONG_ATTENTION);
    }
}

pub fn copied_blocks<V: Visit>(visit: &mut V) {
    let mut random = Random::new(10);
    let mut case = attend_case(&mut random, (4, 2, 32), None, 0);
    case.steps = vec![(simple_batch(6), (0..6).map(|_| random.normals(48, 1.0)).collect())];
    visit.case("copied block", &CopyBlock(case), ATTENTION);
}
