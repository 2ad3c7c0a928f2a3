//! Why a command ended, and with which exit code.

use flint_engine::load::LoadError;
use flint_engine::message::Failure;
use flint_engine::model::ModelError;
use flint_engine::quantize::QuantizeError;
use flint_engine::supervise::EngineError;
use flint_models::PullError;
use flint_open::OpenError;
use flint_text::TextError;

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Text(#[from] TextError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Cuda(#[from] flint_engine::device::cuda::CudaError),
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
    #[error("the answer failed: {0}")]
    Failed(#[from] Failure),
    #[error(transparent)]
    Key(#[from] flint_server::keys::KeyError),
    #[error(transparent)]
    Database(#[from] flint_server::database::DatabaseError),
    #[error(transparent)]
    Tls(#[from] flint_server::TlsError),
    #[error(transparent)]
    Data(#[from] flint_server::DataError),
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error(transparent)]
    Config(flint_agent::config::ConfigError),
    #[error("{0}")]
    Settings(String),
    #[error("{0}")]
    Server(String),
    #[error(transparent)]
    Session(#[from] flint_agent::sessions::SessionError),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Peer(String),
    #[error("interrupted")]
    Interrupted,
}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> CliError {
        match error {
            OpenError::Load(error) => CliError::Load(error),
            OpenError::Text(error) => CliError::Text(error),
        }
    }
}

impl CliError {
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> CliError {
        let what = what.into();
        move |source| CliError::Io { what, source }
    }

    /// 1 the turn failed, 2 usage, 3 settings, 4 the model or its device is not to be had, 130 interrupted.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Pull(PullError::Stopped) | CliError::Interrupted => 130,
            CliError::Quantize(QuantizeError::Stopped) => 130,
            CliError::Quantize(QuantizeError::Io(_)) => 1,
            CliError::Quantize(_) => 4,
            CliError::Pull(_) | CliError::Load(_) | CliError::Model(_) | CliError::Cuda(_) => 4,
            CliError::Usage(_) => 2,
            CliError::Config(_) | CliError::Settings(_) => 3,
            CliError::Server(_) => 4,
            CliError::Text(_)
            | CliError::Engine(_)
            | CliError::Failed(_)
            | CliError::Key(_)
            | CliError::Database(_)
            | CliError::Tls(_)
            | CliError::Data(_)
            | CliError::Session(_)
            | CliError::Io { .. }
            | CliError::Peer(_) => 1,
        }
    }
}
