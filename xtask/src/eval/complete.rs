//! Greedy completions of many prompts by one loaded model, several at a time.

use crate::Outcome;
use flint_engine::device::cpu::{Cpu, default_threads};
use flint_engine::limits::{BATCH_SEQUENCES_MAX, KV_BLOCK_TOKENS};
use flint_engine::load::{ModelFile, TokenizerSource, Vocabulary};
use flint_engine::message::{Base, Command, Event, Generate, Priority, SequenceId, Tenant};
use flint_engine::model::Loaded;
use flint_engine::sample::Sampling;
use flint_engine::step::{Engine, Progress};
use flint_text::{Detokenizer, GgufVocab, StopStrings, Tokenizer};
use std::path::Path;

const TOKENS_MAX: u32 = 512; // of a completion

/// Where a function body is over.
const STOPS: [&str; 5] = ["\ndef ", "\nclass ", "\nif __name__", "\nprint(", "\n#"];

/// Tokens of KV for one sequence; a task's prompt has at most some 400.
const SEQUENCE_TOKENS: usize = 1024;

/// One completion on its way.
struct Stream {
    text: String,
    detokenizer: Detokenizer,
    stops: StopStrings,
    finished: bool,
}

/// What follows each prompt, up to a stop string.
pub fn complete(path: &Path, prompts: &[&str]) -> Outcome<Vec<String>> {
    if !path.exists() {
        return Err(
            format!("{} is not there: run `cargo xtask test`, which fetches it", path.display()).into()
        );
    }
    let file = ModelFile::open(path)?;
    let (tokenizer, stop_tokens) = tokenizer(file.tokenizer()?)?;
    let blocks = BATCH_SEQUENCES_MAX * SEQUENCE_TOKENS / KV_BLOCK_TOKENS;
    let runner = Loaded::new(&file, Cpu::new(default_threads())?, blocks, &mut |_, _| ())?;
    let mut engine = Engine::new(Box::new(runner));
    let mut events = Vec::new();
    for (index, prompt) in prompts.iter().enumerate() {
        let generate = generate(&tokenizer, index, prompt, &stop_tokens)?;
        engine.command(&Command::Generate(generate), &mut events);
    }
    let mut streams: Vec<Stream> = prompts.iter().map(|_| Stream::new()).collect();
    loop {
        let progress = engine.step(&mut events)?;
        for event in std::mem::take(&mut events) {
            if let Some(done) = take(&mut streams, &tokenizer, &stop_tokens, event)? {
                engine.command(&Command::Release { sequence: done }, &mut events);
                let finished = streams.iter().filter(|stream| stream.finished).count();
                eprint!("\rcompleted {finished} of {}", prompts.len());
            }
        }
        if progress == Progress::Idle && events.is_empty() {
            eprintln!();
            return Ok(streams.into_iter().map(|stream| stream.text).collect());
        }
    }
}

fn generate(tokenizer: &Tokenizer, index: usize, prompt: &str, stop_tokens: &[u32]) -> Outcome<Generate> {
    let mut tokens = Vec::new();
    if tokenizer.add_bos() {
        tokens.extend(tokenizer.bos());
    }
    tokenizer.encode_text(prompt, &mut tokens)?;
    Ok(Generate {
        sequence: SequenceId(index as u64),
        base: Base::New,
        tokens,
        resumed: 0,
        max_tokens: TOKENS_MAX,
        stop_tokens: stop_tokens.to_vec(),
        sampling: Sampling::default(),
        constraint: None,
        priority: Priority::Background,
        tenant: Tenant::default(),
    })
}

/// Adds what an event brings to its completion; returns the sequence when that is complete.
fn take(
    streams: &mut [Stream],
    tokenizer: &Tokenizer,
    stop_tokens: &[u32],
    event: Event,
) -> Outcome<Option<SequenceId>> {
    let Some(sequence) = event.sequence() else { return Ok(None) };
    let Some(stream) = streams.get_mut(sequence.0 as usize) else { return Ok(None) };
    if stream.finished {
        return Ok(None);
    }
    match event {
        Event::Token { token, .. } if !stop_tokens.contains(&token) => stream.push(tokenizer, token),
        Event::Finished { .. } => stream.finish(),
        Event::Failed { failure, .. } | Event::Refused { failure, .. } => {
            return Err(format!("task {}: {failure}", sequence.0).into());
        }
        _ => (),
    }
    Ok(stream.finished.then_some(sequence))
}

impl Stream {
    fn new() -> Stream {
        Stream {
            text: String::new(),
            detokenizer: Detokenizer::new(),
            stops: StopStrings::new(&STOPS.map(String::from)),
            finished: false,
        }
    }

    fn push(&mut self, tokenizer: &Tokenizer, token: u32) {
        let (text, stopped) = self.stops.push(self.detokenizer.push(tokenizer, token));
        self.text.push_str(&text);
        self.finished = stopped;
    }

    fn finish(&mut self) {
        let (text, _) = self.stops.push(self.detokenizer.finish());
        self.text.push_str(&text);
        self.text.push_str(&self.stops.finish());
        self.finished = true;
    }
}

/// The tokenizer of a model, and the tokens that end a text.
fn tokenizer(source: TokenizerSource) -> Outcome<(Tokenizer, Vec<u32>)> {
    let TokenizerSource { vocabulary, bos, eos, add_bos, .. } = source;
    let tokenizer = match vocabulary {
        Vocabulary::Json(bytes) => Tokenizer::from_json(&bytes)?,
        Vocabulary::Gguf(gguf) => Tokenizer::from_gguf(GgufVocab {
            model: gguf.model,
            pre: gguf.pre.unwrap_or_default(),
            tokens: gguf.tokens,
            types: gguf.types,
            merges: gguf.merges,
            scores: gguf.scores,
            bos,
            eos: eos.first().copied(),
            eot: eos.get(1).copied(),
            add_bos,
        })?,
    };
    let mut stop_tokens = eos;
    stop_tokens.extend(tokenizer.eos_ids());
    stop_tokens.sort_unstable();
    stop_tokens.dedup();
    Ok((tokenizer, stop_tokens))
}
