//! Developer commands: `cargo xtask NAME`.

#![forbid(unsafe_code)]

mod bench;
mod cargo;
mod chaos;
mod clients;
mod eval;
mod fetch;
mod fuzz;
mod golden;
mod paths;
mod picture;
mod plot;
mod policy;
mod pty;
mod python;
mod shape;
mod sources;
mod test;
#[cfg(test)]
mod tidy;
mod wire;

use python::must;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test                           formatting, clippy, the dependency policy and every test
  fuzz --seconds N [--target NAME] [--keep]
                                 look for inputs that break a promise
  bench wire [--json] [--bin PATH]
                                 what a turn costs besides the engine's work, and how soon tokens are seen
  bench agent [--json] [--bin PATH]
                                 what a person waits for besides the model: start, Enter, paint
  bench served MODEL [--json] [--bin PATH]
                                 how fast a client on a WebSocket sees a real model write, beside what the engine makes
  bench edits [--traces N] [--only TEXT] [--rounds N] [--json] [--record FILE]
                                 how much sooner an edited file is written when its tokens are guessed;
                                 build with --release: cargo run --release -p xtask -- bench edits
  chaos [--short] [--kind NAME] [--seed N] [--bin PATH]
                                 many streams, dying workers and servers, leaving and slow clients, overload:
                                 every byte compared
  eval humaneval [--tasks N] [--plain]
                                 how many programs that a model writes pass their tests
  eval edits [--only TEXT]       how many small tasks the agent does with a real model: build with --release first
  plot REPORT.json... OUT.svg    a picture of what flint bench --peer llama.cpp --json and bench edits --json printed
  picture [--bin PATH] OUT.svg   the agent at work with the default model, recorded in a terminal
  shape gpt-oss|gpt-oss-20b|qwen3-moe OUT.gguf
                                 a mixture with random weights, scaled down or whole, for flint bench -m OUT.gguf
  golden [tiny|perplexity]       make the reference data in tests/golden anew, with transformers";

/// A command says what went wrong in words that stand alone.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Outcome {
    let Some((command, rest)) = args.split_first() else {
        return Err(USAGE.into());
    };
    match command.as_str() {
        "test" => test::run(rest),
        "fuzz" => fuzz::run(rest),
        "bench" => bench::run(rest),
        "chaos" => chaos_command(rest),
        "eval" => eval::run(rest),
        "picture" => picture::run(rest),
        "plot" => plot::plot(rest),
        "shape" => shape::run(rest),
        "golden" => golden::run(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        other => Err(format!("there is no command {other:?}\n{USAGE}").into()),
    }
}

fn chaos_command(args: &[String]) -> Outcome {
    let kinds: Vec<&str> = chaos::kinds().collect();
    let usage = || {
        let kinds = kinds.join(", ");
        format!("usage: cargo xtask chaos [--short] [--kind NAME] [--seed N] [--bin PATH]\nkinds: {kinds}")
    };
    let (mut short, mut only, mut seed, mut program) = (false, None, 1, None);
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--short" => short = true,
            "--kind" => only = Some(words.next().filter(|kind| kinds.contains(kind)).ok_or_else(usage)?),
            "--seed" => seed = words.next().and_then(|seed| seed.parse().ok()).ok_or_else(usage)?,
            "--bin" => program = Some(words.next().ok_or_else(usage)?.into()),
            _ => return Err(usage().into()),
        }
    }
    let plan = if short { chaos::Plan::short(seed) } else { chaos::Plan::full(seed) };
    let program = program.map_or_else(bench::release_build, Ok)?;
    println!("seed {seed}");
    chaos::print_head();
    let mut wrong = 0;
    for kind in kinds.iter().filter(|kind| only.is_none_or(|only| only == **kind)) {
        let row = chaos::row(&program, plan, kind)?;
        chaos::print(kind, &row);
        wrong += row.wrong.len();
    }
    match wrong {
        0 => Ok(()),
        _ => Err(format!("{wrong} things were not as they should be; --seed {seed} does it again").into()),
    }
}
