//! Two models in one session: a turn goes to the one that its work is for, and where the check fails, to the deeper one
//! with what is known about the failure.
//!
//! A switch changes who is asked and how, never what may be done: the sandbox, the approvals and the check stay those of the
//! session. Nothing is left and begun anew: the conversation goes on, and the other model reads it with its next request.

use crate::agent::Agent;
use crate::client::Client;
use crate::facts::Fact;
use crate::limits::{ROUTED_FILES_MAX, TASK_REPEATED_BYTES_MAX};
use crate::prompt;
use crate::provider::Provider;
use crate::route::{self, Check, Facts, Route, To};
use crate::settings::{OWN, Settings};
use crate::talk::{Event, Failure, Routed};
use crate::turn::{FailedCheck, Stop};
use std::time::Duration;

/// How far the router goes by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Only where it is told to.
    #[default]
    Off,
    /// It says what it would do.
    Suggest,
    Auto,
}

impl Mode {
    pub fn parse(text: Option<&str>) -> Mode {
        match text {
            Some("suggest") => Mode::Suggest,
            Some("auto") => Mode::Auto,
            _ => Mode::Off,
        }
    }
}

/// A profile, as far as it is about the model.
#[derive(Debug, Clone)]
pub struct Side {
    pub profile: String, // empty: the session's own settings
    pub settings: Settings,
    pub provider: Provider,
}

/// The models that there are to choose from. Both, unless the mode is off.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    pub mode: Mode,
    pub realtime: Option<Side>,
    pub deep: Option<Side>,
}

/// Where the session is now.
#[derive(Debug)]
pub(crate) struct Router {
    choices: Choices,
    own: Side,          // what the session began with
    at: Option<To>,     // none: its own
    next: Option<To>,   // that the next turn was ordered to
    tokens: u64,        // of the conversation, as the last response counted them
    asked_window: bool, // of the real-time model
}

/// Tokens from which on it matters how much the real-time model holds.
const LONG_TOKENS: u64 = 2_000;

/// Files that another model is told were changed.
const FILES_TOLD_MAX: usize = 20;

impl Router {
    pub fn new(choices: Choices, settings: &Settings, provider: &Provider) -> Router {
        let own = Side { profile: String::new(), settings: settings.clone(), provider: provider.clone() };
        // Whoever routes by itself begins with the real-time model: its prompt is made warm while a person types.
        let at = (choices.mode == Mode::Auto).then_some(To::Realtime);
        Router { choices, own, at, next: None, tokens: 0, asked_window: false }
    }

    fn side(&self, to: Option<To>) -> Option<&Side> {
        match to {
            None => Some(&self.own),
            Some(To::Realtime) => self.choices.realtime.as_ref(),
            Some(To::Deep) => self.choices.deep.as_ref(),
        }
    }

    fn sides(&mut self) -> impl Iterator<Item = &mut Side> {
        let Choices { realtime, deep, .. } = &mut self.choices;
        std::iter::once(&mut self.own).chain(realtime).chain(deep)
    }

    /// Whether it makes a difference which of them is asked.
    fn differ(&self, one: Option<To>, other: Option<To>) -> bool {
        let who = |side: &Side| {
            (side.settings.model.clone(), side.provider.base_url.clone(), side.settings.effort.clone())
        };
        self.side(one).map(who) != self.side(other).map(who)
    }

    pub fn order(&mut self, to: Option<To>) {
        self.next = to;
    }

    /// Whether it has a say where nobody else has.
    pub fn chooses(&self) -> bool {
        self.choices.mode != Mode::Off
    }

    /// For all of them.
    pub fn set_tier(&mut self, tier: &Option<String>) {
        self.sides().for_each(|side| side.settings.tier.clone_from(tier));
    }

    pub fn counted(&mut self, tokens: u64) {
        if tokens > 0 {
            self.tokens = tokens;
        }
    }
}

impl Agent {
    /// A text before its turn: the model that it is for is asked from now on. Returns the text without its tag.
    pub(crate) async fn routed(&mut self, text: String) -> String {
        let Some(router) = &mut self.router else { return text };
        let mode = router.choices.mode;
        if let Some(to) = router.next.take() {
            self.go(Some(to), "its tag says so".to_owned(), Routed::Chosen).await;
            return text;
        }
        let tagged = route::tag(&text).filter(|(_, rest)| mode != Mode::Off && !rest.is_empty());
        if let Some((to, rest)) = tagged {
            let rest = rest.to_owned();
            self.go(Some(to), "its tag says so".to_owned(), Routed::Chosen).await;
            return rest;
        }
        match mode {
            Mode::Auto => {
                let Route { to, why } = self.route(&text).await;
                self.go(Some(to), why, Routed::Chosen).await;
            }
            Mode::Suggest => {
                self.go_home().await;
                let Route { to, why } = self.route(&text).await;
                self.suggest(to, why).await;
            }
            Mode::Off => self.go_home().await,
        }
        text
    }

    /// What follows from how a turn ended: the words of another one, for the deep model.
    pub(crate) async fn escalation(
        &mut self,
        outcome: &Result<(), Stop>,
        failed: Option<&FailedCheck>,
        tokens: u64,
    ) -> Option<String> {
        let router = self.router.as_mut()?;
        router.counted(tokens);
        let (mode, at) = (router.choices.mode, router.at);
        let (Err(Stop::Failed(Failure::Verify(_))), Some(failed)) = (outcome, failed) else { return None };
        let why = format!("the check `{}` failed with {}", failed.command, failed.ended());
        match (mode, at) {
            (Mode::Auto, Some(To::Realtime)) => {
                let text = self.evidence(failed);
                self.go(Some(To::Deep), why, Routed::Escalated).await;
                Some(text)
            }
            (Mode::Suggest, None | Some(To::Realtime)) => {
                self.suggest(To::Deep, why).await;
                None
            }
            (Mode::Off | Mode::Auto | Mode::Suggest, _) => None,
        }
    }

