//! The typed values of GGUF metadata.

use super::super::error::{Fault, quoted};
use super::super::reader::Reader;
use crate::limits::{GGUF_ARRAY_DEPTH_MAX, GGUF_ARRAY_LEN_MAX};
use std::fmt;
use std::ops::Range;

/// A checked value. Strings and arrays are ranges of the file: a vocabulary is not copied to be looked at.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    String(Range<usize>),
    Array { kind: ValueKind, len: usize, bytes: Range<usize> },
}

/// The types that a value or the elements of an array have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueKind {
    /// In the order of their numbers in the file.
    const ALL: [ValueKind; 13] = [
        ValueKind::U8,
        ValueKind::I8,
        ValueKind::U16,
        ValueKind::I16,
        ValueKind::U32,
        ValueKind::I32,
        ValueKind::F32,
        ValueKind::Bool,
        ValueKind::String,
        ValueKind::Array,
        ValueKind::U64,
        ValueKind::I64,
        ValueKind::F64,
    ];

    /// Bytes of a number; strings and arrays say their own length.
    pub(super) fn bytes(self) -> Option<usize> {
        match self {
            ValueKind::U8 | ValueKind::I8 | ValueKind::Bool => Some(1),
            ValueKind::U16 | ValueKind::I16 => Some(2),
            ValueKind::U32 | ValueKind::I32 | ValueKind::F32 => Some(4),
            ValueKind::U64 | ValueKind::I64 | ValueKind::F64 => Some(8),
            ValueKind::String | ValueKind::Array => None,
        }
    }
}

impl Value {
    /// What it is, for messages.
    pub(in super::super) fn kind(&self) -> &'static str {
        match self {
            Value::Unsigned(_) => "an unsigned number",
            Value::Signed(_) => "a signed number",
            Value::Float(_) => "a float",
            Value::Bool(_) => "a boolean",
            Value::String(_) => "a string",
            Value::Array { .. } => "an array",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Value::Unsigned(value) => value.fmt(f),
            Value::Signed(value) => value.fmt(f),
            Value::Float(value) => value.fmt(f),
            Value::Bool(value) => value.fmt(f),
            Value::String(_) | Value::Array { .. } => f.write_str(self.kind()),
        }
    }
}

/// Reads and checks the value of `key`.
pub(super) fn read(reader: &mut Reader, key: &str) -> Result<Value, Fault> {
    match kind(reader, key)? {
        ValueKind::String => reader.string(&quoted(key)).map(|(_, range)| Value::String(range)),
        ValueKind::Array => array(reader, key, 1),
        number => {
            let bytes = reader.take(number.bytes().unwrap_or(0) as u64, &quoted(key))?;
            self::number(number, bytes).ok_or_else(|| not_a_bool(key))
        }
    }
}

fn kind(reader: &mut Reader, key: &str) -> Result<ValueKind, Fault> {
    let id = reader.u32(&format_args!("the type of {}", quoted(key)))?;
    let kind = ValueKind::ALL.get(id as usize).copied();
    kind.ok_or_else(|| Fault::damaged(format_args!("the type of {}", quoted(key)), id, "0 to 12"))
}

fn not_a_bool(key: &str) -> Fault {
    Fault::damaged(quoted(key), "neither 0 nor 1", "a boolean")
}

/// A number from exactly its bytes; `None`: a boolean that is neither.
pub(super) fn number(kind: ValueKind, bytes: &[u8]) -> Option<Value> {
    let mut low = [0; 8];
    low.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let bits = u64::from_le_bytes(low);
    Some(match kind {
        ValueKind::U8 | ValueKind::U16 | ValueKind::U32 | ValueKind::U64 => Value::Unsigned(bits),
        ValueKind::I8 => Value::Signed(i64::from(bits as i8)),
        ValueKind::I16 => Value::Signed(i64::from(bits as i16)),
        ValueKind::I32 => Value::Signed(i64::from(bits as i32)),
        ValueKind::I64 => Value::Signed(bits as i64),
        ValueKind::F32 => Value::Float(f64::from(f32::from_bits(bits as u32))),
        ValueKind::F64 => Value::Float(f64::from_bits(bits)),
        ValueKind::Bool if bits <= 1 => Value::Bool(bits == 1),
        ValueKind::Bool | ValueKind::String | ValueKind::Array => return None,
    })
}

/// Walks an array, so that later reads of it cannot fail.
fn array(reader: &mut Reader, key: &str, depth: usize) -> Result<Value, Fault> {
    if depth > GGUF_ARRAY_DEPTH_MAX {
        let expected = format!("at most {GGUF_ARRAY_DEPTH_MAX} arrays within one another");
        return Err(Fault::damaged(quoted(key), "nested deeper", expected));
    }
    let kind = kind(reader, key)?;
    let len = reader.u64(&format_args!("the length of {}", quoted(key)))?;
    if len > GGUF_ARRAY_LEN_MAX {
        let field = format!("the length of {}", quoted(key));
        return Err(Fault::damaged(field, len, format!("at most {GGUF_ARRAY_LEN_MAX}")));
    }
    let start = reader.position();
    elements(reader, key, kind, len, depth)?;
    Ok(Value::Array { kind, len: len as usize, bytes: start..reader.position() })
}

fn elements(reader: &mut Reader, key: &str, kind: ValueKind, len: u64, depth: usize) -> Result<(), Fault> {
    if let Some(bytes) = kind.bytes() {
        let bytes = reader.take(len * bytes as u64, &quoted(key))?;
        let flawed = kind == ValueKind::Bool && bytes.iter().any(|byte| *byte > 1);
        return if flawed { Err(not_a_bool(key)) } else { Ok(()) };
    }
    for i in 0..len {
        if kind == ValueKind::Array {
            array(reader, key, depth + 1)?;
        } else {
            reader.string(&format_args!("element {i} of {}", quoted(key)))?;
        }
    }
    Ok(())
}
