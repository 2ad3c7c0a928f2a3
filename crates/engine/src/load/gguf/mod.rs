//! GGUF: one file with typed key/values, a tensor table, and aligned tensor data. Flint's own files (`load/flint.rs`) have
//! the same structure under another magic number, and two more ways for a matrix to lie.
//!
//! `parse` walks and checks everything before the data, and every tensor's place in it. It copies only
//! names: longer values stay where they lie and are reached through `Metadata`.

mod metadata;
mod value;

pub use metadata::GgufMetadata;
pub use value::{Value, ValueKind};

use super::error::{Fault, quoted};
use super::reader::Reader;
use crate::device::cuda::ops::stored;
use crate::limits::{GGUF_KEYS_MAX, MODEL_TENSORS_MAX, NAME_BYTES_MAX};
use crate::quant::{Format, panels};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::ops::Range;

const MAGIC: &[u8; 4] = b"GGUF";
/// Of Flint's own files, and their version.
pub const OWN_MAGIC: &[u8; 4] = b"FLNT";
pub const OWN_VERSION: u32 = 1;

/// How a matrix lies in a file. Flint's own say it in the number of the format, which is raised by as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lies {
    /// Row after row, in blocks.
    Rows,
    /// In the panels of the CPU's kernels, which are copied as they are.
    Panels,
    /// In the tiles of a card's kernels, which are copied to it as they are.
    Tiles,
}

impl Lies {
    pub fn number(self) -> u32 {
        match self {
            Lies::Rows => 0,
            Lies::Panels => 0x1000,
            Lies::Tiles => 0x2000,
        }
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Lies::Rows => "rows",
            Lies::Panels => "panels of the CPU",
            Lies::Tiles => "tiles of a card",
        }
    }

    /// How a format of this number lies, and the number without that.
    fn of(number: u32, own: bool) -> (Lies, u32) {
        let all = [Lies::Tiles, Lies::Panels];
        let lies = all.into_iter().find(|lies| own && number >= lies.number()).unwrap_or(Lies::Rows);
        (lies, number - lies.number())
    }
}
/// The numbers of two types of values.
pub(crate) const U32_KIND: u32 = 4;
const STRING_KIND: u32 = 8;
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
const ALIGNMENT_DEFAULT: u64 = 32;
const ALIGNMENT_MAX: u64 = 1 << 20;
const DIMENSIONS_MAX: u32 = 4;

/// Everything in a GGUF file but the weights.
#[derive(Debug, Clone)]
pub struct Header {
    pub own: bool, // Flint's own kind of file, not GGUF
    pub version: u32,
    pub values: BTreeMap<String, Value>,
    pub pairs: Vec<(String, Range<usize>)>, // each key with all bytes of it and its value
    pub tensors: Vec<TensorInfo>,
    pub data: usize, // where it begins
}

/// One row of the tensor table. The bytes are known to lie within the file, apart from all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    pub shape: Vec<usize>, // outermost first
    pub format: Format,
    pub lies: Lies,
    pub offset: usize, // from the start of the file
    pub len: usize,    // bytes
}

/// Checks a whole file: its header, and that the tensors lie within it, aligned and apart.
pub fn parse(bytes: &[u8]) -> Result<Header, Fault> {
    let reader = &mut Reader::new(bytes);
    let (own, version) = preamble(reader)?;
    let tensors = count(reader, &"the number of tensors", MODEL_TENSORS_MAX as u64)?;
    let keys = count(reader, &"the number of metadata keys", GGUF_KEYS_MAX)?;
    let (values, pairs) = key_values(reader, keys)?;
    let alignment = alignment(&values)?;
    let mut tensors = tensor_table(reader, tensors, own)?;
    let data = reader.position().next_multiple_of(alignment as usize);
    place(&mut tensors, data, alignment, bytes.len())?;
    Ok(Header { own, version, values, pairs, tensors, data })
}

