//! Stacked experts out of what folders hold: a tensor for each expert, or fused ones in which gate and up
//! lie together. The views built here look like the three stacked tensors of a GGUF file.

use super::super::error::{Fault, LoadError, quoted};
use super::super::insert;
use super::super::region::Region;
use super::super::tensor::{Layout, Part, Tensor};
use super::store::{Store, Stored};
use super::weights::{Tile, format_of, matrix};
use crate::model::config::Config;
use crate::quant::Format;
use std::collections::BTreeMap;

type Table = BTreeMap<String, Tensor>;

/// Sizes of a layer's experts.
#[derive(Clone, Copy)]
struct Sizes {
    count: usize,
    ffn: usize,
    hidden: usize,
}

impl Sizes {
    fn of(config: &Config) -> Sizes {
        let count = config.experts.as_ref().map_or(0, |experts| experts.count);
        Sizes { count, ffn: config.ffn, hidden: config.hidden }
    }

    /// Shape of the gate and up weights.
    fn wide(self) -> Vec<usize> {
        vec![self.count, self.ffn, self.hidden]
    }

    /// Shape of the down weight.
    fn down(self) -> Vec<usize> {
        vec![self.count, self.hidden, self.ffn]
    }
}

/// Qwen3 MoE: one tensor an expert, or gate over up in one fused tensor.
pub(super) fn qwen3_moe(
    store: &mut Store,
    config: &Config,
    layer: usize,
    tile: Option<Tile>,
    table: &mut Table,
) -> Result<(), LoadError> {
    let sizes = Sizes::of(config);
    let prefix = format!("model.layers.{layer}.mlp.experts.");
    if store.tensors.contains_key(&format!("{prefix}gate_up_proj")) {
        return fused_halves(store, sizes, layer, &prefix, table);
    }
    for (part, shape) in [("gate", sizes.wide()), ("up", sizes.wide()), ("down", sizes.down())] {
        let names = (0..sizes.count).map(|expert| format!("{prefix}{expert}.{part}_proj.weight"));
        let name = format!("blk.{layer}.ffn_{part}_exps.weight");
        insert(table, stacked(store, names, name, shape, tile)?)?;
    }
    Ok(())
}

/// A view over one matrix for each expert, wherever each lies.
fn stacked(
    store: &mut Store,
    names: impl Iterator<Item = String>,
    name: String,
    shape: Vec<usize>,
    tile: Option<Tile>,
) -> Result<Tensor, LoadError> {
    let mut parts = Vec::new();
    let mut common = None;
    for source in names {
        let (stored, layout, part) = matrix(store, &source, tile)?;
        stored.shaped(&source, &shape[1..])?;
        let format = format_of(&layout, stored.dtype);
        if *common.get_or_insert((format, layout)) != (format, layout) {
            let field = format!("the dtype of {}", quoted(&source));
            let found = stored.dtype.name();
            return Err(
                Fault::unsupported(field, found, "that of the other experts").of(&part.data.file.path)
            );
        }
        parts.push(part);
    }
    let (format, layout) = common.unwrap_or((Format::F32, Layout::PLAIN));
    build(&store.folder.clone(), name, shape, format, layout, parts)
}

/// (experts, gate rows then up rows, hidden) and (experts, hidden, ffn).
fn fused_halves(
    store: &mut Store,
    sizes: Sizes,
    layer: usize,
    prefix: &str,
    table: &mut Table,
) -> Result<(), LoadError> {
    let name = format!("{prefix}gate_up_proj");
    let fused = take(store, &name, &[sizes.count, 2 * sizes.ffn, sizes.hidden])?;
    let format = fused.float(&name)?;
    for (half, part) in ["gate", "up"].into_iter().enumerate() {
        let pieces = (0..sizes.count).map(|expert| fused.region.piece(2 * expert + half, 2 * sizes.count));
        let canonical = format!("blk.{layer}.ffn_{part}_exps.weight");
        let tensor = build(&store.folder, canonical, sizes.wide(), format, Layout::PLAIN, whole(pieces))?;
        insert(table, tensor)?;
    }
    let name = format!("{prefix}down_proj");
    let down = take(store, &name, &sizes.down())?;
    let (format, parts) = (down.float(&name)?, whole([down.region]));
    let canonical = format!("blk.{layer}.ffn_down_exps.weight");
    insert(table, build(&store.folder, canonical, sizes.down(), format, Layout::PLAIN, parts)?)
}

/// gpt-oss: gate and up rows take turns, in MXFP4 or, unquantised, transposed; biases likewise.
pub(super) fn gpt_oss(
    store: &mut Store,
    config: &Config,
    layer: usize,
    table: &mut Table,
) -> Result<(), LoadError> {
    let sizes = Sizes::of(config);
    let prefix = format!("model.layers.{layer}.mlp.experts.");
    if store.tensors.contains_key(&format!("{prefix}gate_up_proj_blocks")) {
        gpt_oss_mxfp4(store, sizes, layer, &prefix, table)?;
    } else {
        gpt_oss_floats(store, sizes, layer, &prefix, table)?;
    }
    gpt_oss_biases(store, sizes, layer, &prefix, table)
}

