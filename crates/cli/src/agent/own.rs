//! Flint's own server: the one that runs, or one that is started for the agent and ends when it is not needed any more.

use crate::args::ModelArgs;
use crate::config::Config;
use crate::error::CliError;
use crate::models;
use crate::progress::Spinner;
use flint_agent::config::Config as AgentConfig;
use flint_agent::provider::{Key, Provider};
use flint_agent::settings::OWN;
use flint_models::ModelName;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that was started for an agent ends after so long without one.
const IDLE_SECONDS: u64 = 1_800;

/// Two agents may start at once: one of their servers has the data, and the other agent waits for that one.
const OTHERS_START: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(50);

/// Where a server listens, in its data folder.
#[derive(Debug, Serialize, Deserialize)]
pub struct Note {
    pub address: SocketAddr,
    pub scheme: String,
}

const FILE: &str = "server.json";

impl Note {
    /// Says where this server is, to agents of the same user.
    pub fn write(&self, data: &Path) -> std::io::Result<()> {
        let partial = data.join("server.json.new");
        fs::write(&partial, serde_json::to_string(self)?)?;
        fs::rename(partial, data.join(FILE))
    }

    /// Of a server that answers.
    fn find(data: &Path) -> Option<Note> {
        let note: Note = serde_json::from_slice(&fs::read(data.join(FILE)).ok()?).ok()?;
        TcpStream::connect_timeout(&note.address, Duration::from_millis(300)).ok()?;
        Some(note)
    }

    fn provider(&self, config: &Config) -> Provider {
        let mut provider = Provider::new(OWN, &format!("{}://{}/v1", self.scheme, self.address));
        provider.websockets = true;
        provider.key = fs::read_to_string(config.home.join("key")).ok().map(Key::new);
        provider
    }
}

/// The name under which a model is served.
pub fn served_name(name: &str) -> Result<String, CliError> {
    Ok(ModelName::parse(name)?.served(name))
}

/// The server that runs, for who does not start one.
pub fn running(config: &Config) -> Result<Provider, CliError> {
    let none = || CliError::Server("no flint serve is running: start one".to_owned());
    Note::find(&config.data).map(|note| note.provider(config)).ok_or_else(none)
}

/// The server that runs, or else a new one with the model that the settings name.
pub fn server(config: &Config, model: &ModelArgs, settings: &AgentConfig) -> Result<Provider, CliError> {
    if let Some(note) = Note::find(&config.data) {
        return Ok(note.provider(config));
    }
    let name = settings.text("model").map(str::to_owned);
    // Fetched here, where a person sees how far it is.
    models::locate(config, name.as_deref())?;
    let spinner = Spinner::new("starting flint serve");
    let note = start(config, model, name.as_deref())?;
    drop(spinner);
    Ok(note.provider(config))
}

fn start(config: &Config, model: &ModelArgs, name: Option<&str>) -> Result<Note, CliError> {
    fs::create_dir_all(&config.data).map_err(CliError::io(config.data.display().to_string()))?;
    let log = config.data.join("server.log");
    let mut child = spawn(model, name, &log)?;
    let said = child.stdout.take().map(BufReader::new);
    let ended = said.is_none_or(|mut said| said.read_line(&mut String::new()).unwrap_or(0) == 0);
    if !ended {
        return Note::find(&config.data).ok_or_else(|| problem(&log));
    }
    let status = child.wait().map_err(CliError::io("flint serve"))?;
    let until = Instant::now() + OTHERS_START;
    let in_use = || fs::read_to_string(&log).is_ok_and(|text| text.contains("is in use by another"));
    while !status.success() && in_use() && Instant::now() < until {
        if let Some(note) = Note::find(&config.data) {
            return Ok(note);
        }
        std::thread::sleep(LOOK);
    }
    Err(problem(&log))
}

/// In a process group of its own: Ctrl-C in the agent's terminal is not for it.
fn spawn(model: &ModelArgs, name: Option<&str>, log: &Path) -> Result<Child, CliError> {
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(log);
    let said = opened.map_err(CliError::io(log.display().to_string()))?;
    let mut command = Command::new(std::env::current_exe().map_err(CliError::io("this program"))?);
    command.args(["serve", "--port", "0", "--idle-seconds", &IDLE_SECONDS.to_string()]);
    command.args(name.iter().flat_map(|name| ["-m", name]));
    command.args(model.passed_on());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(said).process_group(0);
    command.current_dir("/").spawn().map_err(CliError::io("flint serve"))
}

fn problem(log: &Path) -> CliError {
    let said = fs::read_to_string(log).unwrap_or_default();
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing").to_owned();
    CliError::Server(format!("flint serve did not start: {last} (its log is {})", log.display()))
}
