//! A model that is open: its text side here, its engine in a supervised worker.

use crate::args::ModelArgs;
use crate::config::Config;
use crate::error::CliError;
use crate::models;
use crate::progress::Spinner;
use flint_engine::load::{ModelFile, TokenizerSource, Vocabulary};
use flint_engine::supervise::{Handle, Options, Supervisor};
use flint_text::chat::{Message, Prompt};
use flint_text::{GgufVocab, Segment, Template, TextError, Tokenizer};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

pub struct Session {
    pub name: String,
    pub tokenizer: Tokenizer,
    pub stop_tokens: Vec<u32>,
    template: Option<Template>,
    supervisor: Supervisor,
}

impl Session {
    /// Pulls the model if need be, reads its text side, and starts its worker.
    pub fn open(config: &Config, args: &ModelArgs) -> Result<Session, CliError> {
        let (name, path) = models::locate(config, args.model.as_deref())?;
        let spinner = Spinner::new(format!("loading {name}"));
        let file = ModelFile::open(&path)?;
        let text = TextSide::read(&file)?;
        drop(file);
        let supervisor = start_worker(args, &path)?;
        drop(spinner);
        let TextSide { tokenizer, template, stop_tokens } = text;
        Ok(Session { name, tokenizer, stop_tokens, template, supervisor })
    }

    pub fn engine(&self) -> Handle {
        self.supervisor.handle()
    }

    /// The tokens of a conversation, ready for the model's answer.
    pub fn encode_chat(&self, messages: Vec<Message>) -> Result<Vec<u32>, CliError> {
        let Some(template) = &self.template else {
            let problem = format!("{} has no chat template; use `flint run --raw`", self.name);
            return Err(CliError::Usage(problem));
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64);
        let prompt = Prompt { messages, add_generation_prompt: true, now_unix_s: now, ..Prompt::default() };
        let segments = template.render(&prompt, &self.tokenizer)?;
        Ok(self.encode(&segments)?)
    }

    /// The tokens of a text that is to be continued.
    pub fn encode_raw(&self, text: &str) -> Result<Vec<u32>, CliError> {
        let mut tokens = Vec::new();
        if self.tokenizer.add_bos() {
            tokens.extend(self.tokenizer.bos());
        }
        self.tokenizer.encode_text(text, &mut tokens)?;
        Ok(tokens)
    }

    fn encode(&self, segments: &[Segment]) -> Result<Vec<u32>, TextError> {
        let mut tokens = Vec::new();
        self.tokenizer.encode_segments(segments, &mut tokens)?;
        Ok(tokens)
    }
}

/// What turns a model's tokens into text and back.
pub struct TextSide {
    pub tokenizer: Tokenizer,
    pub template: Option<Template>,
    pub stop_tokens: Vec<u32>,
}

impl TextSide {
    pub fn read(file: &ModelFile) -> Result<TextSide, CliError> {
        let TokenizerSource { vocabulary, chat_template, bos, eos, add_bos, .. } = file.tokenizer()?;
        let tokenizer = match vocabulary {
            Vocabulary::Gguf(vocabulary) => Tokenizer::from_gguf(GgufVocab {
                model: vocabulary.model,
                pre: vocabulary.pre.unwrap_or_default(),
                tokens: vocabulary.tokens,
                types: vocabulary.types,
                merges: vocabulary.merges,
                scores: vocabulary.scores,
                bos,
                eos: eos.first().copied(),
                eot: eos.get(1).copied(),
                add_bos,
            })?,
            Vocabulary::Json(bytes) => Tokenizer::from_json(&bytes)?,
        };
        let mut stop_tokens = eos;
        stop_tokens
            .extend(tokenizer.eos_ids().iter().filter(|id| !stop_tokens.contains(id)).collect::<Vec<_>>());
        let template = chat_template.as_deref().map(Template::new).transpose()?;
        Ok(TextSide { tokenizer, template, stop_tokens })
    }
}

/// This program again, as the worker.
fn start_worker(args: &ModelArgs, path: &Path) -> Result<Supervisor, CliError> {
    let program: PathBuf = std::env::current_exe().map_err(CliError::io("this program's own path"))?;
    let (args, path) = (args.clone(), path.to_path_buf());
    let command = move || {
        let mut command = Command::new(&program);
        command.arg("worker").arg("--path").arg(&path).stdout(Stdio::null());
        if let Some(threads) = args.threads {
            command.arg("--threads").arg(threads.to_string());
        }
        if let Some(tokens) = args.kv_tokens {
            command.arg("--kv-tokens").arg(tokens.to_string());
        }
        command
    };
    Ok(Supervisor::start(command, Options::default())?)
}
