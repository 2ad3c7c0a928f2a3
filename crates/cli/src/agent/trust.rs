//! Before anything is read of a folder, run in it or connected to for it: whether the person trusts it.

use super::Scene;
use crate::args::{AgentArgs, DeviceName, ModelArgs, Precision};
use crate::config::Config;
use crate::error::CliError;
use std::fs::OpenOptions;
use std::io::{Write, stdin};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Asks once for each project, and keeps the answer in the user's settings.
pub fn ask(config: &Config, args: &AgentArgs) -> Result<(), CliError> {
    let scene = Scene::read(config, &NO_MODEL, args)?;
    let project = &scene.loaded.project;
    let known = project
        .to_str()
        .is_some_and(|path| scene.loaded.config.at(&["projects", path, "trust_level"]).is_some());
    if known {
        return Ok(());
    }
    eprintln!(
        "{} is new here. If you trust its authors, its own settings (.flint/) count too; they can only narrow what \
         the agent may do.\nDo you trust it? [y] yes  [n] no, work with my settings alone  [q] quit",
        project.display().to_string().escape_debug()
    );
    let answer = loop {
        let mut line = String::new();
        let read = stdin().read_line(&mut line).map_err(CliError::io("standard input"))?;
        match line.trim() {
            "y" | "yes" => break "trusted",
            "n" | "no" => break "untrusted",
            "q" | "quit" => return Err(CliError::Interrupted),
            _ if read == 0 => return Err(CliError::Interrupted),
            _ => eprintln!("y, n or q?"),
        }
    };
    keep(&config.home, project, answer)
}

const NO_MODEL: ModelArgs = ModelArgs {
    model: None,
    device: DeviceName::Auto,
    precision: Precision::Fast,
    threads: None,
    kv_tokens: None,
    no_speculation: false,
    scripted: None,
};

/// At the end of the user's file, which stays as it is otherwise.
fn keep(home: &Path, project: &Path, answer: &str) -> Result<(), CliError> {
    let path = home.join("config.toml");
    let io = || CliError::io(path.display().to_string());
    std::fs::create_dir_all(home).map_err(io())?;
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path).map_err(io())?;
    // What JSON escapes, TOML escapes alike; a path that is no text is asked for again.
    let Some(project) = project.to_str() else { return Ok(()) };
    let key = serde_json::Value::from(project).to_string().replace('\u{7f}', "\\u007f");
    write!(file, "\n[projects.{key}]\ntrust_level = \"{answer}\"\n").map_err(io())
}
