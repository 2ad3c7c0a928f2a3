//! What another agent is: its model, what it is told to be, and what it may do. One TOML file, in Codex's words.

use crate::approve::Policy;
use crate::config::{Config, ConfigError, Entry, Key, Kind, Layer, Project, Source, Value, likely};
use crate::limits::ROLE_NAME_BYTES_MAX;
use crate::settings::mode;
use flint_sandbox::Mode;
use std::path::PathBuf;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Role {
    pub name: String,
    pub description: String,
    pub file: PathBuf,            // that says so
    pub model: Option<String>,    // this one or none; none: the session's
    pub provider: Option<String>, // likewise
    pub effort: Option<String>,
    pub instructions: Option<String>,
    pub sandbox: Option<Mode>,     // no more than the session's
    pub approvals: Option<Policy>, // likewise
}

/// What its file can say. All but the first two are settings too, of the same kind.
const KEYS: [&str; 8] = [
    "name",
    "description",
    "model",
    "model_provider",
    "model_reasoning_effort",
    "developer_instructions",
    "sandbox_mode",
    "approval_policy",
];

impl Role {
    /// Reads a file's layer. `config` is what counts in the session: no role has more rights. Also returns what was said and
    /// does not count.
    pub fn read(layer: &Layer, config: &Config) -> Result<(Role, Vec<String>), String> {
        let mut role = Role::named_by(layer);
        let mut told = Vec::new();
        for entry in &layer.entries {
            match checked(layer, entry, config).map_err(|error| error.to_string())? {
                Ok((key, text)) => role.set(key, text),
                Err(why) => told.push(why),
            }
        }
        let place = layer.place(1);
        if !is_name(&role.name) {
            let name = role.name.escape_debug();
            return Err(format!("{place}: `{name}` is no agent's name: letters, digits, `-` and `_` are"));
        }
        if role.provider.is_some() && role.model.is_none() {
            return Err(format!("{place}: `model_provider` needs a `model`: another provider has others"));
        }
        Ok((role, told))
    }

    /// With nothing said, a file is named after what it is.
    fn named_by(layer: &Layer) -> Role {
        let file = layer.file.clone().unwrap_or_default();
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        Role { name: stem.unwrap_or_default(), file, ..Role::default() }
    }

    fn set(&mut self, key: &str, text: &str) {
        let text = text.trim();
        let said = || Some(text.to_owned()).filter(|text| !text.is_empty());
        match key {
            "name" => self.name = text.to_owned(),
            "description" => self.description = text.to_owned(),
            "model" => self.model = said(),
            "model_provider" => self.provider = said(),
            "model_reasoning_effort" => self.effort = said(),
            "developer_instructions" => self.instructions = said(),
            "sandbox_mode" => self.sandbox = Some(mode(Some(text))),
            "approval_policy" => self.approvals = text.parse().ok(),
            // There are no others.
            _ => {}
        }
    }
}

/// One key: its value, or why it does not count. A value of another kind is an error.
fn checked<'a>(
    layer: &Layer,
    entry: &'a Entry,
    config: &Config,
) -> Result<Result<(&'static str, &'a str), String>, ConfigError> {
    let (place, name) = (layer.place(entry.line), entry.path.join("."));
    let Some(key) = KEYS.into_iter().find(|key| *key == name) else {
        let likely = likely(&entry.path, KEYS).map(|likely| format!("; did you mean `{likely}`?"));
        let (name, likely) = (name.escape_debug(), likely.unwrap_or_default());
        return Ok(Err(format!("{place}: `{name}` means nothing in an agent's file{likely}")));
    };
    let setting = Key::find(&entry.path);
    let kind = setting.map_or(Kind::Text, |setting| setting.kind);
    let text = match (kind.check(&entry.value), &entry.value) {
        (Ok(()), Value::Text(text)) => text,
        (checked, value) => {
            let expected = checked.err().unwrap_or_else(|| kind.describe());
            return Err(ConfigError::Kind { place, key: name, found: value.to_string(), expected });
        }
    };
    let why = match setting.map_or(Project::May, |setting| setting.project) {
        Project::Narrows if !kind.narrows(&entry.value, config.at(&[key])) => {
            "an agent can only have fewer rights than the session"
        }
        Project::Never if layer.source == Source::Project => "a project cannot set it",
        Project::May | Project::Narrows | Project::Never => return Ok(Ok((key, text))),
    };
    Ok(Err(format!("{place}: `{key}` is ignored: {why}")))
}

/// Plain, so that a person can type it and no terminal obeys it. `stop` is what a person says of a running one.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !name.is_empty() && name.len() <= ROLE_NAME_BYTES_MAX && name.bytes().all(plain) && name != "stop"
}
