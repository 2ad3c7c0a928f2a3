//! Safetensors: the length of a JSON header, the header, and the tensors it describes back to back.

use super::error::{Fault, quoted};
use super::reader::Reader;
use crate::limits::{MODEL_TENSORS_MAX, NAME_BYTES_MAX, SAFETENSORS_HEADER_BYTES_MAX};
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

const DIMENSIONS_MAX: usize = 8;

/// The number types that weights and their scales come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    F32,
    F16,
    Bf16,
    F8E4m3,
    U8,
}

/// One tensor of the header. Its bytes are known to lie within the file, apart from all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,   // outermost first
    pub range: Range<usize>, // from the start of the file
}

impl Dtype {
    const ALL: [Dtype; 5] = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::F8E4m3, Dtype::U8];

    pub fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "F32",
            Dtype::F16 => "F16",
            Dtype::Bf16 => "BF16",
            Dtype::F8E4m3 => "F8_E4M3",
            Dtype::U8 => "U8",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::F8E4m3 | Dtype::U8 => 1,
        }
    }
}

/// What the header says of one tensor.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The tensors of a header, each name once, without the free-form `__metadata__`.
struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("{} there twice", quoted(&name))));
            }
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let entry = map.next_value();
            let entry =
                entry.map_err(|error| A::Error::custom(format_args!("{}: {error}", quoted(&name))))?;
            entries.push((name, entry));
        }
        Ok(Entries(entries))
    }
}

/// Checks the header of a file of `file_len` bytes; `bytes` are the file's first, at least the header.
pub fn parse_header(bytes: &[u8], file_len: u64) -> Result<Vec<StoredTensor>, Fault> {
    let reader = &mut Reader::new(bytes);
    let len = reader.u64(&"the length of the header")?;
    if len > SAFETENSORS_HEADER_BYTES_MAX {
        let expected = format!("at most {SAFETENSORS_HEADER_BYTES_MAX}");
        return Err(Fault::damaged("the length of the header", len, expected));
    }
    let json = reader.take(len, &"the header")?;
    let Entries(entries) =
        serde_json::from_slice(json).map_err(|error| Fault::unreadable("the header", error))?;
    if entries.len() > MODEL_TENSORS_MAX {
        let expected = format!("at most {MODEL_TENSORS_MAX}");
        return Err(Fault::damaged("the number of tensors", entries.len(), expected));
    }
    let data = reader.position();
    let data_len = file_len.saturating_sub(data as u64);
    let mut tensors = Vec::new();
    for (name, entry) in entries {
        tensors.push(tensor(name, entry, data, data_len)?);
    }
    back_to_back(&mut tensors, data, data_len)?;
    Ok(tensors)
}

fn tensor(name: String, entry: Entry, data: usize, data_len: u64) -> Result<StoredTensor, Fault> {
    if name.is_empty() || name.len() as u64 > NAME_BYTES_MAX {
        let found = format!("{} bytes long", name.len());
        return Err(Fault::damaged("a tensor's name", found, format!("1 to {NAME_BYTES_MAX} bytes")));
    }
    let dtype = dtype(&name, &entry.dtype)?;
    let shape = shape(&name, &entry.shape)?;
    let (start, end) = entry.data_offsets;
    let len = bytes(&name, dtype, &shape)?;
    let field = format!("the data_offsets of {}", quoted(&name));
    if start > end || end - start != len {
        let expected = format!("{len} bytes for {shape:?} in {}", dtype.name());
        return Err(Fault::damaged(field, format!("[{start}, {end}]"), expected));
    }
    if end > data_len {
        return Err(Fault::truncated(quoted(&name), len, data_len.saturating_sub(start)));
    }
    // `end` is within a file that is mapped, so neither sum can overflow.
    Ok(StoredTensor { name, dtype, shape, range: data + start as usize..data + end as usize })
}

fn dtype(name: &str, dtype: &str) -> Result<Dtype, Fault> {
    Dtype::ALL.into_iter().find(|known| known.name() == dtype).ok_or_else(|| {
        let known = Dtype::ALL.map(Dtype::name).join(", ");
        Fault::unsupported(format!("the dtype of {}", quoted(name)), quoted(dtype), format!("one of {known}"))
    })
}

fn shape(name: &str, shape: &[u64]) -> Result<Vec<usize>, Fault> {
    let wrong = |found: String, expected: String| {
        Fault::damaged(format!("the shape of {}", quoted(name)), found, expected)
    };
    if shape.len() > DIMENSIONS_MAX {
        let found = format!("{} dimensions", shape.len());
        return Err(wrong(found, format!("at most {DIMENSIONS_MAX}")));
    }
    let sizes: Option<Vec<usize>> = shape.iter().map(|size| usize::try_from(*size).ok()).collect();
    sizes
        .filter(|sizes| !sizes.contains(&0))
        .ok_or_else(|| wrong(format!("{shape:?}"), "sizes of at least 1".into()))
}

fn bytes(name: &str, dtype: Dtype, shape: &[usize]) -> Result<u64, Fault> {
    let bytes = shape.iter().try_fold(dtype.bytes(), |bytes, size| bytes.checked_mul(*size));
    bytes.map(|bytes| bytes as u64).ok_or_else(|| {
        Fault::damaged(format!("the shape of {}", quoted(name)), format!("{shape:?}"), "a size that fits")
    })
}

/// The data must be covered exactly: no overlap, no hole, nothing after.
fn back_to_back(tensors: &mut [StoredTensor], data: usize, data_len: u64) -> Result<(), Fault> {
    tensors.sort_by_key(|tensor| tensor.range.start);
    let mut at = data;
    for tensor in tensors.iter() {
        if tensor.range.start != at {
            let field = format!("the data_offsets of {}", quoted(&tensor.name));
            let expected = format!("{}, where the tensor before it ends", at - data);
            return Err(Fault::damaged(field, tensor.range.start - data, expected));
        }
        at = tensor.range.end;
    }
    if (at - data) as u64 != data_len {
        return Err(Fault::damaged("the length of the data", data_len, at - data));
    }
    Ok(())
}
