//! Every key there is; one that nothing reads is not here, so that who sets it is told. Names are Codex's where they mean the same; `*` stands for a name that the user gives.

use super::Value;

#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub path: &'static str,
    pub kind: Kind,
    pub project: Project,
    pub about: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Text,
    Flag,
    Integer {
        least: i64,
        most: i64,
    },
    /// From the fewest rights to the most, where it is about rights.
    Choice(&'static [&'static str]),
    Texts,
}

/// What a repository that is worked in may do with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Project {
    May,
    /// Only to a choice before the one that counts, or to `false`.
    Narrows,
    /// It would name programs, hosts or keys.
    Never,
}

const EFFORTS: Kind = Kind::Choice(&["none", "minimal", "low", "medium", "high", "xhigh"]);
const TOKENS: Kind = Kind::Integer { least: 1, most: 10_000_000 };
const MILLISECONDS: Kind = Kind::Integer { least: 1, most: 3_600_000 };

const fn key(path: &'static str, kind: Kind, project: Project, about: &'static str) -> Key {
    Key { path, kind, project, about }
}

/// Tables of the user's file that are about serving.
pub const SERVERS: [&str; 2] = ["limits", "prices"];

pub const KEYS: &[Key] = &[
    key("model", Kind::Text, Project::May, "The model that is asked."),
    key("model_provider", Kind::Text, Project::Never, "Who serves it: a name under model_providers."),
    key("model_reasoning_effort", EFFORTS, Project::May, "How long the model thinks."),
    key(
        "model_reasoning_summary",
        Kind::Choice(&["auto", "concise", "detailed", "none"]),
        Project::May,
        "How much of its thoughts is shown.",
    ),
    key("model_verbosity", Kind::Choice(&["low", "medium", "high"]), Project::May, "How much it writes."),
    key(
        "model_context_window",
        TOKENS,
        Project::May,
        "Tokens that the model can hold, where its server does not say.",
    ),
    key(
        "model_auto_compact_token_limit",
        TOKENS,
        Project::May,
        "Tokens from which on the conversation is made short.",
    ),
    key(
        "service_tier",
        Kind::Choice(&["flex", "default", "priority", "fast"]),
        Project::Never,
        "How soon turns are served, and at which price.",
    ),
    key(
        "approval_policy",
        Kind::Choice(&["untrusted", "on-request", "on-failure", "never"]),
        Project::Narrows,
        "When a person is asked before a command runs.",
    ),
    key(
        "sandbox_mode",
        Kind::Choice(&["read-only", "workspace-write", "danger-full-access"]),
        Project::Narrows,
        "What commands may write.",
    ),
    key(
        "sandbox_workspace_write.network_access",
        Kind::Flag,
        Project::Narrows,
        "Whether commands reach the network.",
    ),
    key(
        "sandbox_workspace_write.writable_roots",
        Kind::Texts,
        Project::Never,
        "Folders that commands may write besides the workspace.",
    ),
    key("developer_instructions", Kind::Text, Project::May, "Said to the model before everything else."),
    key(
        "project_doc_max_bytes",
        Kind::Integer { least: 0, most: 1 << 20 },
        Project::May,
        "Bytes of AGENTS.md that are read.",
    ),
    key(
        "project_doc_fallback_filenames",
        Kind::Texts,
        Project::May,
        "Files that are read where there is no AGENTS.md.",
    ),
    key(
        "history.max_bytes",
        Kind::Integer { least: 1 << 20, most: 1 << 50 },
        Project::Never,
        "Bytes that all sessions have together; the oldest go.",
    ),
    key(
        "verify_command",
        Kind::Text,
        Project::Never,
        "What is run after an edit, to see whether it is right.",
    ),
    key(
        "diagnostics_command",
        Kind::Text,
        Project::Never,
        "What is run after an edit, such as `cargo check --message-format short`: what is new goes back to the model.",
    ),
    key(
        "router.mode",
        Kind::Choice(&["off", "suggest", "auto"]),
        Project::Never,
        "Whether each turn goes to the model that its work is for.",
    ),
    key("router.realtime", Kind::Text, Project::Never, "The profile of the model that answers at once."),
    key("router.deep", Kind::Text, Project::Never, "The profile of the model that thinks long."),
    key("model_providers.*.name", Kind::Text, Project::Never, "What people call the provider."),
    key("model_providers.*.base_url", Kind::Text, Project::Never, "Where its API is."),
    key("model_providers.*.env_key", Kind::Text, Project::Never, "The variable that holds its key."),
    key(
        "model_providers.*.env_key_instructions",
        Kind::Text,
        Project::Never,
        "What to do when that is not set.",
    ),
    key("model_providers.*.wire_api", Kind::Choice(&["responses"]), Project::Never, "What it speaks."),
    key(
        "model_providers.*.supports_websockets",
        Kind::Flag,
        Project::Never,
        "Whether it keeps one connection for a session.",
    ),
    key(
        "model_providers.*.stream_max_retries",
        Kind::Integer { least: 0, most: 100 },
        Project::Never,
        "Attempts at a stream that broke.",
    ),
    key(
        "model_providers.*.stream_idle_timeout_ms",
        MILLISECONDS,
        Project::Never,
        "Silence after which a stream is broken.",
    ),
    key(
        "model_providers.*.websocket_connect_timeout_ms",
        MILLISECONDS,
        Project::Never,
        "Time that a connection may take.",
    ),
    key(
        "projects.*.trust_level",
        Kind::Choice(&["untrusted", "trusted"]),
        Project::Never,
        "Whether a folder's own settings are read.",
    ),
];

impl Key {
    /// The key of that name.
    pub fn find(path: &[String]) -> Option<&'static Key> {
        KEYS.iter().find(|key| {
            let parts = key.path.split('.');
            parts.clone().count() == path.len()
                && parts.zip(path).all(|(part, given)| part == "*" || part == given)
        })
    }
}

impl Kind {
    /// What was expected, if this is not it.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let fits = match (self, value) {
            (Kind::Text, Value::Text(_)) | (Kind::Flag, Value::Flag(_)) => true,
            (Kind::Integer { least, most }, Value::Integer(integer)) => (least..=most).contains(&integer),
            (Kind::Choice(choices), Value::Text(text)) => choices.contains(&text.as_str()),
            (Kind::Texts, Value::List(list)) => list.iter().all(|value| matches!(value, Value::Text(_))),
            _ => false,
        };
        if fits { Ok(()) } else { Err(self.describe()) }
    }

    pub fn describe(&self) -> String {
        match self {
            Kind::Text => "a text".to_owned(),
            Kind::Flag => "true or false".to_owned(),
            Kind::Integer { least, most } => format!("a whole number from {least} to {most}"),
            Kind::Choice(choices) => format!("one of {}", choices.join(", ")),
            Kind::Texts => "a list of texts".to_owned(),
        }
    }

    /// Whether `value` grants no more than what counts so far. Where nothing counts yet, only the least is surely less.
    pub fn narrows(&self, value: &Value, so_far: Option<&Value>) -> bool {
        match (self, value) {
            (Kind::Choice(choices), Value::Text(text)) => {
                let rank =
                    |text: &str| choices.iter().position(|choice| *choice == text).unwrap_or(choices.len());
                let most = match so_far {
                    Some(Value::Text(so_far)) => rank(so_far),
                    _ => 0,
                };
                rank(text) <= most
            }
            (Kind::Flag, Value::Flag(flag)) => !flag || so_far == Some(&Value::Flag(true)),
            _ => false,
        }
    }
}
