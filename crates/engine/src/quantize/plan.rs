//! What becomes of each tensor.

use crate::device::cuda::ops::layout::{Plan, TILE_ROWS};
use crate::device::cuda::ops::stored;
use crate::load::gguf::Lies;
use crate::load::{ModelFile, Tensor};
use crate::quant::Format;
use crate::quant::panels::{self, BLOCK, LARGE_BLOCK};

/// How many bits a weight is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    /// As many as it has.
    AsItIs,
    Eight,
    /// In most matrices; embedding and output have six or eight.
    Four,
}

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Recipe {
    pub bits: Bits,
    pub again: bool, // what is quantised already, too, where that makes it smaller
    pub lies: Lies,
}

/// What becomes of a tensor.
#[derive(Debug, Clone)]
pub struct Planned {
    pub tensor: Tensor,
    pub format: Format,
    pub lies: Lies,
}

impl Planned {
    /// Rows of each matrix that is by itself, and how many of these there are.
    pub(super) fn matrices(&self) -> (usize, usize) {
        match (self.lies, self.tensor.shape.as_slice()) {
            (Lies::Panels | Lies::Tiles, [experts, rows, _]) => (*rows, *experts),
            _ => (self.tensor.rows(), 1),
        }
    }

    /// Bytes that it will have.
    pub fn bytes(&self) -> u64 {
        let ((rows, count), cols) = (self.matrices(), self.tensor.cols());
        let bytes = match self.lies {
            Lies::Rows => count * rows * self.format.row_bytes(cols),
            Lies::Panels => count * rows.div_ceil(panels::LANES) * panels::panel_bytes(self.format, cols),
            Lies::Tiles => stored::bytes(self.format, rows, cols, count).unwrap_or(0), // it is in memory already
        };
        bytes as u64
    }

    /// Another that a card has as one matrix with it.
    pub(super) fn stacks_with(&self, other: &Planned) -> bool {
        let same = Plan::of(self.format) == Plan::of(other.format) && self.lies == other.lies;
        same && is_stacked(&self.tensor) && is_stacked(&other.tensor)
    }
}

/// Queries, keys and values are one matrix of a layer.
fn is_stacked(tensor: &Tensor) -> bool {
    ["attn_q.weight", "attn_k.weight", "attn_v.weight"].iter().any(|name| tensor.name.ends_with(name))
}

/// All tensors, in the order in which they are loaded.
pub fn plan(file: &ModelFile, recipe: Recipe) -> Vec<Planned> {
    let planned = |(tensor, matrix): (&Tensor, bool)| Planned {
        tensor: tensor.clone(),
        format: if matrix { format(tensor, recipe) } else { tensor.format },
        lies: if matrix && can_lie(file, tensor, recipe.lies) { recipe.lies } else { Lies::Rows },
    };
    file.in_order().map(planned).collect()
}

/// An embedding whose rows are only looked up stays as rows. Tiles have none to be looked up, and have to be whole where
/// matrices are stacked.
fn can_lie(file: &ModelFile, tensor: &Tensor, lies: Lies) -> bool {
    let embedding = tensor.name == "token_embd.weight";
    match lies {
        Lies::Rows => true,
        Lies::Panels => !embedding || file.tied(),
        Lies::Tiles => !embedding && (!is_stacked(tensor) || file.config.head_dim.is_multiple_of(TILE_ROWS)),
    }
}

fn format(tensor: &Tensor, recipe: Recipe) -> Format {
    let own = stored_format(tensor);
    let router = tensor.name.ends_with("ffn_gate_inp.weight"); // small, and decides a lot
    let wanted = match recipe.bits {
        _ if router => own,
        _ if !tensor.format.is_float() && !recipe.again => own,
        Bits::AsItIs => own,
        Bits::Eight => eight_bits(tensor).unwrap_or(own),
        Bits::Four => four_bits(tensor).unwrap_or(own),
    };
    let bytes = |format: Format| format.row_bytes(tensor.cols());
    if bytes(wanted) < bytes(own) { wanted } else { own }
}

/// Its own, unless no file has that: FP8 with scales beside it takes the same room as Q8_0.
fn stored_format(tensor: &Tensor) -> Format {
    match tensor.format {
        Format::Fp8 => eight_bits(tensor).unwrap_or(Format::Bf16),
        other => other,
    }
}

fn eight_bits(tensor: &Tensor) -> Option<Format> {
    tensor.cols().is_multiple_of(BLOCK).then_some(Format::Q8_0)
}

fn four_bits(tensor: &Tensor) -> Option<Format> {
    let large = tensor.cols().is_multiple_of(LARGE_BLOCK);
    match tensor.name.as_str() {
        "token_embd.weight" | "output.weight" if large => Some(Format::Q6K),
        "token_embd.weight" | "output.weight" => eight_bits(tensor),
        _ if large => Some(Format::Q4K),
        _ => eight_bits(tensor).and(Some(Format::Q4_1)),
    }
}
