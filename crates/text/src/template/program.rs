//! A template's program, compiled once, on a thread of its own.
//!
//! Values that a program nests as deep as its fuel allows are dropped, compared and printed by recursion:
//! `RENDER_STACK_BYTES` of stack is room for that, and only this thread has it.

use super::{meter, python};
use crate::error::TextError;
use crate::limits::RENDER_STACK_BYTES;
use minijinja::machinery::{CompiledTemplate, TemplateConfig, eval, make_string_output};
use minijinja::{AutoEscape, Environment, ErrorKind, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

/// What one run of the program is given.
pub(super) struct Run {
    pub(super) context: Value,
    pub(super) parts: usize, // messages and tools in it
    pub(super) now_unix_s: i64,
}

/// Why there is no text.
pub(super) struct Fault {
    pub(super) refused: bool, // by the template itself: `problem` is its reason
    pub(super) line: usize,
    pub(super) problem: String,
}

impl Fault {
    fn new(problem: &str) -> Fault {
        Fault { refused: false, line: 1, problem: problem.to_owned() }
    }
}

struct Job {
    run: Run,
    answer: SyncSender<Result<String, Fault>>,
}

#[derive(Debug)]
pub(super) struct Program {
    jobs: Option<Sender<Job>>, // none only while it is dropped
    thread: Option<JoinHandle<()>>,
}

impl Program {
    /// Compiles the source, here to know that it can be, and again where it will run.
    pub(super) fn new(source: String) -> Result<Program, TextError> {
        compile(&source)?;
        let (jobs, queue) = channel();
        let thread = std::thread::Builder::new().name("template".into()).stack_size(RENDER_STACK_BYTES);
        let thread = thread.spawn(move || work(&source, &queue)).map_err(|error| TextError::Template {
            line: 1,
            problem: format!("no thread to render it on: {error}"),
        })?;
        Ok(Program { jobs: Some(jobs), thread: Some(thread) })
    }

    pub(super) fn run(&self, run: Run) -> Result<String, Fault> {
        let failed = || Fault::new("the template engine failed");
        let (answer, answered) = sync_channel(1);
        let jobs = self.jobs.as_ref().ok_or_else(failed)?;
        jobs.send(Job { run, answer }).map_err(|_| failed())?;
        answered.recv().map_err(|_| failed())?
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Without senders the thread comes to its end, and its stack is given back before another is taken.
        self.jobs = None;
        self.thread.take().map(JoinHandle::join);
    }
}

/// Runs one job after the other until nobody can send another.
fn work(source: &str, queue: &Receiver<Job>) {
    let Ok(mut compiled) = compile(source) else { return };
    meter::meter_operators(&mut compiled);
    let now_unix_s = Arc::new(AtomicI64::new(0));
    let mut env = python::environment(now_unix_s.clone());
    while let Ok(Job { run, answer }) = queue.recv() {
        now_unix_s.store(run.now_unix_s, Ordering::Relaxed);
        env.set_fuel(Some(meter::fuel(&compiled, run.parts)));
        let outcome = catch_unwind(AssertUnwindSafe(|| evaluate(&env, &compiled, run.context)));
        // Who asked may have given up.
        let _ = answer.send(outcome.unwrap_or_else(|_| Err(Fault::new("the template engine failed"))));
    }
}

fn evaluate(env: &Environment, compiled: &CompiledTemplate, context: Value) -> Result<String, Fault> {
    let mut rendered = String::new();
    let mut output = make_string_output(&mut rendered);
    let CompiledTemplate { instructions, blocks, .. } = compiled;
    match eval(env, instructions, context, blocks, &mut output, AutoEscape::None) {
        Ok(_) => Ok(rendered),
        Err(error) => Err(fault(&error)),
    }
}

fn compile(source: &str) -> Result<CompiledTemplate<'_>, TextError> {
    let config = TemplateConfig {
        syntax_config: python::syntax(),
        default_auto_escape: Arc::new(|_| AutoEscape::None),
    };
    CompiledTemplate::new("chat template", source, &config)
        .map_err(|error| TextError::Template { line: error.line().unwrap_or(1), problem: describe(&error) })
}

/// A fault of the template, or its own refusal of the conversation.
fn fault(error: &minijinja::Error) -> Fault {
    let line = error.line().unwrap_or(1);
    match error.detail().and_then(|detail| detail.strip_prefix(python::REFUSAL)) {
        Some(reason) => Fault { refused: true, line, problem: reason.to_owned() },
        None => Fault { refused: false, line, problem: describe(error) },
    }
}

fn describe(error: &minijinja::Error) -> String {
    match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too many steps".into(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    }
}
