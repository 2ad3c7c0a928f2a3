//! Looking up GGUF metadata: typed, by key, decoded from the mapped file when asked for.

use super::super::error::{Fault, quoted};
use super::super::reader::Reader;
use super::super::region::MappedFile;
use super::Header;
use super::value::{Value, ValueKind, number};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The key/values of a GGUF file (of a split model: of its first file).
#[derive(Debug, Clone)]
pub struct GgufMetadata {
    pub values: BTreeMap<String, Value>,
    pairs: Vec<(String, Range<usize>)>,
    file: Arc<MappedFile>,
}

/// The elements of an array, still as they lie in the file.
struct ArrayView<'a> {
    kind: ValueKind,
    len: usize,
    bytes: &'a [u8],
}

impl GgufMetadata {
    pub(in super::super) fn new(header: Header, file: Arc<MappedFile>) -> GgufMetadata {
        GgufMetadata { values: header.values, pairs: header.pairs, file }
    }

    /// Every key with the bytes that say it and its value, in the order of the file.
    pub(in super::super) fn pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let bytes = |range: &Range<usize>| self.file.bytes().get(range.clone()).unwrap_or_default();
        self.pairs.iter().map(move |(key, range)| (key.as_str(), bytes(range)))
    }

    pub(in super::super) fn path(&self) -> &Path {
        &self.file.path
    }

    /// A string; `None` when there is no such key.
    pub fn text(&self, key: &str) -> Result<Option<&str>, Fault> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::String(range)) => {
                let bytes = self.file.bytes().get(range.clone()).unwrap_or_default();
                let text = std::str::from_utf8(bytes);
                text.map(Some).map_err(|error| Fault::damaged(quoted(key), error, "UTF-8 text"))
            }
            Some(other) => Err(wrong_kind(key, other, "a string")),
        }
    }

    /// A whole number that is not negative.
    pub fn whole(&self, key: &str) -> Result<Option<u64>, Fault> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(value)) => Ok(Some(*value)),
            Some(Value::Signed(value)) if *value >= 0 => Ok(Some(*value as u64)),
            Some(other) => Err(wrong_kind(key, other, "a whole number that is not negative")),
        }
    }

    pub fn real(&self, key: &str) -> Result<Option<f64>, Fault> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Float(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong_kind(key, other, "a float")),
        }
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, Fault> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong_kind(key, other, "a boolean")),
        }
    }

    /// An array of strings.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<String>>, Fault> {
        let Some(array) = self.array(key, "an array of strings", |kind| kind == ValueKind::String)? else {
            return Ok(None);
        };
        let reader = &mut Reader::new(array.bytes);
        let texts = (0..array.len).map(|_| reader.string(&quoted(key)).map(|(text, _)| text.to_owned()));
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// An array of whole numbers, of any width.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, Fault> {
        let integer = |kind| !matches!(kind, ValueKind::F32 | ValueKind::F64 | ValueKind::Bool);
        self.numbers(key, "an array of whole numbers", integer, |value| match value {
            Value::Unsigned(value) => i64::try_from(value).ok(),
            Value::Signed(value) => Some(value),
            _ => None,
        })
    }

    /// An array of floats.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>, Fault> {
        let float = |kind| matches!(kind, ValueKind::F32 | ValueKind::F64);
        self.numbers(key, "an array of floats", float, |value| match value {
            Value::Float(value) => Some(value as f32),
            _ => None,
        })
    }

    fn numbers<T>(
        &self,
        key: &str,
        expected: &str,
        wanted: impl Fn(ValueKind) -> bool,
        convert: impl Fn(Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, Fault> {
        let Some(array) = self.array(key, expected, |kind| kind.bytes().is_some() && wanted(kind))? else {
            return Ok(None);
        };
        let elements = array.bytes.chunks_exact(array.kind.bytes().unwrap_or(1));
        let numbers = elements.map(|bytes| number(array.kind, bytes).and_then(&convert));
        let numbers: Option<Vec<T>> = numbers.collect();
        numbers.map(Some).ok_or_else(|| Fault::damaged(quoted(key), "out of range", expected))
    }

    fn array(
        &self,
        key: &str,
        expected: &str,
        wanted: impl Fn(ValueKind) -> bool,
    ) -> Result<Option<ArrayView<'_>>, Fault> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Array { kind, len, bytes }) if wanted(*kind) => {
                let bytes = self.file.bytes().get(bytes.clone()).unwrap_or_default();
                Ok(Some(ArrayView { kind: *kind, len: *len, bytes }))
            }
            Some(other) => Err(wrong_kind(key, other, expected)),
        }
    }
}

fn wrong_kind(key: &str, found: &Value, expected: &str) -> Fault {
    let found = match found {
        Value::Array { kind, .. } => format!("an array of {kind:?}"),
        other => other.to_string(),
    };
    Fault::damaged(quoted(key), found, expected)
}
