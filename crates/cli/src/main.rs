//! Arguments to commands. Each command is a file; what they do lies in the crates below.

mod agent;
mod answer;
mod args;
mod bench;
mod chat;
mod config;
mod device;
mod doctor;
mod error;
mod estimate;
mod fidelity;
mod interrupt;
mod key;
mod models;
mod peer;
mod progress;
mod quantize;
mod run;
mod scripted;
mod serve;
mod session;
mod settings;
mod usage;
mod worker;

use agent::Open;
use args::{AgentArgs, Cli, Command};
use clap::{CommandFactory, Parser};
use config::Config;
use error::CliError;
use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|first| first == flint_sandbox::KEEPER) {
        return ExitCode::from(u8::try_from(flint_sandbox::keep(words)).unwrap_or(u8::MAX));
    }
    let cli = Cli::parse().passed_down();
    match dispatch(&cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("flint: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn dispatch(cli: &Cli) -> Result<u8, CliError> {
    let config = Config::from_environment();
    let done = match &cli.command {
        Some(Command::Exec(args)) => return agent::exec(&config, &cli.model, args),
        None if std::io::stdin().is_terminal() => open(cli, &cli.agent, &config, Open::New),
        Some(Command::Resume { id, agent, .. }) => open(cli, agent, &config, Open::Resume(id.clone())),
        Some(Command::Fork { id, agent }) => open(cli, agent, &config, Open::Fork(id.clone())),
        Some(Command::Chat) => chat::chat(&config, &cli.model),
        None => run::answer_stdin(&config, &cli.model),
        Some(Command::Run(args)) => run::run(&config, &cli.model, args),
        Some(Command::Pull { name }) => models::pull(&config, name),
        Some(Command::Models) => models::list(&config),
        Some(Command::Quantize(args)) => quantize::quantize(&config, &cli.model, args),
        Some(Command::Bench(args)) => bench::bench(&config, &cli.model, args),
        Some(Command::Serve(args)) => serve::serve(&config, &cli.model, args),
        Some(Command::Key(args)) => key::key(&config, args),
        Some(Command::Usage(args)) => usage::usage(&config, args),
        Some(Command::Config { command }) => agent::configure(&config, &cli.model, command),
        Some(Command::Doctor) => doctor::doctor(&config),
        Some(Command::Completion { shell }) => {
            clap_complete::generate(*shell, &mut Cli::command(), "flint", &mut std::io::stdout());
            Ok(())
        }
        Some(Command::Worker(args)) => worker::work(&config, &cli.model, args),
    };
    done.map(|()| 0)
}

fn open(cli: &Cli, args: &AgentArgs, config: &Config, which: Open) -> Result<(), CliError> {
    agent::terminal(config, &cli.model, args, which)
}
