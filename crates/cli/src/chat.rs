//! `flint` in a terminal: a conversation that streams. Ctrl-C stops an answer; at the prompt it quits.

use crate::answer::{Ask, answer};
use crate::args::{ModelArgs, SamplingArgs};
use crate::config::Config;
use crate::error::CliError;
use crate::interrupt;
use crate::session::Session;
use flint_engine::message::Base;
use flint_text::chat::{Message, Role};
use std::io::{BufRead, Write};

const HELP: &str = "Write a message and press Enter. A line that ends in \\ goes on in the next.\n\
    Ctrl-C stops an answer; at the prompt it quits. /clear starts afresh, /quit leaves.";

/// Tokens of one answer, at most.
const ANSWER_TOKENS_MAX: u32 = 4096;

/// A little freedom, and a little weariness of repeating itself: small models need both.
const SAMPLING: SamplingArgs =
    SamplingArgs { temperature: 0.3, top_p: 0.9, top_k: 40, min_p: 0.0, repetition_penalty: 1.1, seed: None };

pub fn chat(config: &Config, model: &ModelArgs) -> Result<(), CliError> {
    interrupt::listen()?;
    let session = Session::open(config, model)?;
    let engine = session.engine();
    println!("{} is ready. /help tells what you can do.", session.name);
    let mut sequence = engine.new_sequence();
    let mut base = Base::New;
    let mut messages: Vec<Message> = Vec::new();
    while let Some(line) = read_message()? {
        match line.trim() {
            "" => continue,
            "/help" => println!("{HELP}"),
            "/quit" | "/exit" => break,
            "/clear" => {
                if base != Base::New {
                    engine.release(sequence)?;
                }
                (sequence, base) = (engine.new_sequence(), Base::New);
                messages.clear();
            }
            text => {
                messages.push(Message::new(Role::User, text));
                let tokens = session.encode_chat(messages.clone())?;
                let ask = Ask {
                    sequence,
                    base,
                    tokens,
                    sampling: SAMPLING,
                    max_tokens: ANSWER_TOKENS_MAX,
                    stop: &[],
                };
                let answer = answer(&session, ask, &mut std::io::stdout().lock())?;
                base = Base::Rewrite;
                let stopped = if answer.stopped { " · stopped" } else { "" };
                println!("\n\x1b[2m{}{stopped}\x1b[0m", answer.timing);
                messages.push(Message::new(Role::Assistant, answer.text));
            }
        }
    }
    Ok(())
}

/// One message: a line, and the next ones while they end in a backslash. None at the end of input.
fn read_message() -> Result<Option<String>, CliError> {
    let mut message = String::new();
    loop {
        print!("{}", if message.is_empty() { "\x1b[1m> \x1b[0m" } else { "  " });
        std::io::stdout().flush().map_err(CliError::io("standard output"))?;
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line).map_err(CliError::io("standard input"))?;
        if read == 0 {
            println!();
            return Ok((!message.is_empty()).then_some(message));
        }
        let line = line.trim_end_matches(['\n', '\r']);
        match line.strip_suffix('\\') {
            Some(part) => message = message + part + "\n",
            None => return Ok(Some(message + line)),
        }
    }
}
