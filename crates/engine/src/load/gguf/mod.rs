//! GGUF: one file with typed key/values, a tensor table, and aligned tensor data.
//!
//! `parse` walks and checks everything before the data, and every tensor's place in it. It copies only
//! names: longer values stay where they lie and are reached through `Metadata`.

mod metadata;
mod value;

pub use metadata::GgufMetadata;
pub use value::{Value, ValueKind};

use super::error::{Fault, quoted};
use super::reader::Reader;
use crate::limits::{GGUF_KEYS_MAX, MODEL_TENSORS_MAX, NAME_BYTES_MAX};
use crate::quant::Format;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;

const MAGIC: &[u8; 4] = b"GGUF";
const ALIGNMENT_KEY: &str = "general.alignment";
const ALIGNMENT_DEFAULT: u64 = 32;
const ALIGNMENT_MAX: u64 = 1 << 20;
const DIMENSIONS_MAX: u32 = 4;

/// Everything in a GGUF file but the weights.
#[derive(Debug, Clone)]
pub struct Header {
    pub version: u32,
    pub values: BTreeMap<String, Value>,
    pub tensors: Vec<TensorInfo>,
}

/// One row of the tensor table. The bytes are known to lie within the file, apart from all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    pub shape: Vec<usize>, // outermost first
    pub format: Format,
    pub offset: usize, // from the start of the file
    pub len: usize,    // bytes
}

/// Checks a whole file: its header, and that the tensors lie within it, aligned and apart.
pub fn parse(bytes: &[u8]) -> Result<Header, Fault> {
    let reader = &mut Reader::new(bytes);
    let version = preamble(reader)?;
    let tensors = count(reader, &"the number of tensors", MODEL_TENSORS_MAX as u64)?;
    let keys = count(reader, &"the number of metadata keys", GGUF_KEYS_MAX)?;
    let values = key_values(reader, keys)?;
    let alignment = alignment(&values)?;
    let mut tensors = tensor_table(reader, tensors)?;
    place(&mut tensors, reader.position(), alignment, bytes.len())?;
    Ok(Header { version, values, tensors })
}

fn preamble(reader: &mut Reader) -> Result<u32, Fault> {
    let magic = reader.take(4, &"the magic number")?;
    if magic != MAGIC {
        return Err(Fault::unsupported("the magic number", format!("{magic:02x?}"), "\"GGUF\""));
    }
    let version = reader.u32(&"the version")?;
    match version {
        2 | 3 => Ok(version),
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

fn key_values(reader: &mut Reader, count: u64) -> Result<BTreeMap<String, Value>, Fault> {
    let mut values = BTreeMap::new();
    for i in 0..count {
        let key = name(reader, &format_args!("the name of metadata key {i}"))?;
        let value = value::read(reader, &key)?;
        if values.contains_key(&key) {
            return Err(Fault::damaged(quoted(&key), "there twice", "each metadata key once"));
        }
        values.insert(key, value);
    }
    Ok(values)
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
fn tensor_table(reader: &mut Reader, count: u64) -> Result<Vec<TensorInfo>, Fault> {
    let mut tensors = Vec::new();
    let mut names = HashSet::new();
    for i in 0..count {
        let tensor = tensor_info(reader, i)?;
        if !names.insert(tensor.name.clone()) {
            return Err(Fault::damaged(quoted(&tensor.name), "there twice", "each tensor once"));
        }
        tensors.push(tensor);
    }
    Ok(tensors)
}

fn tensor_info(reader: &mut Reader, index: u64) -> Result<TensorInfo, Fault> {
    let name = name(reader, &format_args!("the name of tensor {index}"))?;
    let shape = shape(reader, &name)?;
    let format_id = reader.u32(&format_args!("the format of {}", quoted(&name)))?;
    let Some(format) = Format::from_ggml_type(format_id) else {
        let field = format_args!("the format of {}", quoted(&name)).to_string();
        return Err(Fault::unsupported(field, format_args!("number {format_id}"), known_formats()));
    };
    let len = super::size_in_bytes(&name, &shape, format)?;
    let offset = reader.u64(&format_args!("the offset of {}", quoted(&name)))?;
    let offset = usize::try_from(offset).map_err(|_| {
        Fault::damaged(format_args!("the offset of {}", quoted(&name)), offset, "one within the file")
    })?;
    Ok(TensorInfo { name, shape, format, offset, len })
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
fn place(tensors: &mut [TensorInfo], header: usize, alignment: u64, file: usize) -> Result<(), Fault> {
    let data = header.next_multiple_of(alignment as usize);
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
