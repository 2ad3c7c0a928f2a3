//! Developer commands: `cargo xtask NAME`.

#![forbid(unsafe_code)]

mod bench;
mod chaos;
mod clients;
mod eval;
mod fetch;
mod fuzz;
mod golden;
mod paths;
mod policy;
mod python;
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
  chaos [--short] [--seed N] [--bin PATH]
                                 many streams, dying workers, leaving and slow clients: every byte compared
  eval humaneval [--tasks N]     how many programs that a model writes pass their tests
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
        "golden" => golden::run(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        other => Err(format!("there is no command {other:?}\n{USAGE}").into()),
    }
}

fn chaos_command(args: &[String]) -> Outcome {
    const USAGE: &str = "usage: cargo xtask chaos [--short] [--seed N] [--bin PATH]";
    let (mut short, mut seed, mut program) = (false, 1, None);
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--short" => short = true,
            "--seed" => seed = words.next().and_then(|seed| seed.parse().ok()).ok_or(USAGE)?,
            "--bin" => program = Some(words.next().ok_or(USAGE)?.into()),
            _ => return Err(USAGE.into()),
        }
    }
    let plan = if short { chaos::Plan::short(seed) } else { chaos::Plan::full(seed) };
    let rows = chaos::rows(&program.map_or_else(bench::release_build, Ok)?, plan)?;
    println!("seed {seed}");
    chaos::print(&rows);
    match rows.iter().map(|row| row.wrong.len()).sum::<usize>() {
        0 => Ok(()),
        wrong => {
            Err(format!("{wrong} things were not as they should be; --seed {seed} does it again").into())
        }
    }
}
