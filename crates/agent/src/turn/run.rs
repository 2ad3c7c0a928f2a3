//! What is done for a call: asked for where it must be, shown while it runs, and told to the model.

use super::call::{Call, Shell, Task};
use super::{Stop, Turn};
use crate::agent::{Agent, Waiting};
use crate::approve::{Verdict, split};
use crate::facts::Fact;
use crate::files::{self, Change};
use crate::history::Record;
use crate::rewind;
use crate::rules::{Rule, Scope};
use crate::talk::{Asked, Decision, Event, Failure, How, Item, Order, Progress, Question, What};
use crate::tools::{self, Ran, ShellCall, ToolError};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

const COMMAND_TIME: Duration = Duration::from_secs(120);

/// Folders below the one that is listed.
const LIST_DEPTH: usize = 2;

/// Pieces of output that wait to be shown.
const PIECES_MAX: usize = 256;

/// What a person or a rule says to a call.
enum Word {
    Yes,
    No(String),
}

impl Agent {
    /// Does what a call asks for. Returns what the model is told.
    pub(super) async fn make_call(&mut self, call: &Call, turn: &mut Turn) -> Result<String, Stop> {
        match call.task() {
            Task::Shell(shell) => self.shell(call, shell).await,
            Task::Edit { path, old, new } => {
                let workshop = self.workshop.clone();
                let edited = blocking(move || workshop.edit(&path, &old, &new)).await;
                match edited {
                    Ok(edited) => {
                        let note = (edited.places > 1).then(|| {
                            format!("The old text stands in {} places; the first was changed.", edited.places)
                        });
                        self.change(call, edited.changes, note, turn).await
                    }
                    Err(error) => self.refuse_change(call, error.to_string()).await,
                }
            }
            Task::Patch { patch } => match self.patched(&patch) {
                Ok(changes) => self.change(call, changes, None, turn).await,
                Err(why) => self.refuse_change(call, why).await,
            },
            Task::Read { path, first_line, lines } => {
                let (workshop, about) = (self.workshop.clone(), path.clone());
                let text = blocking(move || workshop.read(&path, first_line, lines)).await;
                if text.is_ok() {
                    self.has_seen(about.clone());
                }
                self.looked(call, about, text).await
            }
            Task::Search { pattern, path } => {
                let (workshop, about) = (self.workshop.clone(), pattern.clone());
                let found = blocking(move || workshop.search(&pattern, path.as_deref(), None)).await;
                self.looked(call, about, found).await
            }
            Task::List { path } => {
                let (workshop, about) = (self.workshop.clone(), path.clone().unwrap_or_else(|| ".".into()));
                let listed = blocking(move || workshop.list(path.as_deref(), LIST_DEPTH)).await;
                self.looked(call, about, listed).await
            }
            Task::Plan { steps } => {
                self.tell(Event::ItemEnded(Item { id: call.id.clone(), what: What::Plan { steps } })).await;
                Ok("The plan is shown.".to_owned())
            }
            Task::Delegate(wanted) => self.delegate(call, wanted).await,
            Task::Nonsense { why } => {
                let what = What::Trouble { message: why.clone() };
                self.tell(Event::ItemEnded(Item { id: call.id.clone(), what })).await;
                Ok(format!("Nothing was done: {why}."))
            }
        }
    }

    async fn looked(
        &mut self,
        call: &Call,
        about: String,
        found: Result<String, ToolError>,
    ) -> Result<String, Stop> {
        let (output, progress) = match found {
            Ok(output) => (output, Progress::Done),
            Err(error) => (error.to_string(), Progress::Failed),
        };
        let what = What::Look { tool: call.name.clone(), about, output: output.clone(), progress };
        self.tell(Event::ItemEnded(Item { id: call.id.clone(), what })).await;
        Ok(output)
    }

    async fn shell(&mut self, call: &Call, shell: Shell) -> Result<String, Stop> {
        let timeout = shell.timeout_s.map_or(COMMAND_TIME, Duration::from_secs);
        let mut wanted =
            ShellCall { command: shell.command, workdir: None, timeout, unconfined: shell.unconfined };
        if let Word::No(why) = self.may_run(call, &wanted).await? {
            return self.declined(call, &wanted.command, why).await;
        }
        let mut ran = self.run_command(&call.id, &wanted).await?;
        if let Some(verdict) = self.approvals.judge_again(&wanted, &ran) {
            wanted.unconfined = true;
            if let Word::Yes = self.weigh(call, &wanted, verdict).await? {
                ran = self.run_command(&call.id, &wanted).await?;
            }
        }
        self.fact(Fact::Ran { command: wanted.command, code: ran.code })?;
        Ok(told(&ran))
    }

