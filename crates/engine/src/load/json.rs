//! JSON files beside the weights: read within a bound, and looked at through typed, named fields.

use super::error::{Fault, LoadError, quoted};
use super::fields::Fields;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::marker::PhantomData;
use std::path::Path;

/// The bytes of a file that may be `max` long; `None` when there is no such file.
pub(super) fn read(path: &Path, max: u64) -> Result<Option<Vec<u8>>, LoadError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file,
    };
    let bytes =
        file.and_then(|file| read_up_to(&file, max + 1)).map_err(|error| Fault::Io(error).of(path))?;
    if bytes.len() as u64 > max {
        return Err(Fault::damaged("the file", "longer", format!("at most {max} bytes")).of(path));
    }
    Ok(Some(bytes))
}

fn read_up_to(file: &File, max: u64) -> io::Result<Vec<u8>> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, LoadError> {
    serde_json::from_slice(bytes).map_err(|error| Fault::unreadable("the JSON", error).of(path))
}

/// An object whose keys are all different: `serde_json` alone would keep the last of two.
pub(super) struct UniqueMap<V>(pub(super) Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueMapVisitor(PhantomData))
    }
}

struct UniqueMapVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueMapVisitor<V> {
    type Value = UniqueMap<V>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueMap<V>, A::Error> {
        let mut entries = Vec::new();
        let mut keys = HashSet::new();
        while let Some((key, value)) = map.next_entry::<String, V>()? {
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom(format_args!("{} there twice", quoted(&key))));
            }
            entries.push((key, value));
        }
        Ok(UniqueMap(entries))
    }
}

/// The fields of an object; `prefix` says where in the file it stands.
pub(super) struct JsonFields<'a> {
    pub(super) object: &'a Map<String, Value>,
    pub(super) prefix: &'static str,
}

impl<'a> JsonFields<'a> {
    /// A field that is there and not null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &self,
        name: &str,
        expected: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let wrong = || Fault::damaged(self.label(name), describe(value), expected);
        convert(value).map(Some).ok_or_else(wrong)
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, Fault> {
        self.typed(name, "a string", Value::as_str)
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Fault> {
        self.typed(name, "true or false", Value::as_bool)
    }

    pub(super) fn list(&self, name: &str) -> Result<&'a [Value], Fault> {
        let list = self.typed(name, "a list", Value::as_array)?;
        Ok(list.map_or(&[], Vec::as_slice))
    }

    pub(super) fn inner(&self, name: &'static str) -> Result<Option<JsonFields<'a>>, Fault> {
        let object = self.typed(name, "an object", Value::as_object)?;
        Ok(object.map(|object| JsonFields { object, prefix: name }))
    }
}

impl Fields for JsonFields<'_> {
    fn whole(&self, name: &str) -> Result<Option<u64>, Fault> {
        self.typed(name, "a whole number that is not negative", Value::as_u64)
    }

    fn real(&self, name: &str) -> Result<Option<f64>, Fault> {
        self.typed(name, "a number", Value::as_f64)
    }

    fn label(&self, name: &str) -> String {
        if self.prefix.is_empty() {
            return quoted(name).to_string();
        }
        quoted(&format!("{}.{name}", self.prefix)).to_string()
    }
}

/// A value in a message: itself when it is short.
pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text).to_string(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}
