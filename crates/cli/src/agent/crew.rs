//! Other agents: which there are in this folder, and a session for each that is given a task.

use super::{Scene, own, session};
use crate::config::Config;
use crate::error::CliError;
use flint_agent::Setup;
use flint_agent::approve::{Approvals, Book};
use flint_agent::hands::{self, Crew, Role, Staff};
use flint_agent::provider::Provider;
use flint_agent::rules::Rules;
use flint_agent::settings::OWN;
use flint_agent::tools::Workshop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a session for a role is made of.
#[derive(Debug)]
struct Rooms {
    config: Config,
    scene: Scene,
    provider: Provider,
    workshop: Arc<Workshop>,
    made: AtomicU32,
}

/// The agents of a session. What is wrong with their files is told.
pub fn crew(
    config: &Config,
    scene: &Scene,
    provider: &Provider,
    workshop: &Arc<Workshop>,
    notices: &mut Vec<String>,
) -> Crew {
    let found = hands::find(&config.home, &scene.loaded);
    notices.extend(found.told);
    let rooms = Rooms {
        config: config.clone(),
        scene: scene.clone(),
        provider: provider.clone(),
        workshop: workshop.clone(),
        made: AtomicU32::new(0),
    };
    Crew { roles: found.roles, staff: Some(Arc::new(rooms)), ..Crew::default() }
}

impl Staff for Rooms {
    fn server(&self, role: &Role) -> Result<(Provider, Option<String>), String> {
        let provider = self.provider(role).map_err(|error| error.to_string())?;
        let pin = role.model.as_ref().map(|model| called(model, &provider));
        Ok((provider, pin))
    }

    fn setup(&self, role: &Role) -> Result<Setup, String> {
        self.open(role).map_err(|error| error.to_string())
    }
}

impl Rooms {
    fn open(&self, role: &Role) -> Result<Setup, CliError> {
        let scene = self.scene_of(role);
        let provider = self.provider(role)?;
        let mut settings = scene.settings.clone();
        if let Some(model) = &role.model {
            settings.model = called(model, &provider);
        }
        let (policy, mode) = (settings.approvals, settings.sandbox);
        let shared = mode == self.scene.settings.sandbox;
        let workshop = if shared { self.workshop.clone() } else { Arc::new(scene.workshop(&self.config)?) };
        let number = 1 + self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Setup {
            settings,
            provider,
            session: session::of_hand(&self.config, number)?,
            records: Vec::new(),
            tells_past: false,
            workshop,
            approvals: Approvals { policy, mode, rules: Rules::new(Vec::new()) },
            book: Book::new(self.config.data.join("rules.jsonl")),
            project: scene.loaded.project,
            notices: Vec::new(),
            choices: None,
            crew: Crew::default(),
            journal: None,
        })
    }

    /// The session's settings, with what the role says. Its work is checked with that of the turn it is for, and the form of
    /// an answer is that of the turn's.
    fn scene_of(&self, role: &Role) -> Scene {
        let mut scene = self.scene.clone();
        let settings = &mut scene.settings;
        settings.effort = role.effort.clone().or(settings.effort.take());
        settings.instructions = role.instructions.clone().or(settings.instructions.take());
        settings.sandbox = role.sandbox.unwrap_or(settings.sandbox);
        settings.approvals = role.approvals.unwrap_or(settings.approvals);
        if role.model.is_some() {
            // Said about another model.
            settings.window_tokens = None;
        }
        (settings.verify, settings.always_verify, settings.schema) = (None, false, None);
        scene
    }

    fn provider(&self, role: &Role) -> Result<Provider, CliError> {
        let Some(id) = &role.provider else { return Ok(self.provider.clone()) };
        match self.scene.described(&self.config, id)? {
            Some(described) => Ok(described),
            None if self.provider.id == OWN => Ok(self.provider.clone()),
            None => own::running(&self.config),
        }
    }
}

/// What a model is called by who serves it. One of no known name is asked for as it is, and not served.
fn called(model: &str, provider: &Provider) -> String {
    let own = (provider.id == OWN).then(|| own::served_name(model).ok()).flatten();
    own.unwrap_or_else(|| model.to_owned())
}
