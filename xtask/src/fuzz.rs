//! `cargo xtask fuzz --seconds N [--target NAME] [--keep]`: looks for bytes that break a promise.
//!
//! The promises are `fuzz/src`, the seeds `fuzz/corpus`. What a run finds interesting lands in
//! `fuzz/target/found`; `--keep` moves the little of it that adds coverage to the seeds. What breaks a promise lands in
//! `fuzz/artifacts`: fix the cause, then give the file a name among the seeds, and the tests replay it for ever.

use crate::cargo::of_cargo;
use crate::{Outcome, bench, fetch, must, paths};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const USAGE: &str = "usage: cargo xtask fuzz --seconds N [--target NAME] [--keep]";

/// A fuzz target and its bounds: one input may not be longer, take longer or need more memory.
struct Target {
    name: &'static str,
    input_bytes_max: usize,
    allocation_mb_max: usize, // at once
    memory_mb_max: usize,     // of the whole process, the fuzzer's own included
    serves: bool, // in the process is a server, whose worker is the program itself and whose log is long
}

const fn target(name: &'static str, input_bytes_max: usize, allocation_mb_max: usize) -> Target {
    Target { name, input_bytes_max, allocation_mb_max, memory_mb_max: 2048, serves: false }
}

/// A template may make text of 256 MiB, and the lexer of a constraint is large; all else answers to inputs of some kilobytes.
const TARGETS: [Target; 17] = [
    target("gguf", 16 << 10, 64),
    target("safetensors", 24 << 10, 64),
    Target { memory_mb_max: 4096, ..target("constrain", 2 << 10, 1024) },
    target("link", 4 << 10, 64),
    target("tokenizer", 8 << 10, 256),
    Target { memory_mb_max: 4096, ..target("template", 4 << 10, 1024) },
    target("detokenizer", 4 << 10, 64),
    target("stop", 2 << 10, 64),
    target("parser", 8 << 10, 64),
    target("request", 8 << 10, 64),
    target("frames", 8 << 10, 64),
    target("patch", 8 << 10, 64),
    target("approve", 4 << 10, 64),
    target("terminal", 8 << 10, 64),
    target("config", 8 << 10, 64),
    target("sessions", 8 << 10, 64),
    Target { serves: true, ..target("socket", 4 << 10, 1024) },
];

const INPUT_SECONDS_MAX: usize = 20;

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    seconds: u64,
    target: Option<String>,
    keep: bool,
}

/// What one run did.
struct Report {
    executions: String,
    sound: bool, // nothing broke a promise or a bound
}

pub fn run(args: &[String]) -> Outcome {
    let options = options(args)?;
    let chosen = |target: &&Target| options.target.as_deref().is_none_or(|name| name == target.name);
    let targets: Vec<&Target> = TARGETS.iter().filter(chosen).collect();
    if targets.is_empty() {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        return Err(format!("there is no such target; there are {}", names.join(", ")).into());
    }
    let mut lines = Vec::new();
    let mut sound = true;
    for target in targets {
        let report = fuzz(target, options.seconds)?;
        if options.keep && report.sound {
            keep(target)?;
        }
        let found = if report.sound { "nothing found" } else { "FOUND: see fuzz/artifacts" };
        lines.push(format!("{:12} {:>12} executions, {found}", target.name, report.executions));
        sound &= report.sound;
    }
    lines.iter().for_each(|line| println!("{line}"));
    if sound { Ok(()) } else { Err("an input breaks a promise".into()) }
}

fn options(args: &[String]) -> Outcome<Options> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => options.seconds = args.next().ok_or(USAGE)?.parse().map_err(|_| USAGE)?,
            "--target" => options.target = Some(args.next().ok_or(USAGE)?.clone()),
            "--keep" => options.keep = true,
            _ => return Err(USAGE.into()),
        }
    }
    if options.seconds == 0 { Err(USAGE.into()) } else { Ok(options) }
}

fn seeds(target: &Target) -> PathBuf {
    paths::repository().join("fuzz/corpus").join(target.name)
}

fn found(target: &Target) -> Outcome<PathBuf> {
    let folder = paths::repository().join("fuzz/target/found").join(target.name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// `cargo fuzz run TARGET FOLDERS -- BOUNDS`, not started yet.
fn command(target: &Target, folders: [PathBuf; 2]) -> Outcome<Command> {
    let mut command = of_cargo(fetch::tool("cargo-fuzz")?);
    command.args(["fuzz", "run", target.name]).args(folders).arg("--");
    // Sanitizers are unstable options of the compiler. Looking for leaks needs rights that containers lack.
    command.env("RUSTC_BOOTSTRAP", "1").env("ASAN_OPTIONS", "detect_leaks=0");
    command.arg(format!("-max_len={}", target.input_bytes_max));
    command.arg(format!("-malloc_limit_mb={}", target.allocation_mb_max));
    command.arg(format!("-rss_limit_mb={}", target.memory_mb_max));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    if target.serves {
        let program = bench::release_build()?;
        must(Command::new(&program).args(["pull", "smollm2-135m"]))?;
        command.env("FLINT_BIN", program);
        command.env("FLINT_MODEL", paths::cache()?.join("models/smollm2-135m.gguf"));
        command.arg("-close_fd_mask=2");
    }
    Ok(command)
}

/// Runs one target. Its own words go on to the terminal.
fn fuzz(target: &Target, seconds: u64) -> Outcome<Report> {
    let mut command = command(target, [found(target)?, seeds(target)])?;
    command.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut report = Report { executions: "no".into(), sound: false };
    for line in BufReader::new(child.stderr.take().ok_or("no standard error")?).lines() {
        let line = line?;
        eprintln!("{line}");
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            report.executions = count.trim().into();
        }
    }
    report.sound = child.wait()?.success();
    Ok(report)
}

/// Adds to the seeds the fewest and smallest of what was found that cover what the seeds do not.
fn keep(target: &Target) -> Outcome {
    let mut command = command(target, [seeds(target), found(target)?])?;
    must(command.args(["-set_cover_merge=1", "-use_counters=0"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &str) -> Outcome<Options> {
        options(&args.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments() {
        let gguf = Options { seconds: 60, target: Some("gguf".into()), keep: true };
        assert_eq!(parsed("--target gguf --seconds 60 --keep").unwrap(), gguf);
        for wrong in
            ["", "--seconds", "--seconds x", "--seconds 0", "--target gguf", "60", "--seconds 1 --target"]
        {
            assert_eq!(parsed(wrong).unwrap_err().to_string(), USAGE, "{wrong:?}");
        }
    }

    #[test]
    fn every_target_is_a_program_with_seeds() {
        let manifest = std::fs::read_to_string(paths::repository().join("fuzz/Cargo.toml")).unwrap();
        let named: Vec<&str> =
            manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")).collect();
        assert_eq!(named.len(), TARGETS.len());
        for target in TARGETS {
            assert!(named.contains(&format!("{}.rs\"", target.name).as_str()), "{}", target.name);
            assert!(seeds(&target).is_dir(), "{}", target.name);
        }
    }
}