    /// Runs a command and shows what it writes. A person who interrupts ends it, and the turn.
    pub(super) async fn run_command(&mut self, id: &str, wanted: &ShellCall) -> Result<Ran, Stop> {
        let what = |ran: Option<&Ran>| What::Command {
            command: wanted.command.clone(),
            output: ran.map_or_else(String::new, |ran| ran.output.clone()),
            code: ran.and_then(|ran| ran.code),
            took: ran.map_or(Duration::ZERO, |ran| ran.took),
            progress: match ran {
                None => Progress::Running,
                Some(ran) if ran.code == Some(0) => Progress::Done,
                Some(_) => Progress::Failed,
            },
        };
        self.tell(Event::ItemBegan(Item { id: id.to_owned(), what: what(None) })).await;
        let (pieces, mut written) = mpsc::channel::<String>(PIECES_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let (workshop, call, flag) = (self.workshop.clone(), wanted.clone(), stop.clone());
        let running = tokio::task::spawn_blocking(move || {
            let mut out = |text: &str| {
                // Nobody looks: the command goes on all the same.
                let _ = pieces.blocking_send(text.to_owned());
            };
            workshop.shell(&call, &mut out, &flag)
        });
        let mut stopped = None;
        loop {
            tokio::select! {
                piece = written.recv() => match piece {
                    Some(text) => self.tell(Event::ItemGrew { id: id.to_owned(), text }).await,
                    None => break,
                },
                order = self.orders.recv(), if stopped.is_none() => {
                    stopped = self.order_while_running(order).await?;
                    stop.store(stopped.is_some(), Ordering::Relaxed);
                }
            }
        }
        let ran = match running.await {
            Ok(Ok(ran)) => ran,
            Ok(Err(error)) => not_run(&error),
            Err(error) => return Err(Stop::Failed(Failure::Turn(error.to_string()))),
        };
        self.tell(Event::ItemEnded(Item { id: id.to_owned(), what: what(Some(&ran)) })).await;
        stopped.map_or(Ok(ran), Err)
    }

    /// An order while a tool runs; a stop if it says so.
    pub(super) async fn order_while_running(&mut self, order: Option<Order>) -> Result<Option<Stop>, Stop> {
        match order {
            None | Some(Order::End) => return Ok(Some(Stop::Ended)),
            Some(Order::Interrupt) => return Ok(Some(Stop::Interrupted)),
            Some(Order::Steer { number, text }) => {
                self.log.record(&Record::Waiting { number, text: text.clone() })?;
                self.hold(Waiting { number, text, how: How::Steered }).await;
            }
            Some(order) => self.at_any_time(order).await?,
        }
        Ok(None)
    }

    async fn may_run(&mut self, call: &Call, wanted: &ShellCall) -> Result<Word, Stop> {
        self.weigh(call, wanted, self.approvals.judge(wanted)).await
    }

    async fn weigh(&mut self, call: &Call, wanted: &ShellCall, verdict: Verdict) -> Result<Word, Stop> {
        match verdict {
            Verdict::Run => Ok(Word::Yes),
            Verdict::Refuse { why } => Ok(Word::No(why)),
            Verdict::Ask { why, rules } => {
                let argv = split(&wanted.command).ok().and_then(|all| all.into_iter().next());
                let argv = argv.map(|simple| simple.argv).unwrap_or_default();
                let shown = wanted.command.clone();
                let what = Asked::Command { argv, shown, unconfined: wanted.unconfined };
                self.ask_person(Question { item: call.id.clone(), who: None, what, why, rules }).await
            }
        }
    }

    async fn may_change(&mut self, call: &Call, changes: &[Change]) -> Result<Word, Stop> {
        match self.approvals.judge_files(changes, self.workshop.folder()) {
            Verdict::Run => Ok(Word::Yes),
            Verdict::Refuse { why } => Ok(Word::No(why)),
            Verdict::Ask { why, rules } => {
                let what = Asked::Files { changes: tools::diffs(changes) };
                self.ask_person(Question { item: call.id.clone(), who: None, what, why, rules }).await
            }
        }
    }

    /// Waits for a decision. Other orders are taken meanwhile.
    async fn ask_person(&mut self, question: Question) -> Result<Word, Stop> {
        let item = question.item.clone();
        self.tell(Event::Asked(question)).await;
        loop {
            match self.orders.recv().await {
                Some(Order::Decide { item: about, decision }) if about == item => {
                    return Ok(match decision {
                        Decision::Yes => Word::Yes,
                        Decision::Always(rule) => {
                            self.remember(rule).await;
                            Word::Yes
                        }
                        Decision::No { why } => {
                            Word::No(why.unwrap_or_else(|| "the user said no".to_owned()))
                        }
                    });
                }
                order => {
                    if let Some(stop) = self.order_while_running(order).await? {
                        return Err(stop);
                    }
                }
            }
        }
    }

    /// A rule holds from now on, and for its project in later sessions too.
    async fn remember(&mut self, rule: Rule) {
        if rule.scope == Scope::Project {
            let saved = self.book.save(&self.project, &rule, SystemTime::now());
            if let Err(error) = saved {
                let text = format!("the rule holds for this session only: {error}");
                self.tell(Event::Notice { text }).await;
            }
        }
        self.approvals.rules.add(rule);
    }

    async fn declined(&mut self, call: &Call, command: &str, why: String) -> Result<String, Stop> {
        let what = What::Command {
            command: command.to_owned(),
            output: why.clone(),
            code: None,
            took: Duration::ZERO,
            progress: Progress::Declined,
        };
        self.tell(Event::ItemEnded(Item { id: call.id.clone(), what })).await;
        Ok(format!("The command was not run: {why}."))
    }

    fn patched(&self, patch: &str) -> Result<Vec<Change>, String> {
        let edits = crate::patch::parse(patch).map_err(|error| error.to_string())?;
        crate::patch::changes(self.workshop.root(), &edits).map_err(|error| error.to_string())
    }

    async fn refuse_change(&mut self, call: &Call, why: String) -> Result<String, Stop> {
        let what = What::Trouble { message: format!("{} failed: {why}", call.name) };
        self.tell(Event::ItemEnded(Item { id: call.id.clone(), what })).await;
        Ok(format!("Nothing was changed: {why}"))
    }

    /// Changes files, all or none.
    pub(super) async fn change(
        &mut self,
        call: &Call,
        changes: Vec<Change>,
        note: Option<String>,
        turn: &mut Turn,
    ) -> Result<String, Stop> {
        let shown = |progress| {
            let what = What::Files { changes: tools::diffs(&changes), progress };
            Event::ItemEnded(Item { id: call.id.clone(), what })
        };
        if let Word::No(why) = self.may_change(call, &changes).await? {
            self.tell(shown(Progress::Declined)).await;
            return Ok(format!("Nothing was changed: {why}."));
        }
        self.diagnosed_before().await?;
        // Those of other agents that came before, before these.
        turn.changed |= self.take_changes()?;
        let (workshop, wanted) = (self.workshop.clone(), changes.clone());
        // What was and what will be are on disk before the first file is touched: whatever happens then can be undone.
        let saved: Vec<_> = changes.iter().filter_map(rewind::saved).collect();
        self.log.record(&Record::Files { changes: saved.clone() })?;
        if let Err(error) = blocking(move || files::make(workshop.root(), &wanted)).await {
            self.log.record(&Record::NotMade { files: saved.len() })?;
            return self.refuse_change(call, error.to_string()).await;
        }
        if let Some(journal) = &self.journal {
            journal.add(&saved);
        }
        self.rewind.changed(saved);
        turn.changed = true;
        for change in &changes {
            let sha256 = change.after.as_ref().map(|(content, _)| hex(&Sha256::digest(content)));
            let path = change.name.path().display().to_string();
            self.has_seen(path.clone());
            self.fact(Fact::Changed { path, sha256 })?;
        }
        self.tell(shown(Progress::Done)).await;
        let names: Vec<String> = changes.iter().map(|change| change.name.to_string()).collect();
        let note = note.map(|note| format!(" {note}")).unwrap_or_default();
        // A file that was written whole has no call to be the result of, and its check follows.
        let found = if call.call_id.is_empty() { None } else { self.diagnosed().await? };
        let found = found.map(|found| format!("\n{found}")).unwrap_or_default();
        Ok(format!("Done: {} changed.{note}{found}", names.join(", ")))
    }

    pub(super) fn fact(&mut self, fact: Fact) -> Result<(), Stop> {
        self.log.record(&Record::Fact { fact: fact.clone() })?;
        self.facts.push(fact);
        Ok(())
    }
}

/// What the model is told of a command.
fn told(ran: &Ran) -> String {
    let end = match (ran.code, ran.timed_out) {
        (_, true) => format!("It was ended after {:.0} s.", ran.took.as_secs_f32()),
        (Some(code), false) => format!("Exit code {code}."),
        (None, false) => "It was ended.".to_owned(),
    };
    let notes: String = ran.notes.iter().map(|note| format!("\n{note}")).collect();
    match ran.output.trim_end() {
        "" => format!("{end} No output.{notes}"),
        output => format!("{output}\n{end}{notes}"),
    }
}

fn not_run(error: &ToolError) -> Ran {
    Ran {
        code: None,
        output: error.to_string(),
        took: Duration::ZERO,
        timed_out: false,
        stopped: false,
        denied: false,
        notes: Vec::new(),
    }
}

/// In a thread where waiting stops nobody.
pub(crate) async fn blocking<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        // A panic of a tool is a panic of the agent.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
