//! `cargo xtask eval edits`: does the agent, with a real model, change files so that they are right?
//!
//! Each task is a folder of `tests/edits`: what to do and how it is checked (`task.toml`), the files before, and those of a
//! right answer after. The check fails before and passes after; that it does is shown here first.

use crate::{Outcome, paths};
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const USAGE: &str =
    "usage: cargo xtask eval edits [--only TEXT] [--model NAME|PATH] [--at-least N] [--bin PATH] [--json]";

const TIME_S: &str = "600";

#[derive(Deserialize)]
struct Task {
    prompt: String,
    verify: String,
}

struct Args {
    only: String,
    model: Option<String>,
    at_least: usize,
    bin: PathBuf,
    json: bool,
}

/// What came of a task.
struct Report {
    name: String,
    solved: bool,
    took: Duration,
    tokens_in: u64,
    tokens_out: u64,
    tokens_a_second: f64,
}

pub fn run(args: &[String]) -> Outcome {
    let args = parse(args)?;
    let folder = paths::repository().join("tests/edits");
    let mut names: Vec<String> = fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains(&args.only))
        .collect();
    names.sort();
    let work = paths::cache()?.join("edits").join(std::process::id().to_string());
    let mut reports = Vec::new();
    for name in names {
        let report = attempt(&args, &folder.join(&name), &work.join(&name), name)?;
        if !args.json {
            println!("{}", line(&report));
        }
        reports.push(report);
    }
    fs::remove_dir_all(&work)?;
    let solved = reports.iter().filter(|report| report.solved).count();
    match args.json {
        true => println!("{}", Value::from_iter(reports.iter().map(json))),
        false => println!("solved {solved} of {}", reports.len()),
    }
    match solved >= args.at_least {
        true => Ok(()),
        false => Err(format!("{solved} tasks were solved, fewer than {}", args.at_least).into()),
    }
}

fn attempt(args: &Args, task: &Path, work: &Path, name: String) -> Outcome<Report> {
    let Task { prompt, verify } = toml::from_str(&fs::read_to_string(task.join("task.toml"))?)?;
    for (more, passes) in [(None, false), (Some("after"), true)] {
        copy(&task.join("before"), work)?;
        more.map_or(Ok(()), |more| copy(&task.join(more), work))?;
        if check(&verify, work)? != passes {
            let when = if passes { "after the right change" } else { "before any change" };
            return Err(format!("{name}: the check is wrong {when}").into());
        }
        fs::remove_dir_all(work)?;
    }
    copy(&task.join("before"), work)?;
    let began = Instant::now();
    let mut agent = Command::new(&args.bin);
    agent.args(["exec", "--json", "--timeout", TIME_S, "--verify", &verify]);
    agent.args(args.model.iter().flat_map(|model| ["-m", model]));
    let output = agent.arg(&prompt).current_dir(work).stdin(Stdio::null()).output()?;
    let took = began.elapsed();
    let last = String::from_utf8_lossy(&output.stdout);
    let last: Value =
        last.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    let count = |key: &str| last["usage"][key].as_u64().unwrap_or(0);
    Ok(Report {
        name,
        // Whatever the agent says.
        solved: check(&verify, work)?,
        took,
        tokens_in: count("input_tokens"),
        tokens_out: count("output_tokens"),
        tokens_a_second: last["flint"]["tokens_per_second"].as_f64().unwrap_or(0.0),
    })
}

fn check(verify: &str, folder: &Path) -> Outcome<bool> {
    let mut command = Command::new("sh");
    command.args(["-c", verify]).current_dir(folder);
    Ok(command.stdin(Stdio::null()).output()?.status.success())
}

fn copy(from: &Path, to: &Path) -> Outcome {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

fn line(report: &Report) -> String {
    let verdict = if report.solved { "solved" } else { "not solved" };
    format!(
        "{:16} {verdict:10} {:5.1} s  {:6} tokens in  {:5} out  {:4.0} tok/s",
        report.name,
        report.took.as_secs_f64(),
        report.tokens_in,
        report.tokens_out,
        report.tokens_a_second
    )
}

fn json(report: &Report) -> Value {
    serde_json::json!({"name": report.name, "solved": report.solved, "seconds": report.took.as_secs_f64(),
        "tokens_in": report.tokens_in, "tokens_out": report.tokens_out,
        "tokens_per_second": report.tokens_a_second})
}

fn parse(args: &[String]) -> Outcome<Args> {
    let mut rest = args.iter().map(String::as_str);
    let bin = paths::repository().join("target/release/flint");
    let mut parsed = Args { only: String::new(), model: None, at_least: 0, bin, json: false };
    while let Some(option) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{option} needs a value\n{USAGE}"));
        match option {
            "--only" => parsed.only = value()?.to_owned(),
            "--model" => parsed.model = Some(value()?.to_owned()),
            "--at-least" => parsed.at_least = value()?.parse()?,
            "--bin" => parsed.bin = value()?.into(),
            "--json" => parsed.json = true,
            other => return Err(format!("there is no option {other:?}\n{USAGE}").into()),
        }
    }
    match parsed.bin.is_file() {
        true => Ok(parsed),
        false => Err(format!("{} is missing: cargo build --release", parsed.bin.display()).into()),
    }
}