    /// What the deep model is told first.
    fn evidence(&self, failed: &FailedCheck) -> String {
        let past = self.rewind.last();
        let task = past.map_or("", |past| past.text.as_str());
        let task = &task[..task.floor_char_boundary(TASK_REPEATED_BYTES_MAX)];
        let mut files: Vec<&str> = Vec::new();
        for saved in past.iter().flat_map(|past| &past.changes) {
            if !files.contains(&saved.path.as_str()) {
                files.push(&saved.path);
            }
        }
        let more = files.len().saturating_sub(FILES_TOLD_MAX);
        files.truncate(FILES_TOLD_MAX);
        let files = match (files.is_empty(), more) {
            (true, _) => "It changed no file.".to_owned(),
            (false, 0) => format!("It changed {}.", files.join(", ")),
            (false, more) => format!("It changed {} and {more} more.", files.join(", ")),
        };
        let FailedCheck { command, output, .. } = failed;
        let output = output.trim_end();
        format!(
            "Another model tried this and the check failed.\n\nThe task: {task}\n\n`{command}` ended with {}:\n{output}\n\n\
             {files} Find out why it fails, and finish the task.",
            failed.ended()
        )
    }

    /// Asks another model from now on, and says why.
    async fn go(&mut self, to: Option<To>, why: String, how: Routed) {
        let Some(router) = &self.router else { return };
        let Some(side) = router.side(to) else {
            let text = format!(
                "there is no {} model to go to: name a profile as router.{}",
                to.map_or_else(String::new, |to| to.to_string()),
                if to == Some(To::Deep) { "deep" } else { "realtime" }
            );
            self.tell(Event::Notice { text }).await;
            return;
        };
        let (profile, model) = (side.profile.clone(), side.settings.model.clone());
        self.switch(to);
        self.tell(Event::Routed { profile, model, why, how }).await;
    }

    /// Back to what the session began with, if it is elsewhere.
    async fn go_home(&mut self) {
        if self.router.as_ref().is_some_and(|router| router.at.is_some()) {
            self.go(None, "nothing sends it elsewhere".to_owned(), Routed::Chosen).await;
        }
    }

    /// Says where a text should go, if it would go elsewhere.
    async fn suggest(&mut self, to: To, why: String) {
        let Some(router) = self.router.as_ref().filter(|router| router.differ(router.at, Some(to))) else {
            return;
        };
        let Some(side) = router.side(Some(to)) else { return };
        let (profile, model) = (side.profile.clone(), side.settings.model.clone());
        self.tell(Event::Routed { profile, model, why, how: Routed::Suggested }).await;
    }

    fn switch(&mut self, to: Option<To>) {
        let Some(router) = self.router.as_mut().filter(|router| router.at != to) else { return };
        // What was found out about the model that is left stays known.
        let (at, window) = (router.at, self.settings.window_tokens);
        match at {
            None => router.own.settings.window_tokens = window,
            Some(To::Realtime) => {
                router.choices.realtime.iter_mut().for_each(|side| side.settings.window_tokens = window)
            }
            Some(To::Deep) => {
                router.choices.deep.iter_mut().for_each(|side| side.settings.window_tokens = window)
            }
        }
        let Some(side) = router.side(to) else { return };
        self.settings.take_model(&side.settings);
        let (now, next) = (self.client.provider(), &side.provider);
        if (&now.id, &now.base_url) != (&next.id, &next.base_url) {
            self.flint = next.id == OWN;
            self.client = Client::new(next.clone(), self.log.id());
        }
        router.at = to;
        self.log.forget();
        self.asked_window = false;
    }

    async fn route(&mut self, text: &str) -> Route {
        let files = prompt::named(text, self.workshop.folder(), ROUTED_FILES_MAX);
        let tokens = self.conversation_tokens();
        let long = tokens.saturating_add(route::tokens(text, &files)) > LONG_TOKENS;
        let window = if long { self.realtime_window().await } else { None };
        route::route(&Facts { text, files, check: self.last_check(), tokens, window })
    }

    /// The check that is set, and how long it took last.
    fn last_check(&self) -> Option<Check> {
        let command = self.settings.verify.clone()?;
        let took = self.facts.iter().rev().find_map(|fact| match fact {
            Fact::Checked { command: other, took_ms, .. } if *other == command => Some(*took_ms),
            _ => None,
        });
        Some(Check { command, took: took.flatten().map(Duration::from_millis) })
    }

    /// As they were counted last; in a session that was taken up again, about.
    fn conversation_tokens(&self) -> u64 {
        match self.router.as_ref().map(|router| router.tokens) {
            Some(counted) if counted > 0 => counted,
            _ => self.log.items().iter().map(|item| route::tokens(&item.to_string(), &[])).sum(),
        }
    }

    /// Tokens that the real-time model holds, as its settings or its server say.
    async fn realtime_window(&mut self) -> Option<u64> {
        let router = self.router.as_mut()?;
        let known = match router.at {
            Some(To::Realtime) => self.settings.window_tokens,
            None | Some(To::Deep) => None,
        };
        let asked = std::mem::replace(&mut router.asked_window, true);
        let side = router.choices.realtime.as_ref()?;
        let known = known.or(side.settings.window_tokens);
        if known.is_some() || asked {
            return known;
        }
        let (provider, model) = (side.provider.clone(), side.settings.model.clone());
        let window = crate::server::window_of(&Client::new(provider, self.log.id()), &model).await;
        let side = self.router.as_mut().and_then(|router| router.choices.realtime.as_mut())?;
        side.settings.window_tokens = window;
        window
    }
}
