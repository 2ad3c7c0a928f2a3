//! A worker that plays given answers: for tests, load and faults, never for people.

use crate::args::ModelArgs;
use crate::error::CliError;
use flint_engine::device::scripted::{Fault, FaultKind, Line, Script, Scripted, ScriptedOptions};
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::load::ModelFile;
use flint_open::ModelText;
use serde::Deserialize;
use std::path::Path;

/// The file that says what is played. Text may hold control tokens, such as `<|im_end|>`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Play {
    rate: Option<f64>, // forward passes a second
    lines: Vec<Spoken>,
    abort_at_pass: Option<u64>, // the worker dies there
}

/// After a prompt that ends with the cue comes the answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spoken {
    cue: String,
    answer: String,
}

pub fn load(args: &ModelArgs, script: &Path, model: &Path) -> Result<Scripted, CliError> {
    let text = std::fs::read(script).map_err(CliError::io(script.display().to_string()))?;
    let play: Play = serde_json::from_slice(&text)
        .map_err(|error| CliError::Usage(format!("{}: {error}", script.display())))?;
    let file = ModelFile::open(model)?;
    let text = ModelText::read(&file)?;
    let line = |spoken: &Spoken| -> Result<Line, CliError> {
        Ok(Line { cue: tokens(&text, &spoken.cue)?, answer: tokens(&text, &spoken.answer)? })
    };
    let lines = play.lines.iter().map(line).collect::<Result<_, _>>()?;
    let end = text.tokenizer.eos().unwrap_or_default();
    let kv_tokens = args.kv_tokens.map_or(file.config.context, |tokens| tokens as usize);
    let options = ScriptedOptions {
        vocab: file.config.vocab,
        context: file.config.context,
        kv_blocks: kv_tokens.div_ceil(KV_BLOCK_TOKENS),
        script: Script::Lines { lines, end },
        rate: play.rate,
        fault: play.abort_at_pass.map(|pass| Fault { pass, kind: FaultKind::Abort }),
    };
    Scripted::new(options).map_err(|error| CliError::Usage(error.to_string()))
}

fn tokens(text: &ModelText, spoken: &str) -> Result<Vec<u32>, CliError> {
    let mut tokens = Vec::new();
    text.tokenizer.encode_segments(&text.tokenizer.controls().split(spoken), &mut tokens)?;
    Ok(tokens)
}