fn gpt_oss_mxfp4(
    store: &mut Store,
    sizes: Sizes,
    layer: usize,
    prefix: &str,
    table: &mut Table,
) -> Result<(), LoadError> {
    let wide = mxfp4(store, &format!("{prefix}gate_up_proj"), [sizes.count, 2 * sizes.ffn, sizes.hidden])?;
    let down = mxfp4(store, &format!("{prefix}down_proj"), [sizes.count, sizes.hidden, sizes.ffn])?;
    let views = [
        ("gate", &wide, sizes.wide(), Layout::SplitMxfp4 { first: 0, step: 2 }),
        ("up", &wide, sizes.wide(), Layout::SplitMxfp4 { first: 1, step: 2 }),
        ("down", &down, sizes.down(), Layout::SplitMxfp4 { first: 0, step: 1 }),
    ];
    for (name, part, shape, layout) in views {
        let name = format!("blk.{layer}.ffn_{name}_exps.weight");
        insert(table, build(&store.folder, name, shape, Format::Mxfp4, layout, vec![part.clone()])?)?;
    }
    Ok(())
}

/// Blocks of 16 bytes for 32 values, and a byte of scale for each.
fn mxfp4(store: &mut Store, name: &str, [experts, rows, cols]: [usize; 3]) -> Result<Part, LoadError> {
    let (blocks_name, scales_name) = (format!("{name}_blocks"), format!("{name}_scales"));
    if cols % 32 != 0 {
        let field = format!("the row length of {}", quoted(&blocks_name));
        return Err(Fault::damaged(field, cols, "a multiple of 32").of(&store.folder));
    }
    let blocks = take(store, &blocks_name, &[experts, rows, cols / 32, 16])?;
    let scales = take(store, &scales_name, &[experts, rows, cols / 32])?;
    blocks.u8(&blocks_name)?;
    scales.u8(&scales_name)?;
    Ok(Part { data: blocks.region, scales: Some(scales.region) })
}

fn gpt_oss_floats(
    store: &mut Store,
    sizes: Sizes,
    layer: usize,
    prefix: &str,
    table: &mut Table,
) -> Result<(), LoadError> {
    let (wide_name, down_name) = (format!("{prefix}gate_up_proj"), format!("{prefix}down_proj"));
    let wide = take(store, &wide_name, &[sizes.count, sizes.hidden, 2 * sizes.ffn])?;
    let down = take(store, &down_name, &[sizes.count, sizes.ffn, sizes.hidden])?;
    let (wide_format, down_format) = (wide.float(&wide_name)?, down.float(&down_name)?);
    let step = 2 * sizes.ffn;
    let views = [
        ("gate", &wide, wide_format, sizes.wide(), Layout::Strided { first: 0, row_step: 2, col_step: step }),
        ("up", &wide, wide_format, sizes.wide(), Layout::Strided { first: 1, row_step: 2, col_step: step }),
        (
            "down",
            &down,
            down_format,
            sizes.down(),
            Layout::Strided { first: 0, row_step: 1, col_step: sizes.hidden },
        ),
    ];
    for (name, stored, format, shape, layout) in views {
        let name = format!("blk.{layer}.ffn_{name}_exps.weight");
        let parts = whole(pieces(&stored.region, sizes.count));
        insert(table, build(&store.folder, name, shape, format, layout, parts)?)?;
    }
    Ok(())
}

fn gpt_oss_biases(
    store: &mut Store,
    sizes: Sizes,
    layer: usize,
    prefix: &str,
    table: &mut Table,
) -> Result<(), LoadError> {
    let (wide_name, down_name) = (format!("{prefix}gate_up_proj_bias"), format!("{prefix}down_proj_bias"));
    let wide = take(store, &wide_name, &[sizes.count, 2 * sizes.ffn])?;
    let down = take(store, &down_name, &[sizes.count, sizes.hidden])?;
    let (wide_format, down_format) = (wide.float(&wide_name)?, down.float(&down_name)?);
    let every_second = |first| Layout::Strided { first, row_step: 0, col_step: 2 };
    let views = [
        ("gate", &wide, wide_format, sizes.ffn, every_second(0)),
        ("up", &wide, wide_format, sizes.ffn, every_second(1)),
        ("down", &down, down_format, sizes.hidden, Layout::PLAIN),
    ];
    for (name, stored, format, cols, layout) in views {
        let name = format!("blk.{layer}.ffn_{name}_exps.bias");
        let parts = whole(pieces(&stored.region, sizes.count));
        insert(table, build(&store.folder, name, vec![sizes.count, cols], format, layout, parts)?)?;
    }
    Ok(())
}

fn take(store: &mut Store, name: &str, shape: &[usize]) -> Result<Stored, LoadError> {
    let stored = store.take(name);
    let stored = stored
        .ok_or_else(|| Fault::missing(quoted(name), format!("a tensor of {shape:?}")).of(&store.folder))?;
    stored.shaped(name, shape)?;
    Ok(stored)
}

fn pieces(region: &Region, count: usize) -> impl Iterator<Item = Region> {
    (0..count).map(move |index| region.piece(index, count))
}

/// Parts without scales of their own.
fn whole(regions: impl IntoIterator<Item = Region>) -> Vec<Part> {
    regions.into_iter().map(|data| Part { data, scales: None }).collect()
}

fn build(
    folder: &std::path::Path,
    name: String,
    shape: Vec<usize>,
    format: Format,
    layout: Layout,
    parts: Vec<Part>,
) -> Result<Tensor, LoadError> {
    Tensor::new(name, shape, format, layout, parts).map_err(|fault| fault.of(folder))
}
