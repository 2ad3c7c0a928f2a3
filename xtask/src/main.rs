//! Developer commands: `cargo xtask NAME`.

mod eval;
mod golden;
mod paths;
mod python;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

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
        "eval" => eval::run(rest),
        "golden" => golden::run(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        other => Err(format!("there is no command {other:?}\n{USAGE}").into()),
    }
}
