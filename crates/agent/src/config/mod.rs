//! What the agent is told to be, in layers: each says what it says, and the last that says something about a key counts.
//!
//! All that is known about keys is one table (`keys`). From it come the check of every layer, the warnings about keys that
//! mean nothing, what `flint config show` tells, and the published JSON schema.

mod import;
mod keys;
mod layer;
mod likely;
mod load;
mod schema;
mod secret;
mod write;

pub use import::{Import, Left, Taken, Why, import};
pub use keys::{KEYS, Key, Kind, Project, SERVERS};
pub use layer::{Entry, Layer, Place, Source, Value};
pub(crate) use likely::likely;
pub use load::{Loaded, Places, project};
pub use schema::json_schema;

use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{place}: {problem}")]
    Toml { place: Place, problem: String },
    #[error("{place}: `{}` is {found}, expected {expected}", .key.escape_debug())]
    Kind { place: Place, key: String, found: String, expected: String },
    #[error("`{0}` is not a setting: write KEY=VALUE")]
    Flag(String),
}

/// Something that was said and does not count. Nothing is left out without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    Unknown {
        place: Place,
        key: String,
        likely: Option<String>,
    },
    /// A repository may not decide this, or only for less.
    NotForProjects {
        place: Place,
        key: String,
        narrower: bool,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names are a file's too: a terminal must not obey them.
        match self {
            Warning::Unknown { place, key, likely: Some(likely) } => {
                let (key, likely) = (key.escape_debug(), likely.escape_debug());
                write!(out, "{place}: nothing is called `{key}`; did you mean `{likely}`?")
            }
            Warning::Unknown { place, key, likely: None } => {
                write!(out, "{place}: nothing is called `{}`", key.escape_debug())
            }
            Warning::NotForProjects { place, key, narrower: false } => {
                write!(out, "{place}: `{}` is ignored: a project cannot set it", key.escape_debug())
            }
            Warning::NotForProjects { place, key, narrower: true } => {
                let key = key.escape_debug();
                write!(out, "{place}: `{key}` is ignored: a project can only give itself fewer rights")
            }
        }
    }
}

/// All settings, each with where it comes from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    values: BTreeMap<String, (Value, Place)>, // by the key's whole name
}

impl Config {
    /// Puts layers together, the weakest first.
    pub fn resolve(layers: &[Layer]) -> Result<(Config, Vec<Warning>), ConfigError> {
        let (mut config, mut warnings) = (Config::default(), Vec::new());
        for layer in layers {
            for entry in &layer.entries {
                config.take(layer, entry, &mut warnings)?;
            }
        }
        Ok((config, warnings))
    }

    fn take(&mut self, layer: &Layer, entry: &Entry, warnings: &mut Vec<Warning>) -> Result<(), ConfigError> {
        let Entry { path, value, line } = entry;
        let (key, place) = (path.join("."), layer.place(*line));
        let Some(known) = Key::find(path) else {
            // What `flint serve` reads of the same file, and checks.
            if layer.source == Source::User && SERVERS.contains(&path[0].as_str()) {
                return Ok(());
            }
            let likely = likely(path, KEYS.iter().map(|key| key.path));
            warnings.push(Warning::Unknown { place, key, likely });
            return Ok(());
        };
        if let Err(expected) = known.kind.check(value) {
            return Err(ConfigError::Kind { place, key, found: value.to_string(), expected });
        }
        if layer.source == Source::Project {
            let narrower = matches!(known.project, Project::Narrows);
            let allowed = match known.project {
                Project::May => true,
                Project::Never => false,
                Project::Narrows => known.kind.narrows(value, self.value(&key)),
            };
            if !allowed {
                warnings.push(Warning::NotForProjects { place, key, narrower });
                return Ok(());
            }
        }
        self.values.insert(key, (value.clone(), place));
        Ok(())
    }

    /// By a name whose parts may have dots in them.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        self.value(&path.join("."))
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key).map(|(value, _)| value)
    }

    /// Where a setting comes from.
    pub fn place(&self, key: &str) -> Option<&Place> {
        self.values.get(key).map(|(_, place)| place)
    }

    /// All settings that this source decides.
    pub fn of_source(&self, source: Source) -> impl Iterator<Item = (&str, &Place)> {
        let places = self.values.iter().map(|(key, (_, place))| (key.as_str(), place));
        places.filter(move |(_, place)| place.source == source)
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match self.value(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key)? {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    pub fn integer(&self, key: &str) -> Option<i64> {
        match self.value(key)? {
            Value::Integer(integer) => Some(*integer),
            _ => None,
        }
    }

    pub fn texts(&self, key: &str) -> Vec<String> {
        let Some(Value::List(list)) = self.value(key) else { return Vec::new() };
        let text = |value: &Value| match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        list.iter().filter_map(text).collect()
    }

    /// Names that stand under a key, such as those of providers.
    pub fn names(&self, key: &str) -> Vec<&str> {
        let prefix = format!("{key}.");
        let rest = self.values.keys().filter_map(|whole| whole.strip_prefix(&prefix));
        let mut names: Vec<&str> = rest.filter_map(|rest| rest.split('.').next()).collect();
        names.dedup();
        names
    }

    /// A line for each setting: what it is, and who says so.
    pub fn show(&self) -> String {
        let line = |(key, (value, place)): (&String, &(Value, Place))| {
            format!("{} = {value}  # {place}\n", key.escape_debug())
        };
        self.values.iter().map(line).collect()
    }
}
