//! The one place that reads the environment.

use flint_models::{Endpoints, Store};
use std::env;
use std::path::PathBuf;

/// What the environment says.
#[derive(Debug, Clone)]
pub struct Config {
    pub cache: PathBuf,
    pub data: PathBuf, // what must not be lost
    pub home: PathBuf, // what the user sets, and their key
    pub store: Store,
    pub endpoints: Endpoints,
    pub toolkits: Vec<PathBuf>, // where CUDA's libraries may lie
    pub telemetry: Telemetry,
    pub colour: bool,                       // where there is a terminal
    pub user: PathBuf,                      // their own folder
    pub agent: Vec<(&'static str, String)>, // settings of the agent
}

/// OpenTelemetry's variables, as far as they are about where traces go.
#[derive(Debug, Clone)]
pub struct Telemetry {
    pub endpoint: Option<String>,        // of all signals
    pub traces_endpoint: Option<String>, // of traces, as it is
    pub headers: String,
    pub service: String,
}

/// Variables that say what a setting says.
const AGENT: [(&str, &str); 4] = [
    ("FLINT_MODEL", "model"),
    ("FLINT_MODEL_PROVIDER", "model_provider"),
    ("FLINT_SANDBOX_MODE", "sandbox_mode"),
    ("FLINT_APPROVAL_POLICY", "approval_policy"),
];

impl Config {
    pub fn from_environment() -> Config {
        let cache = match path("FLINT_CACHE") {
            Some(cache) => cache,
            None => cache_home().join("flint"),
        };
        let hub_home = path("HF_HOME").unwrap_or_else(|| cache_home().join("huggingface"));
        Config {
            store: Store { models: cache.join("models"), hub_cache: hub_home.join("hub") },
            endpoints: Endpoints {
                hub: text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into()),
                hub_token: text("HF_TOKEN"),
                python: path("FLINT_PYTHON").unwrap_or_else(|| "python3".into()),
            },
            toolkits: toolkits(),
            data: path("FLINT_HOME").unwrap_or_else(|| data_home().join("flint")),
            home: path("FLINT_HOME").unwrap_or_else(|| config_home().join("flint")),
            telemetry: Telemetry {
                endpoint: text("OTEL_EXPORTER_OTLP_ENDPOINT"),
                traces_endpoint: text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
                headers: text("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
                    .or_else(|| text("OTEL_EXPORTER_OTLP_HEADERS"))
                    .unwrap_or_default(),
                service: text("OTEL_SERVICE_NAME").unwrap_or_else(|| "flint".into()),
            },
            colour: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            user: path("HOME").unwrap_or_else(|| "/".into()),
            agent: AGENT.iter().filter_map(|(name, key)| Some((*key, text(name)?))).collect(),
            cache,
        }
    }

    /// A variable that the settings name, such as one with a key.
    pub fn variable(&self, name: &str) -> Option<String> {
        text(name)
    }
}

fn toolkits() -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(path);
    let all = named.chain(["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from));
    all.flat_map(|toolkit| ["lib64", "lib"].map(|folder| toolkit.join(folder))).collect()
}

fn cache_home() -> PathBuf {
    home("XDG_CACHE_HOME", ".cache")
}

fn data_home() -> PathBuf {
    home("XDG_DATA_HOME", ".local/share")
}

fn config_home() -> PathBuf {
    home("XDG_CONFIG_HOME", ".config")
}

/// The folder that a variable names, or else this one of the user's.
fn home(name: &str, folder: &str) -> PathBuf {
    path(name)
        .filter(|path| path.is_absolute())
        .or_else(|| path("HOME").map(|home| home.join(folder)))
        .unwrap_or_else(env::temp_dir)
}

fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
