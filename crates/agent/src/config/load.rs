//! The layers that there are, in their order: built in, the user's file, a profile, the project's file, the environment,
//! the command line.

use super::{Config, ConfigError, Layer, Place, Source, Value, Warning};
use crate::limits::CONFIG_BYTES_MAX;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Where layers are looked for.
#[derive(Debug, Clone, Default)]
pub struct Places {
    pub home: PathBuf,                            // the user's
    pub folder: PathBuf,                          // that is worked in
    pub environment: Vec<(&'static str, String)>, // keys and what the environment says about them
    pub profile: Option<String>,
    pub flags: Vec<String>, // KEY=VALUE
}

#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    pub warnings: Vec<Warning>,
    pub project: PathBuf, // its root
    pub trusted: bool,
    pub profiles: Vec<String>, // that there are
}

const FILE: &str = "config.toml";

impl Places {
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let mut layers = vec![built_in()];
        let mut profiles = Vec::new();
        if let Some(mut user) = read(Source::User, &self.home.join(FILE))? {
            profiles = user.take_profiles();
            layers.push(user);
        }
        let names = profiles.iter().map(|(name, _)| name.clone()).collect();
        layers.extend(self.profile(profiles)?);
        let project = project(&self.folder);
        // The layers below it say whether a project is trusted: it does not say so itself.
        let (config, _) = Config::resolve(&layers)?;
        let trusted = is_trusted(&config, &project);
        if trusted {
            layers.extend(read(Source::Project, &project.join(".flint").join(FILE))?);
        }
        let said = |(key, value): &(&'static str, String)| (*key, Value::Text(value.clone()));
        let environment: Vec<_> = self.environment.iter().map(said).collect();
        layers.push(Layer::of(Source::Environment, &environment));
        layers.push(Layer::flags(self.flags.iter().map(String::as_str))?);
        let (config, warnings) = Config::resolve(&layers)?;
        Ok(Loaded { config, warnings, project, trusted, profiles: names })
    }

    /// The profile that was asked for: a table of the user's file, and a file of its own.
    fn profile(&self, profiles: Vec<(String, Layer)>) -> Result<Vec<Layer>, ConfigError> {
        let Some(name) = &self.profile else { return Ok(Vec::new()) };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let table = profiles.into_iter().find(|(own, _)| own == name).map(|(_, layer)| layer);
        let path = self.home.join(format!("{name}.{FILE}"));
        let file = if name.chars().all(plain) { read(Source::Profile, &path)? } else { None };
        if table.is_none() && file.is_none() {
            let place = Place { source: Source::Flag, file: None, line: 0 };
            let problem = format!(
                "there is no profile {name:?}: neither [profiles.{name}] in {} nor {}",
                self.home.join(FILE).display(),
                path.display()
            );
            return Err(ConfigError::Toml { place, problem });
        }
        Ok(table.into_iter().chain(file).collect())
    }
}

fn built_in() -> Layer {
    let text = |text: &str| Value::Text(text.to_owned());
    Layer::of(
        Source::Default,
        &[
            ("model_provider", text(crate::settings::OWN)),
            ("approval_policy", text("on-request")),
            ("sandbox_mode", text("workspace-write")),
            ("sandbox_workspace_write.network_access", Value::Flag(false)),
        ],
    )
}

/// The root of the repository that a folder is in; without one, the folder.
pub fn project(folder: &Path) -> PathBuf {
    let root = folder.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok());
    root.unwrap_or(folder).to_owned()
}

fn is_trusted(config: &Config, project: &Path) -> bool {
    let key = project.to_str().map(|path| ["projects", path, "trust_level"]);
    key.is_some_and(|key| config.at(&key) == Some(&Value::Text("trusted".to_owned())))
}

/// None: it is not there.
fn read(source: Source, path: &Path) -> Result<Option<Layer>, ConfigError> {
    let problem = |problem: String| {
        let place = Place { source, file: Some(path.to_owned()), line: 1 };
        ConfigError::Toml { place, problem }
    };
    // A pipe of that name would be waited for.
    if path.metadata().is_ok_and(|about| !about.is_file()) {
        return Err(problem("it is not a file".to_owned()));
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(problem(error.to_string())),
    };
    let mut text = String::new();
    let read = file.take(CONFIG_BYTES_MAX as u64 + 1).read_to_string(&mut text);
    read.map_err(|error| problem(error.to_string()))?;
    Layer::parse(source, path, &text).map(Some)
}
