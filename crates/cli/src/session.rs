//! A model that is open: its text side here, its engine in a supervised worker.

use crate::args::ModelArgs;
use crate::config::Config;
use crate::device::Chosen;
use crate::error::CliError;
use crate::models;
use crate::progress::Spinner;
use flint_engine::load::ModelFile;
use flint_engine::supervise::{Handle, Options, Supervisor};
use flint_open::ModelText;
use flint_text::chat::{Message, Prompt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

pub struct Session {
    pub name: String,
    pub text: ModelText,
    pub speculate: bool,
    supervisor: Supervisor,
}

impl Session {
    /// Pulls the model if need be, reads its text side, and starts its worker.
    pub fn open(config: &Config, args: &ModelArgs) -> Result<Session, CliError> {
        let (name, path) = models::locate(config, args.model.as_deref())?;
        let spinner = Spinner::new(format!("loading {name}"));
        let file = ModelFile::open(&path)?;
        let text = ModelText::read(&file)?;
        drop(file);
        let device = Chosen::of(config, args, &path)?;
        let command = worker(args, &path, &device)?;
        let supervisor = Supervisor::start(command, Options::default())?;
        drop(spinner);
        device.tell();
        Ok(Session { name, text, speculate: args.speculates(), supervisor })
    }

    pub fn engine(&self) -> Handle {
        self.supervisor.handle()
    }

    /// The tokens of a conversation, ready for the model's answer.
    pub fn encode_chat(&self, messages: Vec<Message>) -> Result<Vec<u32>, CliError> {
        let Some(template) = &self.text.template else {
            let problem = format!("{} has no chat template; use `flint run --raw`", self.name);
            return Err(CliError::Usage(problem));
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64);
        let prompt = Prompt { messages, add_generation_prompt: true, now_unix_s: now, ..Prompt::default() };
        let tokenizer = &self.text.tokenizer;
        let segments = template.render(&prompt, tokenizer)?;
        let mut tokens = Vec::new();
        tokenizer.encode_segments(&segments, &mut tokens)?;
        Ok(tokens)
    }
}

/// This program again, as the worker.
pub fn worker(
    args: &ModelArgs,
    path: &Path,
    device: &Chosen,
) -> Result<impl FnMut() -> Command + Send + 'static, CliError> {
    let program: PathBuf = std::env::current_exe().map_err(CliError::io("this program's own path"))?;
    let (args, path, device) = (args.clone(), path.to_path_buf(), device.name());
    Ok(move || {
        let mut command = Command::new(&program);
        command.arg("worker").arg("--path").arg(&path).stdout(Stdio::null());
        command.arg("--device").arg(device).arg("--precision").arg(args.precision.name());
        if let Some(threads) = args.threads {
            command.arg("--threads").arg(threads.to_string());
        }
        if let Some(script) = &args.scripted {
            command.arg("--scripted").arg(script);
        }
        if let Some(tokens) = args.kv_tokens {
            command.arg("--kv-tokens").arg(tokens.to_string());
        }
        command
    })
}
