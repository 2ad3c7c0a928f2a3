//! One layer: a file, a profile within one, or what stands on the command line.

use super::ConfigError;
use crate::limits::{CONFIG_BYTES_MAX, CONFIG_KEYS_MAX, CONFIG_NAME_BYTES_MAX};
use std::fmt;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Who says something, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Default,
    User,
    Profile,
    Project,
    Environment,
    Flag,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    pub source: Source,
    pub file: Option<PathBuf>,
    pub entries: Vec<Entry>,
}

/// One key that was given a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub path: Vec<String>,
    pub value: Value,
    pub line: usize, // from 1; 0 where there are none
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Text(String),
    Flag(bool),
    Integer(i64),
    List(Vec<Value>),
    /// Of a kind that no key has: a date, a fraction, a table in a list.
    Other(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Escaped: what a file says may be shown on a terminal.
            Value::Text(text) => write!(out, "{text:?}"),
            Value::Flag(flag) => write!(out, "{flag}"),
            Value::Integer(integer) => write!(out, "{integer}"),
            Value::List(list) => {
                let list: Vec<String> = list.iter().map(Value::to_string).collect();
                write!(out, "[{}]", list.join(", "))
            }
            Value::Other(what) => write!(out, "{what}"),
        }
    }
}

/// Where something was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub source: Source,
    pub file: Option<PathBuf>,
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.source) {
            (Some(file), _) => write!(out, "{}:{}", file.display().to_string().escape_debug(), self.line),
            (None, Source::Default) => write!(out, "built in"),
            (None, Source::Environment) => write!(out, "the environment"),
            (None, _) => write!(out, "the command line"),
        }
    }
}

impl Layer {
    pub fn place(&self, line: usize) -> Place {
        Place { source: self.source, file: self.file.clone(), line }
    }

    /// The layer that a file is.
    pub fn parse(source: Source, file: &Path, text: &str) -> Result<Layer, ConfigError> {
        let mut layer = Layer { source, file: Some(file.to_owned()), entries: Vec::new() };
        if text.len() > CONFIG_BYTES_MAX {
            let problem = format!("the file has {} bytes, at most {CONFIG_BYTES_MAX} are read", text.len());
            return Err(ConfigError::Toml { place: layer.place(1), problem });
        }
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_at(text, span.start));
            ConfigError::Toml { place: layer.place(line), problem: error.message().to_owned() }
        })?;
        let gathered = gather(text, table.get_ref(), &mut Vec::new(), &mut layer.entries);
        gathered.map_err(|(line, problem)| ConfigError::Toml { place: layer.place(line), problem })?;
        // In the order of the file: of two warnings the first comes first.
        layer.entries.sort_by_key(|entry| entry.line);
        Ok(layer)
    }

    /// What is built in, and what the environment says.
    pub fn of(source: Source, entries: &[(&str, Value)]) -> Layer {
        let entry = |(key, value): &(&str, Value)| Entry {
            path: key.split('.').map(str::to_owned).collect(),
            value: value.clone(),
            line: 0,
        };
        Layer { source, file: None, entries: entries.iter().map(entry).collect() }
    }

    /// `KEY=VALUE`s of the command line. A value that is not TOML is a text.
    pub fn flags<'a>(given: impl IntoIterator<Item = &'a str>) -> Result<Layer, ConfigError> {
        let mut entries = Vec::new();
        for flag in given {
            let bad = || ConfigError::Flag(flag.to_owned());
            let (key, text) =
                flag.split_once('=').filter(|(key, _)| !key.trim().is_empty()).ok_or_else(bad)?;
            let value = DeValue::parse(text.trim()).map(|value| read(value.get_ref()));
            let value = value.unwrap_or_else(|_| Value::Text(text.to_owned()));
            let path = key.trim().split('.').map(str::to_owned).collect();
            entries.push(Entry { path, value, line: 0 });
        }
        Ok(Layer { source: Source::Flag, file: None, entries })
    }

    /// Takes the profiles out of a layer: their names, and what they say as if they said it themselves.
    pub fn take_profiles(&mut self) -> Vec<(String, Layer)> {
        let is_profile = |entry: &Entry| entry.path.len() > 2 && entry.path[0] == "profiles";
        let (inside, outside) = std::mem::take(&mut self.entries).into_iter().partition(is_profile);
        self.entries = outside;
        let mut profiles: Vec<(String, Layer)> = Vec::new();
        for Entry { mut path, value, line } in inside {
            let rest = path.split_off(2);
            let Some(name) = path.pop() else { continue };
            let entry = Entry { path: rest, value, line };
            match profiles.iter_mut().find(|(known, _)| *known == name) {
                Some((_, layer)) => layer.entries.push(entry),
                None => {
                    let layer =
                        Layer { source: Source::Profile, file: self.file.clone(), entries: vec![entry] };
                    profiles.push((name, layer));
                }
            }
        }
        profiles
    }
}

/// Or the line that is too much, and why.
fn gather(
    text: &str,
    table: &DeTable<'_>,
    path: &mut Vec<String>,
    entries: &mut Vec<Entry>,
) -> Result<(), (usize, String)> {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        let line = || line_at(text, key.span().start);
        // Each key has its whole name: long names of tables would be there many times.
        if path.iter().map(String::len).sum::<usize>() > CONFIG_NAME_BYTES_MAX {
            return Err((line(), format!("a name has more than {CONFIG_NAME_BYTES_MAX} bytes")));
        }
        match value.get_ref() {
            DeValue::Table(table) => gather(text, table, path, entries)?,
            _ if entries.len() == CONFIG_KEYS_MAX => {
                return Err((line(), format!("there are more than {CONFIG_KEYS_MAX} keys")));
            }
            value => entries.push(Entry { path: path.clone(), value: read(value), line: line() }),
        }
        path.pop();
    }
    Ok(())
}

fn read(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => Value::Integer(integer),
            Err(_) => Value::Other("a number that is too large"),
        },
        DeValue::Array(list) => Value::List(list.iter().map(Spanned::get_ref).map(read).collect()),
        DeValue::Float(_) => Value::Other("a fraction"),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Table(_) => Value::Other("a table"),
    }
}

fn line_at(text: &str, byte: usize) -> usize {
    1 + text.as_bytes().iter().take(byte).filter(|byte| **byte == b'\n').count()
}
