//! A Codex set-up as one of Flint: what means the same is taken as it is, and everything else is named.
//!
//! Most keys have the same names, so the table of keys decides. Three things need more than it: a model is only taken with a
//! provider that Flint can know about, secrets stay where they are, and what is left out says why.

use super::secret::{is_named_secret, is_secret, looks_secret};
use super::write::{Line, file};
use super::{ConfigError, Entry, Key, Layer, Place, Source, Value};
use crate::limits::CONFIG_BYTES_MAX;
use crate::settings::OWN;
use std::fmt;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub text: String, // of a configuration file of Flint
    pub taken: Vec<Taken>,
    pub left: Vec<Left>,
    provider: String,       // that is asked
    providers: Vec<String>, // that are described
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub place: Place,
    pub key: String,
}

/// Something that Codex is told and Flint will not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub place: Place,
    pub key: String,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    Unknown,
    /// A program that Codex starts or a host that it asks, and no key of Flint is for such.
    Outside,
    Secret,
    Value {
        found: String,
        expected: String,
    },
    /// Codex knows it without being told.
    Provider(String),
    /// The profile that counts where none is asked for.
    Profile,
}

impl fmt::Display for Left {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Left { place, key, why } = self;
        write!(out, "{place}: `{key}` ")?;
        match why {
            Why::Unknown => write!(out, "means nothing to Flint"),
            Why::Outside => write!(out, "names a program or a host, and Flint has no key for it"),
            Why::Secret => write!(
                out,
                "is a secret or looks like one: put it in a variable and name that as the provider's env_key"
            ),
            Why::Value { found, expected } => write!(out, "is {found}, expected {expected}"),
            Why::Provider(name) => write!(
                out,
                "needs the provider {name:?}, which Codex has built in: describe it as [model_providers.NAME] \
                 with a base_url, and import again"
            ),
            Why::Profile => write!(out, "has no like: ask for the profile with `flint -p NAME`"),
        }
    }
}

/// The one that Codex asks where nothing is said.
const CODEX_PROVIDER: &str = "openai";

const FOUND_CHARS_MAX: usize = 80;
const NAME_CHARS_MAX: usize = 200;

/// What a file of Codex is to Flint. A file that is a profile stands on `base`, the file beside it.
pub fn import(path: &Path, text: &str, base: Option<&Import>) -> Result<Import, ConfigError> {
    let layer = Layer::parse(Source::User, path, text)?;
    let (mut lines, mut left) = (Vec::new(), Vec::new());
    for entry in &layer.entries {
        let (profile, inner) = scope(&entry.path, base);
        match judge(inner, &entry.value) {
            Ok(()) => lines.push(line(profile, inner, entry)),
            Err(why) => left.push(leave(&layer, &entry.path, entry.line, why)),
        }
    }
    let provider = provider(&lines, None, base).to_owned();
    let providers = providers(&lines, base);
    let missing: Vec<Option<String>> = lines.iter().map(|line| missing(line, &lines, base)).collect();
    let mut kept = Vec::new();
    for (line, missing) in lines.into_iter().zip(missing) {
        match missing {
            None => kept.push(line),
            Some(name) => {
                let why = Why::Provider(name.chars().take(FOUND_CHARS_MAX).collect());
                left.push(leave(&layer, &line.whole(), line.number, why));
            }
        }
    }
    left.sort_by_key(|left| left.place.line);
    let taken = kept.iter().map(|line| Taken { place: layer.place(line.number), key: shown(&line.whole()) });
    let taken = taken.collect();
    let text = file(kept);
    if text.len() > CONFIG_BYTES_MAX {
        let problem =
            format!("it would become a file of {} bytes, at most {CONFIG_BYTES_MAX} are read", text.len());
        return Err(ConfigError::Toml { place: layer.place(1), problem });
    }
    Ok(Import { text, taken, left, provider, providers })
}

