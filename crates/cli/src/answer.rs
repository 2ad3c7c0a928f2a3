//! One answer: tokens from the engine become text on a terminal or a pipe, with the times they took.

use crate::args::SamplingArgs;
use crate::error::CliError;
use crate::interrupt::Stoppable;
use crate::session::Session;
use flint_engine::message::{Base, Counts, Event, FinishReason, Generate, Priority, SequenceId, Tenant};
use flint_engine::sample::Sampling;
use flint_text::{Detokenizer, StopStrings};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a waiting answer looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// What to write, after what.
pub struct Ask<'a> {
    pub sequence: SequenceId,
    pub base: Base,
    pub tokens: Vec<u32>,
    pub sampling: SamplingArgs,
    pub max_tokens: u32,
    pub stop: &'a [String],
}

/// What came of it.
pub struct Answer {
    pub text: String,
    pub stopped: bool, // by the person
    pub timing: Timing,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Timing {
    pub first_token: Option<Duration>,
    pub whole: Duration,
    pub counts: Counts,
}

impl Timing {
    /// Tokens a second after the first.
    pub fn decode_rate(&self) -> Option<f64> {
        let decoding = self.whole.checked_sub(self.first_token?)?.as_secs_f64();
        let tokens = self.counts.generated.checked_sub(1).filter(|tokens| *tokens > 0)?;
        Some(tokens as f64 / decoding)
    }
}

impl std::fmt::Display for Timing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts { cached, new, generated, .. } = self.counts;
        write!(f, "{generated} tokens")?;
        if let Some(first) = self.first_token {
            write!(f, " · first after {:.0} ms", first.as_secs_f64() * 1e3)?;
        }
        if let Some(rate) = self.decode_rate() {
            write!(f, " · {rate:.1} tok/s")?;
        }
        write!(f, " · prompt {} ({cached} cached)", cached + new)
    }
}

/// Generates and prints as it goes.
pub fn answer(session: &Session, ask: Ask<'_>, out: &mut dyn Write) -> Result<Answer, CliError> {
    let stoppable = Stoppable::begin();
    let mut writer = Writer::new(session, ask.stop, out);
    let engine = session.engine();
    let start = Instant::now();
    let generation = engine.generate(Generate {
        sequence: ask.sequence,
        base: ask.base,
        tokens: ask.tokens,
        resumed: 0,
        max_tokens: ask.max_tokens,
        stop_tokens: session.text.stop_tokens.clone(),
        sampling: sampling(ask.sampling),
        constraint: None,
        references: Vec::new(),
        speculate: session.speculate,
        priority: Priority::Interactive,
        tenant: Tenant::default(),
    })?;
    let mut timing = Timing::default();
    let mut cancelled = false;
    loop {
        if !cancelled && (stoppable.asked() || writer.ended) {
            engine.cancel(ask.sequence)?;
            cancelled = true;
        }
        match generation.next_within(LOOK) {
            Err(_) => {}
            Ok(Some(Event::Token { token, .. })) => {
                timing.first_token.get_or_insert_with(|| start.elapsed());
                writer.push(token)?;
            }
            Ok(Some(Event::Finished { reason, counts, .. })) => {
                timing.counts = counts;
                timing.whole = start.elapsed();
                writer.finish(reason)?;
                break;
            }
            Ok(Some(Event::Failed { failure, .. })) => return Err(failure.into()),
            Ok(Some(_)) => {}
            Ok(None) => break,
        }
    }
    Ok(Answer { text: writer.text, stopped: stoppable.asked(), timing })
}

fn sampling(args: SamplingArgs) -> Sampling {
    Sampling {
        temperature: args.temperature,
        top_p: args.top_p,
        top_k: args.top_k,
        min_p: args.min_p,
        repetition_penalty: args.repetition_penalty,
        seed: args.seed.unwrap_or_else(clock_seed),
        ..Sampling::default()
    }
}

/// A seed that nobody chose.
fn clock_seed() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.map_or(0, |time| time.as_nanos() as u64)
}

/// Text on its way out: whole characters, up to a stop string, without escape sequences on a terminal.
struct Writer<'a> {
    session: &'a Session,
    detokenizer: Detokenizer,
    stop: StopStrings,
    out: &'a mut dyn Write,
    for_terminal: bool,
    text: String,
    ended: bool, // at a stop string
}

impl<'a> Writer<'a> {
    fn new(session: &'a Session, stop: &[String], out: &'a mut dyn Write) -> Writer<'a> {
        Writer {
            session,
            detokenizer: Detokenizer::new(),
            stop: StopStrings::new(stop),
            out,
            for_terminal: std::io::stdout().is_terminal(),
            text: String::new(),
            ended: false,
        }
    }

    fn push(&mut self, token: u32) -> Result<(), CliError> {
        if self.ended || self.session.text.stop_tokens.contains(&token) {
            return Ok(());
        }
        let delta = self.detokenizer.push(&self.session.text.tokenizer, token);
        let (text, ended) = self.stop.push(delta);
        self.ended = ended;
        self.write(&text)
    }

    fn finish(&mut self, reason: FinishReason) -> Result<(), CliError> {
        if !self.ended {
            let rest = self.detokenizer.finish().to_string();
            let (text, ended) = self.stop.push(&rest);
            self.write(&text)?;
            if !ended {
                let held = self.stop.finish();
                self.write(&held)?;
            }
        }
        if reason == FinishReason::Context {
            eprintln!("\n(the context is full)");
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<(), CliError> {
        self.text.push_str(text);
        let failed = "standard output";
        let written = if self.for_terminal {
            self.out.write_all(harmless(text).as_bytes())
        } else {
            self.out.write_all(text.as_bytes())
        };
        written.and_then(|()| self.out.flush()).map_err(CliError::io(failed))
    }
}

/// Text that moves no cursor and rings no bell: control characters but tab and newline become visible.
pub fn harmless(text: &str) -> String {
    let visible = |c: char| match c {
        '\n' | '\t' => c,
        c if (c as u32) < 0x20 => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        c if ('\u{80}'..='\u{9f}').contains(&c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(visible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_become_visible() {
        assert_eq!(harmless("a\x1b[2J\tb\n\x07\u{9b}31m"), "a␛[2J\tb\n␇\u{fffd}31m");
    }

    #[test]
    fn timings_read_well() {
        let counts = Counts { cached: 10, new: 5, generated: 101, ..Counts::default() };
        let timing = Timing {
            first_token: Some(Duration::from_millis(120)),
            whole: Duration::from_millis(2120),
            counts,
        };
        assert_eq!(
            timing.to_string(),
            "101 tokens · first after 120 ms · 50.0 tok/s · prompt 15 (10 cached)"
        );
    }
}
