//! Greedy completions of many prompts by one loaded model, several at a time.

use crate::Outcome;
use flint_engine::device::cpu::{Cpu, default_threads};
use flint_engine::device::plain::Plain;
use flint_engine::limits::{BATCH_SEQUENCES_MAX, KV_BLOCK_TOKENS};
use flint_engine::load::ModelFile;
use flint_engine::message::{Base, Command, Event, Generate, Priority, SequenceId, Tenant};
use flint_engine::model::Loaded;
use flint_engine::runner::Runner;
use flint_engine::sample::Sampling;
use flint_engine::step::{Engine, Progress};
use flint_open::ModelText;
use flint_text::{Detokenizer, StopStrings, Tokenizer};
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

/// Whose arithmetic it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Cpu,
    Plain, // the oracle: a hundred times slower
}

impl By {
    fn load(self, file: &ModelFile) -> Outcome<Box<dyn Runner>> {
        let blocks = BATCH_SEQUENCES_MAX * SEQUENCE_TOKENS / KV_BLOCK_TOKENS;
        Ok(match self {
            By::Cpu => Box::new(Loaded::new(file, Cpu::new(default_threads())?, blocks, &mut |_, _| ())?),
            By::Plain => Box::new(Loaded::new(file, Plain::default(), blocks, &mut |_, _| ())?),
        })
    }
}

/// What follows each prompt, up to a stop string.
pub fn complete(path: &Path, prompts: &[&str], by: By) -> Outcome<Vec<String>> {
    if !path.exists() {
        return Err(
            format!("{} is not there: run `cargo xtask test`, which fetches it", path.display()).into()
        );
    }
    let file = ModelFile::open(path)?;
    let text = ModelText::read(&file)?;
    let mut engine = Engine::new(by.load(&file)?);
    let mut events = Vec::new();
    for (index, prompt) in prompts.iter().enumerate() {
        let generate = generate(&text, index, prompt)?;
        engine.command(&Command::Generate(generate), &mut events);
    }
    let mut streams: Vec<Stream> = prompts.iter().map(|_| Stream::new()).collect();
    loop {
        let progress = engine.step(&mut events)?;
        for event in std::mem::take(&mut events) {
            if let Some(done) = take(&mut streams, &text, event)? {
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

fn generate(text: &ModelText, index: usize, prompt: &str) -> Outcome<Generate> {
    Ok(Generate {
        sequence: SequenceId(index as u64),
        base: Base::New,
        tokens: text.encode_raw(prompt)?,
        resumed: 0,
        max_tokens: TOKENS_MAX,
        stop_tokens: text.stop_tokens.clone(),
        sampling: Sampling::default(),
        constraint: None,
        references: Vec::new(),
        speculate: false,
        priority: Priority::Background,
        tenant: Tenant::default(),
    })
}

/// Adds what an event brings to its completion; returns the sequence when that is complete.
fn take(streams: &mut [Stream], text: &ModelText, event: Event) -> Outcome<Option<SequenceId>> {
    let Some(sequence) = event.sequence() else { return Ok(None) };
    let Some(stream) = streams.get_mut(sequence.0 as usize) else { return Ok(None) };
    if stream.finished {
        return Ok(None);
    }
    match event {
        Event::Token { token, .. } if !text.stop_tokens.contains(&token) => {
            stream.push(&text.tokenizer, token)
        }
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