fn preamble(reader: &mut Reader) -> Result<(bool, u32), Fault> {
    let magic = reader.take(4, &"the magic number")?;
    let own = magic == OWN_MAGIC;
    if magic != MAGIC && !own {
        return Err(Fault::unsupported("the magic number", format!("{magic:02x?}"), "\"GGUF\" or \"FLNT\""));
    }
    let version = reader.u32(&"the version")?;
    match version {
        OWN_VERSION if own => Ok((own, version)),
        _ if own => {
            let expected = format!("{OWN_VERSION}: make the file again with this flint quantize");
            Err(Fault::unsupported("the version", version, expected))
        }
        2 | 3 => Ok((own, version)),
        _ if matches!(version.swap_bytes(), 1..=3) => {
            Err(Fault::unsupported("the byte order", "big-endian", "little-endian"))
        }
        _ => Err(Fault::unsupported("the version", version, "2 or 3")),
    }
}

fn count(reader: &mut Reader, field: &dyn Display, max: u64) -> Result<u64, Fault> {
    let count = reader.u64(field)?;
    if count > max {
        return Err(Fault::damaged(field, count, format_args!("at most {max}")));
    }
    Ok(count)
}

/// A key or a tensor's name.
fn name(reader: &mut Reader, field: &dyn Display) -> Result<String, Fault> {
    let (name, _) = reader.string(field)?;
    if name.is_empty() || name.len() as u64 > NAME_BYTES_MAX {
        let found = format_args!("{} bytes long", name.len()).to_string();
        return Err(Fault::damaged(field, found, format_args!("1 to {NAME_BYTES_MAX} bytes")));
    }
    Ok(name.to_owned())
}

type KeyValues = (BTreeMap<String, Value>, Vec<(String, Range<usize>)>);

fn key_values(reader: &mut Reader, count: u64) -> Result<KeyValues, Fault> {
    let (mut values, mut pairs) = (BTreeMap::new(), Vec::new());
    for i in 0..count {
        let start = reader.position();
        let key = name(reader, &format_args!("the name of metadata key {i}"))?;
        let value = value::read(reader, &key)?;
        if values.contains_key(&key) {
            return Err(Fault::damaged(quoted(&key), "there twice", "each metadata key once"));
        }
        pairs.push((key.clone(), start..reader.position()));
        values.insert(key, value);
    }
    Ok((values, pairs))
}

fn alignment(values: &BTreeMap<String, Value>) -> Result<u64, Fault> {
    let alignment = match values.get(ALIGNMENT_KEY) {
        None => return Ok(ALIGNMENT_DEFAULT),
        Some(Value::Unsigned(alignment)) => *alignment,
        Some(other) => return Err(Fault::damaged(ALIGNMENT_KEY, other.kind(), "an unsigned number")),
    };
    if !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
        let expected = format!("a power of two up to {ALIGNMENT_MAX}");
        return Err(Fault::damaged(ALIGNMENT_KEY, alignment, expected));
    }
    Ok(alignment)
}

/// Reads the table; offsets are still relative to the data.
fn tensor_table(reader: &mut Reader, count: u64, own: bool) -> Result<Vec<TensorInfo>, Fault> {
    let mut tensors = Vec::new();
    let mut names = HashSet::new();
    for i in 0..count {
        let tensor = tensor_info(reader, i, own)?;
        if !names.insert(tensor.name.clone()) {
            return Err(Fault::damaged(quoted(&tensor.name), "there twice", "each tensor once"));
        }
        tensors.push(tensor);
    }
    Ok(tensors)
}

fn tensor_info(reader: &mut Reader, index: u64, own: bool) -> Result<TensorInfo, Fault> {
    let name = name(reader, &format_args!("the name of tensor {index}"))?;
    let shape = shape(reader, &name)?;
    let format_id = reader.u32(&format_args!("the format of {}", quoted(&name)))?;
    let (lies, number) = Lies::of(format_id, own);
    let Some(format) = Format::from_ggml_type(number) else {
        let field = format_args!("the format of {}", quoted(&name)).to_string();
        return Err(Fault::unsupported(field, format_args!("number {format_id}"), known_formats()));
    };
    let mut len = super::size_in_bytes(&name, &shape, format)?;
    if lies != Lies::Rows {
        len = size_arranged(&name, &shape, format, lies)?;
    }
    let offset = reader.u64(&format_args!("the offset of {}", quoted(&name)))?;
    let offset = usize::try_from(offset).map_err(|_| {
        Fault::damaged(format_args!("the offset of {}", quoted(&name)), offset, "one within the file")
    })?;
    Ok(TensorInfo { name, shape, format, lies, offset, len })
}

