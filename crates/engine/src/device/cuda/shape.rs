//! The sizes of a model and what kind of one it is, and as constants of the kernels.

use super::CudaError;
use super::pack::Packing;
use crate::limits::KV_BLOCK_TOKENS;
use crate::load::MadeUp;
use crate::model::config::{Arch, Config, Rope, RopePairs};
use std::fmt::Write;

pub const TILE_ROWS: usize = 16;
/// Blocks that share a row of a product at most.
pub const SHARERS_MAX: usize = 8;
const GROUP_COLS: usize = 128;
const UNIT_TOKENS: usize = 16; // of the cache, that a warp looks at together
const LINE_BYTES: usize = 128;
const WARPS: usize = 16;
const BRINGERS: usize = 4; // warps that bring the others their weights
const COLS_MAX: usize = WARPS * 32 * 8; // of a vector that every block stages
const SHARED_BYTES_MAX: usize = 227 << 10;
const SLOTS_MIN: usize = 4;
const SLOTS_MAX: usize = 5;

#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    pub name: String,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub experts: usize, // 1 if the model is dense
    pub used: usize,
    pub ffn: usize, // width of one expert
    pub vocab: usize,
    pub window: usize, // tokens seen by the even layers
    pub norm_eps: f32,
    pub rope: Rope,
    pub gpt_oss: bool, // its formats, its activation and all of its biases; otherwise weights are levels
    pub routed: bool,  // a router chooses of the experts
    pub head_norms: bool, // of q and k
    pub wide_stages: usize, // a bit for each matrix of a layer whose levels may have 8 bits
    pub grid: usize,   // blocks, one a multiprocessor
}

impl Shape {
    /// A published model's sizes.
    pub fn named(name: &str, multiprocessors: usize) -> Option<Shape> {
        let shape = Shape::of(&MadeUp::named(name)?.config, multiprocessors).ok()?;
        Some(Shape { name: name.into(), ..shape })
    }

    /// Of a loaded model, with as many blocks as its rows can be shared by.
    pub fn of(config: &Config, multiprocessors: usize) -> Result<Shape, CudaError> {
        let experts = config.experts.as_ref();
        if experts.is_some_and(|experts| !experts.normalize) {
            let problem = "the decode kernel knows no experts whose shares do not sum to 1";
            return Err(CudaError::Unsupported(problem.into()));
        }
        let shape = Shape {
            name: "a model".into(),
            layers: config.layers,
            hidden: config.hidden,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            experts: experts.map_or(1, |experts| experts.count),
            used: experts.map_or(1, |experts| experts.used),
            ffn: config.ffn,
            vocab: config.vocab,
            window: config.window.unwrap_or(0),
            norm_eps: config.norm_eps,
            rope: config.rope.clone(),
            gpt_oss: config.arch == Arch::GptOss,
            routed: experts.is_some(),
            head_norms: matches!(config.arch, Arch::Qwen3 | Arch::Qwen3Moe),
            wide_stages: 0,
            grid: 0,
        };
        let grid = (1..=multiprocessors).rev().find(|&grid| shape.can_share(grid)).unwrap_or(0);
        Ok(Shape { grid, ..shape })
    }

    /// Tiles of rows, and groups of columns of each, of the products whose rows several blocks may share.
    fn shared_products(&self) -> [(usize, usize); 3] {
        let groups = |cols: usize| cols.div_ceil(GROUP_COLS);
        let hidden = self.hidden / TILE_ROWS;
        [
            (self.qkv_rows() / TILE_ROWS, groups(self.hidden)),
            (hidden, groups(self.q_rows())),
            (hidden, self.used * groups(self.ffn)),
        ]
    }

    /// Whether each of so many blocks has a part of every product, and no row too many of them.
    fn can_share(&self, grid: usize) -> bool {
        let few = |(tiles, groups): (usize, usize)| {
            let of_block = tiles * groups / grid;
            of_block > 0 && (groups - 1).div_ceil(of_block) < SHARERS_MAX
        };
        self.shared_products().into_iter().all(few)
    }

    pub fn q_rows(&self) -> usize {
        self.heads * self.head_dim
    }

