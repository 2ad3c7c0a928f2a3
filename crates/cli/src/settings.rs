//! `config.toml` in the user's configuration directory: what an operator sets once. The agent's settings stand in the same
//! file, beside these tables.

use crate::config::Config;
use crate::error::CliError;
use flint_agent::config::{Key, Layer, SERVERS, Source};
use flint_models::Price;
use flint_server::Limits;
use serde::Deserialize;
use std::collections::HashMap;
use std::io::ErrorKind;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub limits: Limits,
    pub prices: HashMap<String, Price>, // by model
}

impl Settings {
    /// What the file says; the defaults where there is none.
    pub fn read(config: &Config) -> Result<Settings, CliError> {
        let path = config.home.join("config.toml");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Settings::default()),
            Err(error) => return Err(CliError::io(path.display().to_string())(error)),
        };
        let bad = |error: &dyn std::fmt::Display| CliError::Settings(format!("{}: {error}", path.display()));
        let read: Result<Settings, _> = toml::from_str(&text);
        let settings = read.map_err(|error| bad(&error))?;
        let layer = Layer::parse(Source::User, &path, &text).map_err(|error| bad(&error))?;
        let unknown = layer.entries.iter().filter(|entry| !is_known(&entry.path));
        for entry in unknown {
            eprintln!("{}: nothing is called `{}`", layer.place(entry.line), entry.path.join("."));
        }
        Ok(settings)
    }
}

/// To the server, to the agent, or to one of its profiles.
fn is_known(path: &[String]) -> bool {
    let of_agent = match path {
        [first, _, rest @ ..] if first == "profiles" => Key::find(rest),
        path => Key::find(path),
    };
    path.first().is_some_and(|first| SERVERS.contains(&first.as_str())) || of_agent.is_some()
}
