//! What the settings mean to a session.

use crate::approve::Policy;
use crate::config::{Config, Place};
use crate::limits::SESSIONS_BYTES;
use crate::provider::Provider;
use flint_sandbox::Mode;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// A setting that is a field of every request, and who says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub key: &'static str,
    pub field: &'static str,
    pub place: Place,
}

/// Settings and the fields that they become.
const FIELDS: [(&str, &str); 4] = [
    ("model_reasoning_effort", "reasoning.effort"),
    ("model_reasoning_summary", "reasoning.summary"),
    ("model_verbosity", "text.verbosity"),
    ("service_tier", "service_tier"),
];

#[derive(Debug, Clone)]
pub struct Settings {
    pub model: String,
    pub effort: Option<String>,
    pub summary: Option<String>,
    pub verbosity: Option<String>,
    pub tier: Option<String>,
    pub window_tokens: Option<u64>,
    pub compact_at_tokens: Option<u64>,
    pub approvals: Policy,
    pub sandbox: Mode,
    pub network: bool,
    pub writable: Vec<PathBuf>,
    pub instructions: Option<String>,
    pub docs_bytes: usize, // of AGENTS.md
    pub docs_names: Vec<String>,
    pub sessions_bytes: u64, // of all together
    pub verify: Option<String>,
    pub diagnostics: Option<String>,
    pub always_verify: bool,           // also where nothing was changed
    pub schema: Option<Value>,         // of the last answer
    pub temperature: Option<f64>,      // none: the server's
    pub shown_folder: Option<PathBuf>, // as the model is told it; none: as it is
    pub said: Vec<Said>,               // what a model may have no use for
}

/// Settings that come with a profile when the router takes its model: no right, no check.
pub const OF_MODEL: [&str; 9] = [
    "model",
    "model_provider",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
    "service_tier",
    "model_context_window",
    "model_auto_compact_token_limit",
    "developer_instructions",
];

/// The provider that is this program's own server.
pub const OWN: &str = "flint";

impl Settings {
    pub fn read(config: &Config) -> Settings {
        let text = |key: &str| config.text(key).map(str::to_owned);
        let number = |key: &str| config.integer(key).and_then(|tokens| tokens.try_into().ok());
        let writable = config.texts("sandbox_workspace_write.writable_roots").into_iter().map(PathBuf::from);
        Settings {
            model: text("model").unwrap_or_default(),
            effort: text("model_reasoning_effort"),
            summary: text("model_reasoning_summary"),
            verbosity: text("model_verbosity"),
            tier: text("service_tier"),
            window_tokens: number("model_context_window"),
            compact_at_tokens: number("model_auto_compact_token_limit"),
            approvals: text("approval_policy")
                .and_then(|text| text.parse().ok())
                .unwrap_or(Policy::OnRequest),
            sandbox: mode(config.text("sandbox_mode")),
            network: config.flag("sandbox_workspace_write.network_access").unwrap_or(false),
            writable: writable.collect(),
            instructions: text("developer_instructions"),
            docs_bytes: number("project_doc_max_bytes").map_or(32 << 10, |bytes: u64| bytes as usize),
            docs_names: config.texts("project_doc_fallback_filenames"),
            sessions_bytes: number("history.max_bytes").unwrap_or(SESSIONS_BYTES),
            verify: text("verify_command"),
            diagnostics: text("diagnostics_command"),
            always_verify: false,
            schema: None,
            temperature: None,
            shown_folder: None,
            said: FIELDS.iter().filter_map(|(key, field)| said(config, key, field)).collect(),
        }
    }

    /// Asks another model from now on: takes what `OF_MODEL` names.
    pub fn take_model(&mut self, other: &Settings) {
        let other = other.clone();
        self.model = other.model;
        self.effort = other.effort;
        self.summary = other.summary;
        self.verbosity = other.verbosity;
        self.tier = other.tier;
        self.window_tokens = other.window_tokens;
        self.compact_at_tokens = other.compact_at_tokens;
        self.instructions = other.instructions;
        self.said = other.said;
    }

    /// The fields of a request that say how, not what.
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut set = |key: &str, value: Value| fields.insert(key.to_owned(), value);
        if !self.model.is_empty() {
            set("model", self.model.as_str().into());
        }
        if let Some(temperature) = self.temperature {
            set("temperature", temperature.into());
        }
        let mut reasoning = Map::new();
        for (key, value) in [("effort", &self.effort), ("summary", &self.summary)] {
            reasoning.extend(value.as_ref().map(|value| (key.to_owned(), value.as_str().into())));
        }
        if !reasoning.is_empty() {
            set("reasoning", reasoning.into());
        }
        if let Some(tier) = &self.tier {
            let tier = if tier == "fast" { "priority" } else { tier };
            set("service_tier", tier.into());
        }
        let mut text = Map::new();
        text.extend(self.verbosity.as_ref().map(|level| ("verbosity".to_owned(), level.as_str().into())));
        if let Some(schema) = &self.schema {
            let format = json!({"type": "json_schema", "name": "answer", "strict": true, "schema": schema});
            text.insert("format".to_owned(), format);
        }
        if !text.is_empty() {
            set("text", text.into());
        }
        fields
    }
}

fn said(config: &Config, key: &'static str, field: &'static str) -> Option<Said> {
    Some(Said { key, field, place: config.place(key)?.clone() })
}

/// A provider that the settings describe; none: nothing is said about it.
pub fn provider(config: &Config, id: &str) -> Option<Provider> {
    let key = |name: &str| format!("model_providers.{id}.{name}");
    let mut provider = Provider::new(id, config.text(&key("base_url"))?);
    provider.websockets = config.flag(&key("supports_websockets")).unwrap_or(false);
    let number = |name: &str| config.integer(&key(name)).and_then(|number| number.try_into().ok());
    if let Some(retries) = number("stream_max_retries") {
        provider.stream_retries = retries as u32;
    }
    provider.idle = number("stream_idle_timeout_ms").map_or(provider.idle, Duration::from_millis);
    provider.connect = number("websocket_connect_timeout_ms").map_or(provider.connect, Duration::from_millis);
    Some(provider)
}

/// What is not said grants least.
pub(crate) fn mode(text: Option<&str>) -> Mode {
    match text {
        Some("workspace-write") => Mode::WorkspaceWrite,
        Some("danger-full-access") => Mode::DangerFullAccess,
        _ => Mode::ReadOnly,
    }
}
