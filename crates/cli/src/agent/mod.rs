//! The agent's commands: settings, server and session put together, and one of the two ways to show them.

mod actions;
mod configure;
mod crew;
mod exec;
mod own;
mod router;
mod session;
mod tasks;
mod terminal;
mod trust;
mod variants;

pub use configure::configure;
pub use exec::exec;
pub use own::Note;
pub use terminal::{Open, terminal};

use crate::args::{AgentArgs, ModelArgs};
use crate::config::Config;
use crate::error::CliError;
use flint_agent::approve::{Approvals, Book};
use flint_agent::config::{Loaded, Places};
use flint_agent::provider::{Key, Provider};
use flint_agent::rules::Rules;
use flint_agent::sessions::{Session, SessionError};
use flint_agent::settings::{OWN, Settings, provider};
use flint_agent::talk::{Event, Order};
use flint_agent::tools::Workshop;
use flint_agent::{Agent, Setup};
use flint_sandbox::{Mode, Policy};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What the settings say for this folder.
#[derive(Debug, Clone)]
struct Scene {
    folder: PathBuf,
    loaded: Loaded,
    settings: Settings,
}

impl Scene {
    fn read(config: &Config, model: &ModelArgs, args: &AgentArgs) -> Result<Scene, CliError> {
        let here = args.cd.clone().map_or_else(std::env::current_dir, Ok);
        let folder = here.and_then(|here| here.canonicalize());
        let folder = folder.map_err(CliError::io("the folder to work in"))?;
        let places = Places {
            home: config.home.clone(),
            folder: folder.clone(),
            environment: config.agent.clone(),
            profile: args.profile.clone(),
            flags: flags(model, args),
        };
        let loaded = places.load().map_err(CliError::Config)?;
        let settings = Settings::read(&loaded.config);
        Ok(Scene { folder, loaded, settings })
    }

    /// What was said and does not count, for people.
    fn warnings(&self) -> Vec<String> {
        self.loaded.warnings.iter().map(ToString::to_string).collect()
    }

    /// Who answers. Flint's own server is started if it does not run.
    fn provider(&mut self, config: &Config, model: &ModelArgs) -> Result<Provider, CliError> {
        let id = self.loaded.config.text("model_provider").unwrap_or(OWN).to_owned();
        if let Some(described) = self.described(config, &id)? {
            return Ok(described);
        }
        if !self.settings.model.is_empty() {
            self.settings.model = own::served_name(&self.settings.model)?;
        }
        own::server(config, model, &self.loaded.config)
    }

    /// A provider that the settings describe. None: it is this program's own.
    fn described(&self, config: &Config, id: &str) -> Result<Option<Provider>, CliError> {
        if let Some(mut described) = provider(&self.loaded.config, id) {
            described.key = self.key(config, id)?;
            return Ok(Some(described));
        }
        if id == OWN {
            return Ok(None);
        }
        let known = self.loaded.config.names("model_providers").join(", ");
        let known = if known.is_empty() { "none is described".to_owned() } else { known };
        Err(CliError::Settings(format!(
            "nothing is known about the provider {id:?}: describe it as [model_providers.{id}] with a base_url \
             (there are: {known})"
        )))
    }

    fn key(&self, config: &Config, id: &str) -> Result<Option<Key>, CliError> {
        let key = |name: &str| self.loaded.config.text(&format!("model_providers.{id}.{name}"));
        let Some(variable) = key("env_key") else { return Ok(None) };
        match config.variable(variable) {
            Some(secret) => Ok(Some(Key::new(secret))),
            None => {
                let help = key("env_key_instructions").unwrap_or("set it to the provider's key");
                Err(CliError::Settings(format!("the variable {variable} is not set: {help}")))
            }
        }
    }

    /// The folder, and what commands may do in it.
    fn workshop(&self, config: &Config) -> Result<Workshop, CliError> {
        if self.settings.sandbox != Mode::DangerFullAccess {
            flint_sandbox::check().map_err(|error| CliError::Settings(error.to_string()))?;
        }
        let temporary = session::temporary(config)?;
        let mut policy = Policy::new(self.settings.sandbox, self.folder.clone(), temporary, &config.user);
        policy.writable.clone_from(&self.settings.writable);
        policy.network = self.settings.network;
        policy.secrets.extend([config.home.clone(), config.data.clone()]);
        let program = std::env::current_exe().map_err(CliError::io("this program"))?;
        Workshop::open(policy, program).map_err(|error| CliError::Settings(error.to_string()))
    }

    /// A session with all of it.
    fn setup(self, config: &Config, provider: Provider, session: Session) -> Result<Setup, CliError> {
        let mut notices = self.warnings();
        notices.extend(session::trim(config, self.settings.sessions_bytes));
        let (approvals, book) = self.approvals(config, &mut notices);
        let workshop = Arc::new(self.workshop(config)?);
        let crew = crew::crew(config, &self, &provider, &workshop, &mut notices);
        let (settings, project, records) = (self.settings, self.loaded.project, Vec::new());
        Ok(Setup {
            settings,
            provider,
            session,
            records,
            tells_past: false,
            workshop,
            approvals,
            book,
            project,
            notices,
            choices: None,
            crew,
            journal: None,
        })
    }

    /// What needs a yes, and where a yes is kept. Rules that cannot be read hold for nothing, and are told.
    fn approvals(&self, config: &Config, notices: &mut Vec<String>) -> (Approvals, Book) {
        let book = Book::new(config.data.join("rules.jsonl"));
        let rules = match book.load(&self.loaded.project, SystemTime::now()) {
            Ok((rules, problems)) => {
                notices.extend(problems);
                rules
            }
            Err(error) => {
                notices.push(error.to_string());
                Vec::new()
            }
        };
        let (policy, mode) = (self.settings.approvals, self.settings.sandbox);
        (Approvals { policy, mode, rules: Rules::new(rules) }, book)
    }
}

/// Orders and events that wait.
const CHANNEL: usize = 256;

/// An agent that runs: how it ended, where it takes orders, and what it tells.
type Started = (JoinHandle<Result<(), SessionError>>, mpsc::Sender<Order>, mpsc::Receiver<Event>);

fn start(setup: Setup) -> Started {
    let (orders, taken) = mpsc::channel(CHANNEL);
    let (told, events) = mpsc::channel(CHANNEL);
    (tokio::spawn(Agent::new(setup, taken, told).run()), orders, events)
}

/// What the command line says about keys.
fn flags(model: &ModelArgs, args: &AgentArgs) -> Vec<String> {
    let given = [
        ("model", model.model.clone()),
        ("sandbox_mode", args.sandbox.clone()),
        ("approval_policy", args.ask_for_approval.clone()),
    ];
    let given = given.into_iter().filter_map(|(key, value)| Some(format!("{key}={value:?}", value = value?)));
    args.config.iter().cloned().chain(given).collect()
}