/// Bytes of a matrix, or of the matrices of all experts, as a device reads them.
fn size_arranged(name: &str, shape: &[usize], format: Format, lies: Lies) -> Result<usize, Fault> {
    let sizes = match *shape {
        [rows, cols] => Some((1, rows, cols)),
        [experts, rows, cols] => Some((experts, rows, cols)),
        _ => None,
    };
    let bytes = sizes.and_then(|(matrices, rows, cols)| match lies {
        Lies::Tiles => stored::bytes(format, rows, cols, matrices),
        Lies::Panels | Lies::Rows => panels::matrix_bytes(format, rows, cols)?.checked_mul(matrices),
    });
    bytes.filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or_else(|| {
        let expected = "two or three sizes that fit, for a matrix in panels or tiles";
        Fault::damaged(format!("the shape of {}", quoted(name)), format!("{shape:?}"), expected)
    })
}

/// The file lists dimensions innermost first; ours are outermost first.
fn shape(reader: &mut Reader, name: &str) -> Result<Vec<usize>, Fault> {
    let field = || format!("the shape of {}", quoted(name));
    let dimensions = reader.u32(&format_args!("the shape of {}", quoted(name)))?;
    if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
        let found = format!("{dimensions} dimensions");
        return Err(Fault::damaged(field(), found, format!("1 to {DIMENSIONS_MAX}")));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        let size = reader.u64(&format_args!("the shape of {}", quoted(name)))?;
        shape.push(usize::try_from(size).map_err(|_| Fault::damaged(field(), size, "sizes that fit"))?);
    }
    shape.reverse();
    Ok(shape)
}

fn known_formats() -> String {
    let names: Vec<_> =
        Format::ALL.into_iter().filter(|format| format.ggml_type().is_some()).map(Format::name).collect();
    format!("one of {}", names.join(", "))
}

/// Turns offsets into the data into offsets into the file, and checks that each tensor lies there alone.
fn place(tensors: &mut [TensorInfo], data: usize, alignment: u64, file: usize) -> Result<(), Fault> {
    for tensor in tensors.iter_mut() {
        if !(tensor.offset as u64).is_multiple_of(alignment) {
            let field = format!("the offset of {}", quoted(&tensor.name));
            return Err(Fault::damaged(field, tensor.offset, format!("a multiple of {alignment}")));
        }
        let end = data.checked_add(tensor.offset).and_then(|start| start.checked_add(tensor.len));
        if end.is_none_or(|end| end > file) {
            let left = (file as u64).saturating_sub(data as u64).saturating_sub(tensor.offset as u64);
            return Err(Fault::truncated(quoted(&tensor.name), tensor.len as u64, left));
        }
        tensor.offset += data;
    }
    apart(tensors)
}

fn apart(tensors: &[TensorInfo]) -> Result<(), Fault> {
    let mut sorted: Vec<&TensorInfo> = tensors.iter().collect();
    sorted.sort_by_key(|tensor| tensor.offset);
    for pair in sorted.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if a.offset + a.len > b.offset {
            let field = format!("the offset of {}", quoted(&b.name));
            let found = format!("{}, inside {}", b.offset, quoted(&a.name));
            return Err(Fault::damaged(field, found, "tensors that do not overlap"));
        }
    }
    Ok(())
}

/// The bytes of a key and its text.
pub(crate) fn string_pair(key: &str, text: &[u8]) -> Vec<u8> {
    let mut pair = Vec::with_capacity(key.len() + text.len() + 20);
    write_string(key.as_bytes(), &mut pair);
    pair.extend(STRING_KIND.to_le_bytes());
    write_string(text, &mut pair);
    pair
}

pub(crate) fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}
