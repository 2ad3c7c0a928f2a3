//! `flint run`, and a prompt that comes through a pipe.

use crate::answer::{Ask, answer};
use crate::args::{ModelArgs, RunArgs, SamplingArgs};
use crate::config::Config;
use crate::error::CliError;
use crate::interrupt;
use crate::session::Session;
use flint_engine::message::Base;
use flint_text::chat::{Message, Role};
use std::io::{IsTerminal, Read, Write};

/// Bytes of a prompt, at most.
const PROMPT_BYTES_MAX: u64 = 64 << 20;

pub fn run(config: &Config, model: &ModelArgs, args: &RunArgs) -> Result<(), CliError> {
    interrupt::listen()?;
    let prompt = if args.prompt == "-" { read_stdin()? } else { args.prompt.clone() };
    let session = Session::open(config, model)?;
    let tokens = if args.raw {
        session.text.encode_raw(&prompt)?
    } else {
        let system = args.system.iter().map(|text| Message::new(Role::System, text.as_str()));
        session.encode_chat(system.chain([Message::new(Role::User, prompt)]).collect())?
    };
    print_answer(&session, tokens, args.sampling, args.max_tokens, &args.stop)
}

/// `flint` with a pipe for standard input.
pub fn answer_stdin(config: &Config, model: &ModelArgs) -> Result<(), CliError> {
    interrupt::listen()?;
    let prompt = read_stdin()?;
    if prompt.trim().is_empty() {
        let problem = "there is no prompt on standard input; give one, or run flint in a terminal to chat";
        return Err(CliError::Usage(problem.into()));
    }
    let session = Session::open(config, model)?;
    let tokens = session.encode_chat(vec![Message::new(Role::User, prompt)])?;
    print_answer(&session, tokens, SamplingArgs::GREEDY, 2048, &[])
}

fn print_answer(
    session: &Session,
    tokens: Vec<u32>,
    sampling: SamplingArgs,
    max_tokens: u32,
    stop: &[String],
) -> Result<(), CliError> {
    let sequence = session.engine().new_sequence();
    let ask = Ask { sequence, base: Base::New, tokens, sampling, max_tokens, stop };
    let mut out = std::io::stdout().lock();
    let answer = answer(session, ask, &mut out)?;
    if std::io::stdout().is_terminal() {
        writeln!(out).map_err(CliError::io("standard output"))?;
    }
    if std::io::stderr().is_terminal() {
        eprintln!("{} · {}", session.name, answer.timing);
    }
    if answer.stopped { Err(CliError::Interrupted) } else { Ok(()) }
}

fn read_stdin() -> Result<String, CliError> {
    let mut bytes = Vec::new();
    let mut input = std::io::stdin().lock().take(PROMPT_BYTES_MAX + 1);
    input.read_to_end(&mut bytes).map_err(CliError::io("standard input"))?;
    if bytes.len() as u64 > PROMPT_BYTES_MAX {
        return Err(CliError::Usage(format!("the prompt is longer than {} MiB", PROMPT_BYTES_MAX >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| {
        CliError::Usage(format!("the prompt is not UTF-8: byte {} is bad", error.utf8_error().valid_up_to()))
    })
}
