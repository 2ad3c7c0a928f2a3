//! `config.toml` in the user's configuration directory: what an operator sets once.

use crate::config::Config;
use crate::error::CliError;
use flint_models::Price;
use flint_server::Limits;
use serde::Deserialize;
use std::collections::HashMap;
use std::io::ErrorKind;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
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
        toml::from_str(&text).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))
    }
}
