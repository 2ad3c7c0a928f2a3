//! Reading a JSON object field by field.
//!
//! Every field that a request may have is read through here, so that every error says where it is, every number
//! has bounds, and what nobody has asked for can be named to the client.

use crate::error::ApiError;
use serde_json::{Map, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// An object, where it stands in the request, and which of its fields were asked for.
#[derive(Debug)]
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String, // empty at the top
    asked: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The request itself.
    pub fn top(value: &'a Value) -> Result<Fields<'a>, ApiError> {
        let object = "the request must be a JSON object";
        let map = value.as_object().ok_or_else(|| ApiError::bad_request("invalid_json", object))?;
        Ok(Fields { map, path: String::new(), asked: Vec::new() })
    }

    /// A value that stands at `path`.
    pub fn at(path: impl Into<String>, value: &'a Value) -> Result<Fields<'a>, ApiError> {
        let path = path.into();
        match value {
            Value::Object(map) => Ok(Fields { map, path, asked: Vec::new() }),
            other => Err(wrong(&path, "an object", other)),
        }
    }

    pub fn path(&self, key: &str) -> String {
        match self.path.is_empty() {
            true => key.to_owned(),
            false => format!("{}.{key}", self.path),
        }
    }

    /// The field as it is; absent and null are the same.
    pub fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        self.asked.push(key);
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub fn text(&mut self, key: &'static str) -> Result<Option<&'a str>, ApiError> {
        self.typed(key, "a string", Value::as_str)
    }

    pub fn required_text(&mut self, key: &'static str) -> Result<&'a str, ApiError> {
        let text = self.text(key)?;
        text.ok_or_else(|| self.missing(key))
    }

    /// A string of at most `bytes_max` bytes.
    pub fn short_text(&mut self, key: &'static str, bytes_max: usize) -> Result<Option<&'a str>, ApiError> {
        let text = self.text(key)?;
        match text {
            Some(text) if text.len() > bytes_max => {
                let problem = format!("has {} bytes, at most {bytes_max} are allowed", text.len());
                Err(self.invalid(key, problem))
            }
            text => Ok(text),
        }
    }

    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>, ApiError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, ApiError> {
        let number = self.typed(key, "a whole number that is not negative", whole)?;
        self.within(key, number, range)
    }

    pub fn signed(&mut self, key: &'static str) -> Result<Option<i64>, ApiError> {
        self.typed(key, "a whole number", Value::as_i64)
    }

    pub fn number(&mut self, key: &'static str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        let number = self.typed(key, "a number", Value::as_f64)?;
        self.within(key, number, range)
    }

    pub fn array(&mut self, key: &'static str, len_max: usize) -> Result<Option<&'a [Value]>, ApiError> {
        let array = self.typed(key, "an array", |value| value.as_array().map(Vec::as_slice))?;
        match array {
            Some(array) if array.len() > len_max => {
                let problem = format!("has {} entries, at most {len_max} are allowed", array.len());
                Err(self.invalid(key, problem))
            }
            array => Ok(array),
        }
    }

    pub fn object(&mut self, key: &'static str) -> Result<Option<Fields<'a>>, ApiError> {
        let path = self.path(key);
        self.value(key).map(|value| Fields::at(path, value)).transpose()
    }

    /// One of a few words.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, ApiError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match choices.iter().find(|(word, _)| *word == text) {
            Some((_, chosen)) => Ok(Some(*chosen)),
            None => {
                let words: Vec<String> = choices.iter().map(|(word, _)| format!("'{word}'")).collect();
                Err(self.invalid(key, format!("is {}, it must be one of {}", shown(text), words.join(", "))))
            }
        }
    }

    pub fn missing(&self, key: &str) -> ApiError {
        let path = self.path(key);
        ApiError {
            code: "missing_required_parameter",
            ..ApiError::invalid(&*path, format!("`{path}` is required and is not there"))
        }
    }

    pub fn invalid(&self, key: &str, problem: impl Display) -> ApiError {
        let path = self.path(key);
        ApiError::invalid(&*path, format!("`{path}` {problem}"))
    }

    /// These may be there, and nothing is lost by not looking at them.
    pub fn allow(&mut self, keys: &[&'static str]) {
        self.asked.extend_from_slice(keys);
    }

    /// These fields, where they say something else than what is done anyway.
    pub fn unusual(&mut self, usual: &[(&'static str, Value)]) -> Vec<String> {
        let others = usual.iter().filter(|(key, usual)| self.value(key).is_some_and(|value| value != usual));
        others.map(|(key, _)| (*key).to_owned()).collect()
    }

    /// Fields that nobody has asked for, with their paths.
    pub fn unasked(&self) -> impl Iterator<Item = String> + '_ {
        let unasked =
            self.map.iter().filter(|(key, value)| !value.is_null() && !self.asked.contains(&&***key));
        unasked.map(|(key, _)| self.path(key))
    }

    fn typed<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(wrong(&self.path(key), expected, value)),
        }
    }

    fn within<T: PartialOrd + Display>(
        &self,
        key: &str,
        number: Option<T>,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, ApiError> {
        match number {
            Some(number) if !range.contains(&number) => {
                let (low, high) = (range.start(), range.end());
                Err(self.invalid(key, format!("is {number}, it must be from {low} to {high}")))
            }
            number => Ok(number),
        }
    }
}

/// 16 and 16.0 are both whole.
fn whole(value: &Value) -> Option<u64> {
    let float = || value.as_f64().filter(|f| f.fract() == 0.0 && (0.0..9e15).contains(f));
    value.as_u64().or_else(|| float().map(|f| f as u64))
}

fn wrong(path: &str, expected: &str, found: &Value) -> ApiError {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let problem = match (expected, kind) {
        ("a whole number that is not negative" | "a whole number", "a number") => {
            format!("`{path}` must be {expected}, it is {found}")
        }
        _ => format!("`{path}` must be {expected}, it is {kind}"),
    };
    ApiError { code: "invalid_type", ..ApiError::invalid(path, problem) }
}

/// A client's word in an error message: short, and harmless to print.
fn shown(text: &str) -> String {
    let short: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    format!("'{short}'")
}