/// The profile that a key stands in, and what it is called there. A file that is a profile has none in it.
fn scope<'a>(path: &'a [String], base: Option<&Import>) -> (Option<&'a str>, &'a [String]) {
    match path {
        [first, name, inner @ ..] if base.is_none() && first == "profiles" && !inner.is_empty() => {
            (Some(name), inner)
        }
        path => (None, path),
    }
}

fn judge(path: &[String], value: &Value) -> Result<(), Why> {
    let Some(key) = Key::find(path) else { return Err(unknown(path, value)) };
    if is_secret(path, value) {
        return Err(Why::Secret);
    }
    key.kind.check(value).map_err(|expected| {
        let found = value.to_string().chars().take(FOUND_CHARS_MAX).collect();
        Why::Value { found, expected }
    })
}

/// Tables and keys that say what Codex runs or reaches.
const OUTSIDE: [&str; 12] = [
    "mcp_servers",
    "notify",
    "hooks",
    "plugins",
    "marketplaces",
    "otel",
    "auth",
    "gateway_oauth",
    "aws",
    "command",
    "http_headers",
    "env_http_headers",
];

fn unknown(path: &[String], value: &Value) -> Why {
    let outside = |part: &String| OUTSIDE.contains(&part.as_str()) || part.ends_with("_url");
    match path {
        path if is_named_secret(path, value) || is_secret(path, value) => Why::Secret,
        [only] if only == "profile" => Why::Profile,
        path if path.iter().any(outside) => Why::Outside,
        _ => Why::Unknown,
    }
}

fn line(profile: Option<&str>, path: &[String], entry: &Entry) -> Line {
    Line {
        profile: profile.map(str::to_owned),
        path: path.to_vec(),
        value: entry.value.clone(),
        number: entry.line,
    }
}

fn leave(layer: &Layer, path: &[String], line: usize, why: Why) -> Left {
    Left { place: layer.place(line), key: shown(path), why }
}

/// The provider that a line needs and nobody describes. A model without its provider would be another one.
fn missing(line: &Line, lines: &[Line], base: Option<&Import>) -> Option<String> {
    if line.path != ["model"] && line.path != ["model_provider"] {
        return None;
    }
    let name = provider(lines, line.profile.as_deref(), base);
    let in_reach = |other: &&Line| other.profile.is_none() || other.profile == line.profile;
    let described = name == OWN
        || lines.iter().filter(in_reach).any(|other| describes(other) == Some(name))
        || base.is_some_and(|base| base.providers.iter().any(|known| known == name));
    (!described).then(|| name.to_owned())
}

/// The one that a profile asks, or else the file, or else the one beneath it.
fn provider<'a>(lines: &'a [Line], profile: Option<&str>, base: Option<&'a Import>) -> &'a str {
    let said = |profile: Option<&str>| {
        let line =
            lines.iter().find(|line| line.profile.as_deref() == profile && line.path == ["model_provider"]);
        match &line?.value {
            Value::Text(name) => Some(name.as_str()),
            _ => None,
        }
    };
    let beneath = base.map_or(CODEX_PROVIDER, |base| base.provider.as_str());
    said(profile).or_else(|| said(None)).unwrap_or(beneath)
}

fn providers(lines: &[Line], base: Option<&Import>) -> Vec<String> {
    let own = lines.iter().filter(|line| line.profile.is_none()).filter_map(describes).map(str::to_owned);
    base.into_iter().flat_map(|base| base.providers.clone()).chain(own).collect()
}

/// The provider whose address this is.
fn describes(line: &Line) -> Option<&str> {
    match line.path.as_slice() {
        [table, name, key] if table == "model_providers" && key == "base_url" => Some(name),
        _ => None,
    }
}

/// A key for people: one line, without what a terminal would obey or what should not be seen.
fn shown(path: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let part = |part: &String| match part {
        part if looks_secret(part) => "***".to_owned(),
        part if !part.is_empty() && part.chars().all(plain) => part.clone(),
        part => format!("{part:?}"),
    };
    let parts: Vec<String> = path.iter().map(part).collect();
    parts.join(".").chars().take(NAME_CHARS_MAX).collect()
}
