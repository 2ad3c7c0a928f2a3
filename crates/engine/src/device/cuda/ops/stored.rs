//! Weights that a file has as the kernels read them: they were packed when it was made (`quantize`).
//!
//! A tensor's bytes are its codes, its scales, and the power of two that they were packed with, in a cache line of its own.
//! Tensors that are one matrix on the card have the same power and whole tiles, so that they lie one after the other as they are.

use super::super::CudaError;
use super::layout::{Packed, Plan, TILE_ROWS, UNIT_COLS, pack_at, power};
use crate::load::Tensor;
use crate::quant::Format;
use std::borrow::Cow;

const POWER_BYTES: usize = 64;

/// Bytes of `matrices` matrices of (rows, cols); `None` where there are too many to count.
pub fn bytes(format: Format, rows: usize, cols: usize, matrices: usize) -> Option<usize> {
    let values =
        rows.checked_next_multiple_of(TILE_ROWS)?.checked_mul(cols.checked_next_multiple_of(UNIT_COLS)?)?;
    values.checked_mul(matrices)?.checked_mul(8)?; // more than any layout has for a value
    let (codes, scales) = Plan::of(format).bytes(rows, cols);
    ((codes + scales) * matrices).checked_add(POWER_BYTES)
}

/// A tensor as a file is to have it; experts are one matrix each.
pub fn write(tensor: &Tensor, exponent: i32) -> Vec<u8> {
    let packed = pack_at(std::slice::from_ref(tensor), matrices(tensor), exponent);
    let mut out = packed.codes.into_owned();
    out.extend_from_slice(&packed.scales);
    out.extend(exponent.to_le_bytes());
    out.resize(out.len() + POWER_BYTES - size_of::<i32>(), 0);
    out
}

fn matrices(tensor: &Tensor) -> usize {
    if tensor.shape.len() == 3 { tensor.shape[0] } else { 1 }
}

/// What a file has of tensors that are one part of a matrix; none where it has rows.
pub fn packed(tensors: &[Tensor]) -> Result<Option<Packed<'_>>, CudaError> {
    let found: Vec<Stored<'_>> = tensors.iter().filter_map(Stored::of).collect();
    let Some(first) = found.first() else { return Ok(None) };
    let whole = tensors.len() == 1 || tensors.iter().all(|tensor| tensor.rows().is_multiple_of(TILE_ROWS));
    if found.len() < tensors.len() || !whole || found.iter().any(|other| other.exponent != first.exponent) {
        let name = tensors.first().map_or("", |tensor| tensor.name.as_str());
        let problem = format!("{name} and what is stacked on it do not lie alike in the file: get it again");
        return Err(CudaError::Unsupported(problem));
    }
    let joined = |part: fn(&Stored<'_>) -> Vec<u8>| Cow::Owned(found.iter().flat_map(part).collect());
    let (codes, scales) = match found.as_slice() {
        [one] => (Cow::Borrowed(one.codes), Cow::Borrowed(one.scales)),
        _ => (joined(|stored| stored.codes.to_vec()), joined(|stored| stored.scales.to_vec())),
    };
    let plan = Plan::of(tensors[0].format);
    Ok(Some(Packed { plan, codes, scales, factor: power(-first.exponent) }))
}

/// One tensor of a file.
struct Stored<'a> {
    codes: &'a [u8],
    scales: &'a [u8],
    exponent: i32,
}

impl Stored<'_> {
    fn of(tensor: &Tensor) -> Option<Stored<'_>> {
        let matrices = matrices(tensor);
        let (codes, scales) = Plan::of(tensor.format).bytes(tensor.rows() / matrices, tensor.cols());
        let (codes, rest) = tensor.tiles()?.split_at_checked(codes * matrices)?;
        let (scales, power) = rest.split_at_checked(scales * matrices)?;
        let exponent = i32::from_le_bytes(*power.first_chunk()?).clamp(-100, 100);
        Some(Stored { codes, scales, exponent })
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::pack;
    use super::*;
    use crate::load::ModelFile;
    use crate::quantize::{Bits, Lies, Recipe, write};
    use std::path::Path;

    /// What a card is given is the same, packed now or when the file was made.
    #[test]
    fn a_file_has_what_packing_makes() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
        for name in
            ["quantised/model.gguf", "gpt-oss-mxfp4/folder", "qwen3-moe/model.gguf", "llama/model.gguf"]
        {
            let source = ModelFile::open(&golden.join(name)).unwrap();
            let made = std::env::temp_dir().join(format!("flint-tiles-{}", std::process::id()));
            let recipe = Recipe { bits: Bits::AsItIs, again: false, lies: Lies::Tiles };
            let mut out = std::fs::File::create(&made).unwrap();
            write(&source, recipe, 2, &mut out, &mut |_, _| true).unwrap();
            let file = ModelFile::open(&made).unwrap();
            std::fs::remove_file(&made).unwrap();
            let mut tiles = 0;
            for layer in 0..source.config.layers {
                let stacked = ["attn_q", "attn_k", "attn_v"].map(|name| format!("blk.{layer}.{name}.weight"));
                let of = |file: &ModelFile| stacked.clone().map(|name| file.tensor(&name).unwrap());
                let same = |a: &Tensor, b: &Tensor| Plan::of(a.format) == Plan::of(b.format);
                for (made, source) in of(&file).chunk_by(same).zip(of(&source).chunk_by(same)) {
                    tiles += compare(made, source, 1);
                }
                for name in ["attn_output", "ffn_down", "ffn_gate_inp", "ffn_up_exps", "ffn_down_exps"] {
                    let name = format!("blk.{layer}.{name}.weight");
                    let (Some(made), Some(source)) = (file.find(&name), source.find(&name)) else { continue };
                    tiles += compare(&[made], std::slice::from_ref(&source), matrices(&source));
                }
            }
            assert!(tiles > 3, "{name}");
        }
    }

    fn compare(made: &[Tensor], source: &[Tensor], experts: usize) -> usize {
        let name = &source[0].name;
        let (found, expected) = (packed(made).unwrap().unwrap(), pack(source, experts));
        assert!(packed(source).unwrap().is_none());
        assert_eq!(found.plan, expected.plan, "{name}");
        assert_eq!(found.factor, expected.factor, "{name}");
        assert!(found.codes == expected.codes && found.scales == expected.scales, "{name}");
        1
    }
}
