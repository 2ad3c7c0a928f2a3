//! The tensor table of a folder, under GGUF names: plain tensors, FP8 with their scales, and experts.

use super::super::error::{Fault, LoadError, quoted};
use super::super::fields::Fields;
use super::super::insert;
use super::super::json::{JsonFields, describe};
use super::super::safetensors::Dtype;
use super::super::tensor::{Layout, Part, Tensor};
use super::store::{Store, Stored};
use super::{experts, names};
use crate::model::config::{Arch, Config};
use crate::quant::Format;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Rows or columns of an FP8 tile, at most.
const TILE_MAX: usize = 4096;

/// Rows and columns of the tiles that share an FP8 scale.
pub(super) type Tile = (usize, usize);

pub(super) fn table(
    mut store: Store,
    config: &Config,
    json: &Map<String, Value>,
    config_path: &Path,
) -> Result<BTreeMap<String, Tensor>, LoadError> {
    let fields = JsonFields { object: json, prefix: "" };
    let tile = tile(&fields).map_err(|fault| fault.of(config_path))?;
    let tied = fields.flag("tie_word_embeddings").map_err(|fault| fault.of(config_path))?;
    resolve_tie(&mut store, tied).map_err(|fault| fault.of(config_path))?;
    let mut table = BTreeMap::new();
    for layer in 0..config.layers {
        match config.arch {
            Arch::Qwen3Moe => experts::qwen3_moe(&mut store, config, layer, tile, &mut table)?,
            Arch::GptOss => experts::gpt_oss(&mut store, config, layer, &mut table)?,
            Arch::Llama | Arch::Qwen2 | Arch::Qwen3 => (),
        }
    }
    let names: Vec<String> = store.tensors.keys().cloned().collect();
    for name in names {
        if let Some(canonical) = names::canonical(&name) {
            insert(&mut table, plain(&mut store, &name, canonical, tile)?)?;
        }
    }
    nothing_left(&store, config)?;
    Ok(table)
}

/// With tied embeddings the output matrix is not the model's, even when an old file carries one.
fn resolve_tie(store: &mut Store, tied: Option<bool>) -> Result<(), Fault> {
    match tied {
        Some(true) => drop(store.take("lm_head.weight")),
        Some(false) if !store.tensors.contains_key("lm_head.weight") => {
            return Err(Fault::missing(
                "\"lm_head.weight\"",
                "a tensor, as \"tie_word_embeddings\" is false",
            ));
        }
        _ => (),
    }
    Ok(())
}

/// What was not taken would be left out of the computation.
fn nothing_left(store: &Store, config: &Config) -> Result<(), LoadError> {
    match store.tensors.iter().find(|(name, _)| !names::is_derived(name)) {
        None => Ok(()),
        Some((name, stored)) => {
            let expected = format!("only tensors of the {} architecture", config.arch.hf_name());
            Err(Fault::unsupported(quoted(name), "in the file", expected).of(&stored.region.file.path))
        }
    }
}

/// One tensor of the file, with its FP8 scales where it has them.
fn plain(store: &mut Store, name: &str, canonical: String, tile: Option<Tile>) -> Result<Tensor, LoadError> {
    let (stored, layout, part) = matrix(store, name, tile)?;
    let file = stored.region.file.path.clone();
    Tensor::new(canonical, stored.shape, format_of(&layout, stored.dtype), layout, vec![part])
        .map_err(|fault| fault.of(&file))
}

pub(super) fn format_of(layout: &Layout, dtype: Dtype) -> Format {
    match (layout, dtype) {
        (Layout::Fp8Tiles { .. }, _) => Format::Fp8,
        (_, Dtype::F16) => Format::F16,
        (_, Dtype::Bf16) => Format::Bf16,
        (_, Dtype::F32 | Dtype::F8E4m3 | Dtype::U8) => Format::F32,
    }
}

/// Takes a tensor (and its scales) out of the store, and says how its rows lie.
pub(super) fn matrix(
    store: &mut Store,
    name: &str,
    tile: Option<Tile>,
) -> Result<(Stored, Layout, Part), LoadError> {
    let stored =
        store.take(name).ok_or_else(|| Fault::missing(quoted(name), "a tensor").of(&store.folder))?;
    if stored.dtype != Dtype::F8E4m3 {
        stored.float(name)?;
        let part = Part { data: stored.region.clone(), scales: None };
        return Ok((stored, Layout::PLAIN, part));
    }
    let file = stored.region.file.path.clone();
    let (rows, cols, (tile_rows, tile_cols)) = match (stored.shape.as_slice(), tile) {
        ([rows, cols], Some(tile)) => (*rows, *cols, tile),
        (_, None) => {
            let field = "\"quantization_config.weight_block_size\"";
            return Err(Fault::missing(field, format!("the tile size of {}", quoted(name))).of(&file));
        }
        (shape, _) => {
            let field = format!("the shape of {}", quoted(name));
            return Err(Fault::unsupported(field, format!("{shape:?}"), "two sizes").of(&file));
        }
    };
    let scale_name = format!("{name}_scale_inv");
    let scales = store.take(&scale_name);
    let scales =
        scales.ok_or_else(|| Fault::missing(quoted(&scale_name), "the scales of FP8 weights").of(&file))?;
    scales.shaped(&scale_name, &[rows.div_ceil(tile_rows), cols.div_ceil(tile_cols)])?;
    let layout = Layout::Fp8Tiles { tile_rows, tile_cols, scale_format: scales.float(&scale_name)? };
    let part = Part { data: stored.region.clone(), scales: Some(scales.region) };
    Ok((stored, layout, part))
}

/// The tile size of FP8 folders; refuses quantisations that Flint does not know.
fn tile(fields: &JsonFields) -> Result<Option<Tile>, Fault> {
    let Some(quantization) = fields.inner("quantization_config")? else {
        return Ok(None);
    };
    match quantization.text("quant_method")? {
        Some("mxfp4") => Ok(None),
        Some("fp8") => match quantization.list("weight_block_size")? {
            [rows, cols] => Ok(Some((tile_size(&quantization, rows)?, tile_size(&quantization, cols)?))),
            _ => {
                let field = quantization.label("weight_block_size");
                Err(Fault::unsupported(field, "not there", "two sizes, as in [128, 128]"))
            }
        },
        other => {
            let found = other.map_or("not there".into(), |name| quoted(name).to_string());
            Err(Fault::unsupported(quantization.label("quant_method"), found, "fp8 or mxfp4"))
        }
    }
}

fn tile_size(fields: &JsonFields, value: &Value) -> Result<usize, Fault> {
    let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
    size.filter(|size| (1..=TILE_MAX).contains(size)).ok_or_else(|| {
        Fault::damaged(fields.label("weight_block_size"), describe(value), format!("1 to {TILE_MAX}"))
    })
}
