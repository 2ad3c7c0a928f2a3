//! Developer commands: `cargo xtask NAME`.

#![forbid(unsafe_code)]

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

use python::must;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test                           formatting, clippy, the dependency policy and every test
  fuzz --seconds N [--target NAME] [--keep]
                                 look for inputs that break a promise
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
        "eval" => eval::run(rest),
        "golden" => golden::run(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        other => Err(format!("there is no command {other:?}\n{USAGE}").into()),
    }
}
