//! `flint exec --tasks FILE`: the steps of a list in one session, a turn each, each on the model that it is for.

use super::{exec, router, session};
use crate::args::{ExecArgs, ModelArgs};
use crate::config::Config;
use crate::error::CliError;
use flint_agent::headless::{self, Audience, Ending, code};
use flint_agent::limits::TASKS_BYTES_MAX;
use flint_agent::talk::{Event, Figures, Order};
use flint_agent::tasks::{Step, Tasks};
use serde_json::json;
use std::fs::File;
use std::io::{self, Read, stdin};
use std::path::Path;
use tokio::sync::mpsc;

/// A step that was come to, and what it took.
struct Done {
    number: usize,
    figures: Figures,
    result: String,
}

pub fn run(config: &Config, model: &ModelArgs, args: &ExecArgs, file: &Path) -> Result<Ending, CliError> {
    let list = Tasks::parse(&read(file)?)
        .map_err(|error| CliError::Usage(format!("{}: {error}", file.display())))?;
    let (mut scene, headless) = exec::scene(config, model, args)?;
    let choices = router::choices(config, model, &headless, &scene, &list.steps)?;
    let provider = router::provider(config, model, &mut scene, &choices)?;
    let setup = router::with(choices, scene.setup(config, provider, session::new(config)?)?);
    let mut done = Vec::new();
    let ending = exec::run(setup, args, async |orders, events, audience| {
        let mut steps = Steps { list: &list, args, done: &mut done };
        steps.run(orders, events, audience).await
    })?;
    tell(&list, &done);
    Ok(ending)
}

fn read(file: &Path) -> Result<String, CliError> {
    let io = || CliError::io(file.display().to_string());
    let from: Box<dyn Read> = match file.to_str() {
        Some("-") => Box::new(stdin()),
        _ => Box::new(File::open(file).map_err(io())?),
    };
    let mut text = String::new();
    from.take(TASKS_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(io())?;
    Ok(text)
}

/// Until the session is told: it comes before its steps.
async fn began(events: &mut mpsc::Receiver<Event>, audience: &mut (dyn Audience + Send)) -> io::Result<()> {
    while let Some(event) = events.recv().await {
        audience.hear(&event)?;
        if matches!(event, Event::Began { .. }) {
            break;
        }
    }
    Ok(())
}

struct Steps<'a> {
    list: &'a Tasks,
    args: &'a ExecArgs,
    done: &'a mut Vec<Done>,
}

impl Steps<'_> {
    /// The last step's words, with the exit code of the first that failed.
    async fn run(
        &mut self,
        orders: mpsc::Sender<Order>,
        events: &mut mpsc::Receiver<Event>,
        audience: &mut (dyn Audience + Send),
    ) -> io::Result<Ending> {
        let message = "every step of the list is ticked off already".to_owned();
        let mut last = Ending { code: code::OK, message, figures: Figures::default(), trouble: None };
        let mut failed = None;
        began(events, audience).await?;
        for (number, step) in (1..).zip(&self.list.steps) {
            if step.done {
                self.ended(number, Figures::default(), code::OK, "ticked off already".to_owned());
                continue;
            }
            self.begins(number, step);
            // An agent that is gone closes its events too.
            let _ = orders.send(Order::Route { to: step.to }).await;
            last = headless::run(self.list.said(step), orders.clone(), events, audience).await?;
            let trouble = last.trouble.as_deref().and_then(|trouble| trouble.lines().next());
            let result = trouble.map_or_else(|| "done".to_owned(), |trouble| format!("failed: {trouble}"));
            self.ended(number, last.figures.clone(), last.code, result);
            if last.code == code::OK {
                continue;
            }
            let trouble = last.trouble.as_ref().map(|trouble| format!("step {number}: {trouble}"));
            failed.get_or_insert((last.code, trouble));
            if !self.args.keep_going || last.code == code::INTERRUPTED {
                break;
            }
        }
        if let Some((code, trouble)) = failed {
            (last.code, last.trouble) = (code, trouble);
        }
        Ok(last)
    }

    fn begins(&self, number: usize, step: &Step) {
        let of = self.list.steps.len();
        match self.args.json {
            true => println!(
                "{}",
                json!({"type": "flint.step.started", "step": number, "of": of, "line": step.line,
                    "tag": step.to.map(|to| to.to_string()), "text": step.text})
            ),
            false => eprintln!("== step {number} of {of}: {}", headless::plain(step.title())),
        }
    }

    fn ended(&mut self, number: usize, figures: Figures, code: u8, result: String) {
        if self.args.json {
            let model = figures.served.as_ref().map(|served| &served.model);
            println!(
                "{}",
                json!({"type": "flint.step.completed", "step": number, "model_served": model, "exit_code": code,
                    "result": result, "tokens_in": figures.tokens_in, "tokens_out": figures.tokens_out,
                    "seconds": figures.took.as_secs_f64()})
            );
        }
        self.done.push(Done { number, figures, result });
    }
}

/// Each step in a line: by whom, for how much, in which time, and what came of it.
fn tell(list: &Tasks, done: &[Done]) {
    let model = |done: &Done| {
        done.figures.served.as_ref().map_or("-".to_owned(), |served| headless::plain(&served.model))
    };
    let wide = done.iter().map(|done| model(done).chars().count()).max().unwrap_or(0).max(5);
    eprintln!("step  {:wide$}  tokens in  tokens out  seconds  result", "model");
    for one in done {
        let (tokens_in, tokens_out) = (one.figures.tokens_in, one.figures.tokens_out);
        let seconds = one.figures.took.as_secs_f32();
        let result = headless::plain(&one.result);
        eprintln!(
            "{:4}  {:wide$}  {tokens_in:9}  {tokens_out:10}  {seconds:7.1}  {result}",
            one.number,
            model(one)
        );
    }
    let left = list.steps.len() - done.len();
    if left > 0 {
        eprintln!("{left} more were not begun");
    }
}
