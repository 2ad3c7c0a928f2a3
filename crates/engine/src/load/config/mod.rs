//! The configuration of a model from what its files say, every number bounded and fitting the others.

mod folder;
mod gguf;

pub(super) use folder::from_folder;
pub(super) use gguf::from_gguf;

use super::error::Fault;
use super::fields::Fields;
use crate::limits::{HEAD_DIM_MAX, HEADS_MAX};

/// Largest base and factor of a rotary embedding that is taken for real.
const ROPE_BASE_MAX: f64 = 1e12;
const ROPE_FACTOR_MAX: f64 = 1e6;

/// Heads, and how wide they are.
struct Heads {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

/// Names of the fields that say so.
struct HeadNames {
    hidden: &'static str,
    heads: &'static str,
    kv_heads: &'static str,
    head_dim: &'static str,
}

fn heads(fields: &impl Fields, names: &HeadNames, hidden: usize) -> Result<Heads, Fault> {
    let heads = fields.needed_size(names.heads, HEADS_MAX)?;
    let kv_heads = fields.size(names.kv_heads, HEADS_MAX)?.unwrap_or(heads);
    if !heads.is_multiple_of(kv_heads) {
        let expected = format!("a divisor of {heads}, the number of heads");
        return Err(Fault::damaged(fields.label(names.kv_heads), kv_heads, expected));
    }
    let head_dim = match fields.size(names.head_dim, HEAD_DIM_MAX)? {
        Some(head_dim) => head_dim,
        None if hidden.is_multiple_of(heads) && hidden / heads <= HEAD_DIM_MAX => hidden / heads,
        None => {
            let expected =
                format!("a multiple of {heads}, the number of heads, up to {HEAD_DIM_MAX} times it");
            return Err(Fault::damaged(fields.label(names.hidden), hidden, expected));
        }
    };
    if head_dim % 2 != 0 {
        return Err(Fault::damaged(fields.label(names.head_dim), head_dim, "an even number"));
    }
    Ok(Heads { heads, kv_heads, head_dim })
}

/// Refuses a field that is given and is not what the others say.
fn agrees(fields: &impl Fields, name: &str, expected: usize) -> Result<(), Fault> {
    match fields.whole(name)? {
        Some(found) if found != expected as u64 => {
            Err(Fault::unsupported(fields.label(name), found, expected))
        }
        _ => Ok(()),
    }
}
