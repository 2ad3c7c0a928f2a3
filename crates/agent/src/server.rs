//! What the agent asks its server besides turns: to make a prompt warm, and what there is.

use crate::agent::Agent;
use crate::client::{Ask, Client, ClientError, Incoming};
use crate::talk::{Event, ModelState, Probe};
use flint_sandbox::Mode;
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// A prompt that is not warm by then is read with the turn.
const WARM_TIME: Duration = Duration::from_secs(30);

const WINDOW_TIME: Duration = Duration::from_secs(1);

impl Agent {
    /// Lets the server read what will stand before the next words, while a person still writes them.
    pub(crate) async fn warm(&mut self) {
        let before = self.client.connection();
        let outcome = self.warm_up().await;
        let now = self.client.connection();
        if outcome.is_err() {
            // The turn will meet the same trouble, and tell it.
            self.client.hang_up();
        }
        if before != now {
            self.tell(Event::Connection(now)).await;
        }
    }

    async fn warm_up(&mut self) -> Result<(), ClientError> {
        self.client.connect().await?;
        if !self.client.remembers() || self.log.known().is_some() {
            return Ok(());
        }
        let mut fields = self.fields();
        fields.insert("generate".to_owned(), false.into());
        self.client.create(&Ask { fields, items: self.log.items(), known: None }).await?;
        let ended = async {
            loop {
                match self.client.next().await? {
                    Incoming::Ended(ended) => return Ok(ended),
                    Incoming::Refused(refusal) => return Err(ClientError::Refused(refusal)),
                    _ => {}
                }
            }
        };
        let late = |_| Err(ClientError::Lost { why: "the prompt was not warm in time".to_owned() });
        let ended = timeout(WARM_TIME, ended).await.unwrap_or_else(late)?;
        self.flint = ended.flint;
        self.log.is_known_as(&ended.response);
        Ok(())
    }

    /// Tokens that the model can hold, as its settings or its server say.
    pub(crate) async fn window(&mut self) -> Option<u64> {
        if self.settings.window_tokens.is_none() && !self.asked_window {
            self.asked_window = true;
            self.settings.window_tokens = window_of(&self.client, &self.settings.model).await;
        }
        self.settings.window_tokens
    }

    pub(crate) async fn probe(&mut self) {
        let (models, problem) = match self.client.get("models").await {
            Ok(body) => (models(&body), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let mut models: Vec<ModelState> = models;
        crate::access::try_all(&self.client, &mut models).await;
        let asked = &self.settings.model;
        if !asked.is_empty() && !models.iter().any(|model| model.name == *asked) {
            let why = problem.unwrap_or_else(|| "the server does not have it".to_owned());
            models.push(ModelState { name: asked.clone(), window: None, refused: Some(why) });
        }
        let provider = self.client.provider();
        let probe = Probe {
            provider: provider.id.clone(),
            address: provider.base_url.clone(),
            connection: self.client.connection(),
            served: self.served.clone(),
            models,
            limits: self.limits.clone(),
            sandbox: sandbox(self.settings.sandbox, self.settings.network),
            approvals: self.settings.approvals.to_string(),
            ignored: self.ignored(),
        };
        self.tell(Event::Probed(Box::new(probe))).await;
    }
}

/// Tokens that a model of a server can hold, if it says so soon: a turn waits for it.
pub(crate) async fn window_of(client: &Client, name: &str) -> Option<u64> {
    let got = timeout(WINDOW_TIME, client.get("models")).await;
    let models = got.ok().and_then(Result::ok).map(|body| models(&body)).unwrap_or_default();
    let own = |model: &&ModelState| model.name == name || name.is_empty();
    models.iter().find(own).and_then(|model| model.window)
}

pub(crate) fn models(body: &Value) -> Vec<ModelState> {
    let listed = body["data"].as_array().or_else(|| body["models"].as_array());
    let model = |model: &Value| {
        let name = model["id"].as_str().or_else(|| model["slug"].as_str())?.to_owned();
        let window = ["context_window", "max_model_len", "context_length"].iter();
        let window = window.filter_map(|key| model[*key].as_u64()).next();
        Some(ModelState { name, window, refused: None })
    };
    listed.map(|list| list.iter().filter_map(model).collect()).unwrap_or_default()
}

fn sandbox(mode: Mode, network: bool) -> String {
    let mode = match mode {
        Mode::ReadOnly => "read-only",
        Mode::WorkspaceWrite => "workspace-write",
        Mode::DangerFullAccess => return "danger-full-access: commands are not confined".to_owned(),
    };
    format!("{mode}, network {}", if network { "on" } else { "off" })
}