    pub fn qkv_rows(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// What 16 cached tokens of a KV head take: levels of 8 bits with a scale for each 32 dims of a key and one a value
    /// (`kernels/cache.cuh`), up to a whole line.
    fn unit_bytes(&self) -> usize {
        let scales = self.head_dim / 32 + 1;
        (UNIT_TOKENS * (2 * self.head_dim + 2 * scales)).next_multiple_of(LINE_BYTES)
    }

    /// Bytes of the head rounded to four bits.
    pub fn coarse_bytes(&self) -> usize {
        self.vocab * self.hidden / 2
    }

    /// Bytes of a cache of so many blocks of tokens.
    pub fn cache_bytes(&self, blocks: usize) -> usize {
        self.layers * blocks * self.kv_heads * (KV_BLOCK_TOKENS / UNIT_TOKENS) * self.unit_bytes()
    }

    pub fn threads(&self) -> u32 {
        ((WARPS + BRINGERS) * 32) as u32
    }

    /// Pieces that a warp's ring holds: as many as there is room for.
    fn slots(&self) -> usize {
        (SLOTS_MIN..=SLOTS_MAX)
            .rev()
            .find(|&slots| self.shared_bytes(slots) <= SHARED_BYTES_MAX)
            .unwrap_or(SLOTS_MIN)
    }

    /// About what the kernels' `Shared` takes, and a little more.
    fn shared_bytes(&self, slots: usize) -> usize {
        let staged = |cols: usize| cols.div_ceil(GROUP_COLS) * (GROUP_COLS * 2 + 4 * 4);
        let piece =
            2 * if self.gpt_oss { Packing::Mxfp4 } else { Packing::Levels4 }.bytes(TILE_ROWS, GROUP_COLS);
        let group = self.heads / self.kv_heads.max(1);
        let (queries, key) = (9 * 4 * self.head_dim, 4 * self.head_dim);
        let attended = if self.gpt_oss { 0 } else { staged(self.q_rows()) };
        let attention = (WARPS + 1) * (group * (2 * self.head_dim + 16) + 64) + queries.max(attended) + key;
        let vector = staged(self.hidden.max(self.q_rows()));
        let head = vector + 6 * (self.vocab.div_ceil(TILE_ROWS).div_ceil(self.grid.max(1)) * TILE_ROWS);
        let scratch = head.max(self.used * staged(self.ffn)).max(attention);
        let slots = WARPS * slots * (piece + 8);
        slots + scratch + 4 * self.hidden + 4 * self.experts + self.sums_bytes() + (3 << 10)
    }

    /// What warps of a block tell one another of their tiles, twice.
    fn sums_bytes(&self) -> usize {
        let grid = self.grid.max(1);
        let gate_up = (self.used * 2 * self.ffn / TILE_ROWS).div_ceil(grid);
        let in_groups = |(tiles, groups): (usize, usize)| ((tiles * groups).div_ceil(grid), groups);
        let groups = self.hidden.div_ceil(GROUP_COLS);
        let stages = self.shared_products().map(in_groups).into_iter().chain([(gate_up * groups, groups)]);
        let tiles =
            stages.map(|(all, of_tile)| (all.div_ceil(WARPS).max(1) - 1).div_ceil(of_tile.max(1)) + 1).max();
        2 * WARPS * tiles.unwrap_or(1) * TILE_ROWS * size_of::<f32>()
    }

    /// What the kernels take for granted.
    pub fn check(&self) -> Result<(), CudaError> {
        let whole = |what: &str, size: usize, unit: usize| match size.is_multiple_of(unit) {
            true => Ok(()),
            false => Err(CudaError::Unsupported(format!("{what} is {size}, not a multiple of {unit}"))),
        };
        whole("hidden size", self.hidden, 32)?;
        whole("width of the feed-forward part", self.ffn, 32)?;
        whole("vocabulary", self.vocab, TILE_ROWS)?;
        let limit = |what: &str, ok: bool| match ok {
            true => Ok(()),
            false => Err(CudaError::Unsupported(format!("the decode kernel takes {what}"))),
        };
        limit("heads of 64 or 128 values", matches!(self.head_dim, 64 | 128))?;
        let group = self.heads / self.kv_heads.max(1);
        limit("up to eight query heads a KV head", group * self.kv_heads == self.heads && group <= 8)?;
        limit("up to 4096 values of x and of the heads", self.hidden.max(self.q_rows()) <= COLS_MAX)?;
        limit("as many multiprocessors as KV heads", self.grid >= self.kv_heads && self.grid < 256)?;
        limit("up to 512 experts", self.experts <= 512 && self.used <= self.experts)?;
        limit("a vocabulary of less than 2^18", self.vocab < 1 << 18)?;
        limit("rows that the multiprocessors can share", self.can_share(self.grid))?;
        let gate_up = self.used * 2 * self.ffn / TILE_ROWS;
        let most =
            [self.hidden / TILE_ROWS, self.qkv_rows() / TILE_ROWS].map(|tiles| tiles.div_ceil(self.grid) + 1);
        let tiles = most.into_iter().fold(gate_up.div_ceil(self.grid), usize::max);
        limit("up to 512 rows a multiprocessor", tiles <= WARPS * 2)?;
        limit("what fits in shared memory", self.shared_bytes(SLOTS_MIN) <= SHARED_BYTES_MAX)
    }

    /// The constants that the kernels are compiled with.
    pub fn prelude(&self, marking: bool) -> String {
        let sizes = [
            ("LAYERS", self.layers),
            ("HIDDEN", self.hidden),
            ("HEADS", self.heads),
            ("KV_HEADS", self.kv_heads),
            ("HEAD_DIM", self.head_dim),
            ("GROUP_HEADS", self.heads / self.kv_heads),
            ("Q_ROWS", self.q_rows()),
            ("KV_ROWS", self.kv_heads * self.head_dim),
            ("QKV_ROWS", self.qkv_rows()),
            ("EXPERTS", self.experts),
            ("USED", self.used),
            ("FFN", self.ffn),
            ("VOCAB", self.vocab),
            ("WINDOW", self.window),
            ("KV_BLOCK_TOKENS", KV_BLOCK_TOKENS),
            ("UNIT_BYTES", self.unit_bytes()),
            ("GRID", self.grid),
            ("SHARERS_MAX", SHARERS_MAX),
            ("WARPS", WARPS),
            ("BRINGERS", BRINGERS),
            ("SLOTS", self.slots()),
            ("WIDE_STAGES", self.wide_stages),
        ];
        let kinds = [
            ("ROUTED", self.routed),
            ("LEVELS", !self.gpt_oss),
            ("CLAMPED", self.gpt_oss),
            ("EXPERT_BIASES", self.gpt_oss),
            ("HEAD_NORMS", self.head_norms),
            ("ADJACENT", self.rope.pairs == RopePairs::Adjacent),
            ("MARKING", marking),
        ];
        let mut text = String::new();
        for (name, value) in sizes {
            let _ = writeln!(text, "constexpr int {name} = {value};");
        }
        for (name, value) in kinds {
            let _ = writeln!(text, "constexpr bool {name} = {value};");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(name: &str) -> Shape {
        Shape::named(name, 132).unwrap()
    }

    #[test]
    fn published_shapes_use_every_multiprocessor() {
        for name in MadeUp::NAMES {
            let shape = shape(name);
            shape.check().unwrap();
            assert_eq!(shape.grid, 132, "{name}");
        }
    }

    #[test]
    fn what_the_kernel_cannot_do_is_told() {
        let base = shape("qwen2.5-coder-7b");
        let told = |shape: Shape| shape.check().unwrap_err().to_string();
        assert!(told(Shape { head_dim: 96, ..base.clone() }).contains("heads of 64 or 128"));
        assert!(told(Shape { kv_heads: 2, ..base.clone() }).contains("eight query heads"));
        assert!(told(Shape { hidden: 5120, ..base.clone() }).contains("4096 values"));
        assert!(told(Shape { ffn: 30_720, ..base.clone() }).contains("shared memory"));
        assert!(told(Shape { vocab: 152_065, ..base }).contains("vocabulary is 152065"));
        let config = MadeUp::named("qwen3-coder-30b-a3b").unwrap().config;
        let experts = config
            .experts
            .clone()
            .map(|experts| crate::model::config::Experts { normalize: false, ..experts });
        assert!(Shape::of(&Config { experts, ..config }, 132).is_err());
    }

    /// Half of what f16 would take, but for the scales.
    #[test]
    fn cached_tokens_take_eight_bits_a_value() {
        let bytes = |name: &str| shape(name).cache_bytes(3);
        assert_eq!(bytes("gpt-oss-20b"), 24 * 3 * 8 * 2 * 2176);
        assert_eq!(bytes("qwen2.5-coder-7b"), 28 * 3 * 4 * 2 * 4352);
    }

    #[test]
    fn a_small_model_has_as_many_blocks_as_its_rows_can_be_shared_by() {
        let config = MadeUp::named("qwen2.5-coder-1.5b").unwrap().config;
        let small = Config { hidden: 64, heads: 2, kv_heads: 1, head_dim: 64, ffn: 96, ..config };
        let shape = Shape::of(&small, 132).unwrap();
        assert!(shape.can_share(shape.grid) && shape.grid < 132, "{}", shape.grid);
    }
}
