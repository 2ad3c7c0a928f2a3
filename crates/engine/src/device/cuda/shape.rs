//! The sizes of a gpt-oss model, and as constants of the kernels.

use super::CudaError;
use crate::limits::KV_BLOCK_TOKENS;
use crate::model::config::{Arch, Config, Rope, RopePairs};
use std::fmt::Write;

pub const HEAD_DIM: usize = 64;
pub const TILE_ROWS: usize = 16;
const WARPS: usize = 16;
const BRINGERS: usize = 4; // warps that bring the others their weights
const SLOTS: usize = 5;

#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    pub name: String,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub experts: usize,
    pub used: usize,
    pub ffn: usize, // width of one expert
    pub vocab: usize,
    pub window: usize, // tokens seen by the even layers
    pub norm_eps: f32,
    pub rope: Rope,
    pub grid: usize, // blocks, one a multiprocessor
}

impl Shape {
    /// A published model's sizes.
    pub fn named(name: &str, multiprocessors: usize) -> Option<Shape> {
        let (layers, experts) = match name {
            "gpt-oss-20b" => (24, 32),
            "gpt-oss-120b" => (36, 128),
            _ => return None,
        };
        Some(Shape {
            name: name.into(),
            layers,
            hidden: 2880,
            heads: 64,
            kv_heads: 8,
            experts,
            used: 4,
            ffn: 2880,
            vocab: 201_088,
            window: 128,
            norm_eps: 1e-5,
            rope: made_up_rope(),
            grid: multiprocessors,
        })
    }

    /// Of a loaded model, with as many blocks as its rows can be shared by.
    pub fn of(config: &Config, multiprocessors: usize) -> Result<Shape, CudaError> {
        let unknown = |what: &str| CudaError::Unsupported(format!("the decode kernel knows no {what}"));
        let experts = config.experts.as_ref().ok_or_else(|| unknown("model without experts"))?;
        if config.arch != Arch::GptOss || !experts.normalize || config.rope.pairs != RopePairs::Halves {
            return Err(unknown("architecture but gpt-oss"));
        }
        if config.head_dim != HEAD_DIM {
            return Err(unknown(&format!("heads of {} values", config.head_dim)));
        }
        let shape = Shape {
            name: "a model".into(),
            layers: config.layers,
            hidden: config.hidden,
            heads: config.heads,
            kv_heads: config.kv_heads,
            experts: experts.count,
            used: experts.used,
            ffn: config.ffn,
            vocab: config.vocab,
            window: config.window.unwrap_or(0),
            norm_eps: config.norm_eps,
            rope: config.rope.clone(),
            grid: 0,
        };
        let grid = multiprocessors.min(shape.hidden / TILE_ROWS).min(shape.qkv_rows() / TILE_ROWS);
        Ok(Shape { grid, ..shape })
    }

    pub fn q_rows(&self) -> usize {
        self.heads * HEAD_DIM
    }

    pub fn qkv_rows(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * HEAD_DIM
    }

    pub fn threads(&self) -> u32 {
        ((WARPS + BRINGERS) * 32) as u32
    }

    /// What the kernels take for granted.
    pub fn check(&self) -> Result<(), CudaError> {
        let whole = |what: &str, size: usize, unit: usize| match size.is_multiple_of(unit) {
            true => Ok(()),
            false => Err(CudaError::Unsupported(format!("{what} is {size}, not a multiple of {unit}"))),
        };
        whole("hidden size", self.hidden, 32)?;
        whole("width of an expert", self.ffn, 32)?;
        whole("vocabulary", self.vocab, TILE_ROWS)?;
        whole("query heads", self.q_rows(), 128)?;
        let limit = |what: &str, ok: bool| match ok {
            true => Ok(()),
            false => Err(CudaError::Unsupported(what.into())),
        };
        limit("eight query heads share a KV head", self.heads == 8 * self.kv_heads)?;
        limit("at most 4096 values of x and of the heads", self.hidden <= 4096 && self.q_rows() <= 4096)?;
        limit("as many multiprocessors as KV heads", self.grid >= self.kv_heads)?;
        limit("at most 512 experts", self.experts <= 512 && self.used <= self.experts)?;
        limit("a vocabulary of less than 2^18", self.vocab < 1 << 18)?;
        // A tile is shared by two blocks at most, and a warp's share touches two tiles at most.
        let tiles = |rows: usize| rows / TILE_ROWS;
        let wide = |rows: usize| tiles(rows) >= self.grid && tiles(rows) <= WARPS * self.grid;
        limit("a grid that fits the attention's rows", wide(self.qkv_rows()))?;
        limit("a grid that fits the experts' rows", tiles(self.used * 2 * self.ffn) <= WARPS * self.grid)?;
        limit("a grid that fits the hidden size", wide(self.hidden) && tiles(self.hidden) <= 2 * self.grid)
    }

    /// The constants that the kernels are compiled with.
    pub fn prelude(&self, marking: bool) -> String {
        let constants = [
            ("LAYERS", self.layers),
            ("HIDDEN", self.hidden),
            ("HEADS", self.heads),
            ("KV_HEADS", self.kv_heads),
            ("HEAD_DIM", HEAD_DIM),
            ("GROUP_HEADS", self.heads / self.kv_heads),
            ("Q_ROWS", self.q_rows()),
            ("KV_ROWS", self.kv_heads * HEAD_DIM),
            ("QKV_ROWS", self.qkv_rows()),
            ("EXPERTS", self.experts),
            ("USED", self.used),
            ("FFN", self.ffn),
            ("VOCAB", self.vocab),
            ("WINDOW", self.window),
            ("KV_BLOCK_TOKENS", KV_BLOCK_TOKENS),
            ("GRID", self.grid),
            ("WARPS", WARPS),
            ("BRINGERS", BRINGERS),
            ("SLOTS", SLOTS),
            ("MARKING", usize::from(marking)),
        ];
        let mut text = String::new();
        for (name, value) in constants {
            let _ = writeln!(text, "constexpr int {name} = {value};");
        }
        text
    }
}

/// gpt-oss turns heads like this, but for YaRN's slower low frequencies, which cost the same.
pub fn made_up_rope() -> Rope {
    let frequencies = (0..HEAD_DIM / 2).map(|i| 150_000f32.powf(-2.0 * i as f32 / HEAD_DIM as f32)).collect();
    Rope { frequencies, magnitude: 1.346_573_6, pairs: RopePairs::Halves }
}
