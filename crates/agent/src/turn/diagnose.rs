//! After an edit: what a compiler or linter says now that it did not say before, in the edit's own result.
//!
//! What it said before the first edit is found out while the first answer is written. No request waits for it; an edit does,
//! since afterwards it could not be told any more.

use super::Stop;
use crate::agent::Agent;
use crate::diagnose::Found;
use crate::limits::{DIAGNOSTICS_BYTES_MAX, DIAGNOSTICS_MAX, DIAGNOSTICS_SECONDS_MAX};
use crate::talk::{Event, Failure, Item, Progress, What};
use crate::tools::{ShellCall, Workshop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How far the session is with it.
#[derive(Debug, Default)]
pub(crate) enum Diagnosis {
    #[default]
    NotBegun,
    Looking(Looking),
    Known(Known),
    /// The command cannot be run, which was told.
    GivenUp,
}

#[derive(Debug)]
pub(crate) struct Known {
    first: Found, // before the first edit
    last: Found,  // after the last one
}

/// A run of the command. It is stopped when nobody waits for it any more.
#[derive(Debug)]
pub(crate) struct Looking {
    run: JoinHandle<Result<Seen, String>>,
    stop: Arc<AtomicBool>,
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What one run said.
#[derive(Debug)]
struct Seen {
    found: Found,
    code: Option<i32>,
    last_line: String,
}

impl Agent {
    /// Begins to look how things are before anything is changed.
    pub(super) fn begin_diagnosis(&mut self) {
        if matches!(self.diagnosis, Diagnosis::NotBegun)
            && let Some(command) = &self.settings.diagnostics
        {
            self.diagnosis = Diagnosis::Looking(begin(self.workshop.clone(), command.clone()));
        }
    }

    /// Before an edit: how things are is known.
    pub(super) async fn diagnosed_before(&mut self) -> Result<(), Stop> {
        self.begin_diagnosis();
        let looking = match std::mem::take(&mut self.diagnosis) {
            Diagnosis::Looking(looking) => looking,
            other @ (Diagnosis::NotBegun | Diagnosis::Known(_) | Diagnosis::GivenUp) => {
                self.diagnosis = other;
                return Ok(());
            }
        };
        // An edit that is interrupted here was not made; the next one looks again.
        let seen = self.wait_for(looking).await?;
        self.diagnosis = match seen {
            Ok(Seen { found, .. }) => Diagnosis::Known(Known { first: found.clone(), last: found }),
            Err(why) => self.give_up_diagnosis(&why).await,
        };
        Ok(())
    }

    /// After an edit: what is new, as the model is told it. None: nothing can be said.
    pub(super) async fn diagnosed(&mut self) -> Result<Option<String>, Stop> {
        let (Diagnosis::Known(_), Some(command)) = (&self.diagnosis, self.settings.diagnostics.clone())
        else {
            return Ok(None);
        };
        let seen = self.wait_for(begin(self.workshop.clone(), command.clone())).await?;
        let seen = match seen {
            Ok(seen) => seen,
            Err(why) => {
                self.diagnosis = self.give_up_diagnosis(&why).await;
                return Ok(None);
            }
        };
        let Diagnosis::Known(known) = &mut self.diagnosis else { return Ok(None) };
        let output = known.take(seen, &command);
        let id = format!("diagnostics_{}", self.log.items().len());
        let (tool, progress) = ("diagnostics".to_owned(), Progress::Done);
        let what = What::Look { tool, about: command, output: output.clone(), progress };
        self.tell(Event::ItemEnded(Item { id, what })).await;
        Ok(Some(output))
    }

    async fn give_up_diagnosis(&mut self, why: &str) -> Diagnosis {
        let command = self.settings.diagnostics.as_deref().unwrap_or_default();
        let text = format!("diagnostics_command `{command}` is not used in this session: {why}");
        self.tell(Event::Notice { text }).await;
        Diagnosis::GivenUp
    }

    /// To the end of a run, unless a person stops the turn.
    async fn wait_for(&mut self, mut looking: Looking) -> Result<Result<Seen, String>, Stop> {
        let seen = self.meanwhile(&mut looking.run).await?;
        seen.map_err(|error| Stop::Failed(Failure::Turn(error.to_string())))
    }
}

impl Known {
    /// What an edit changed, in words.
    fn take(&mut self, seen: Seen, command: &str) -> String {
        let Seen { found, code, last_line } = seen;
        if let Some(code) = code.filter(|code| *code != 0 && found.all.is_empty()) {
            // Nothing that could be read is not the same as nothing.
            return format!("diagnostics: `{command}` ended with exit code {code}: {last_line}");
        }
        let delta = found.since(&self.last);
        let mut told = delta.to_string();
        let still = found.since(&self.first).new.len().saturating_sub(delta.new.len());
        if still > 0 {
            told += &format!("still there from earlier edits: {still}\n");
        }
        if found.cut || self.last.cut {
            told += &format!("only the first {DIAGNOSTICS_MAX} were compared\n");
        }
        self.last = found;
        told.trim_end().to_owned()
    }
}

fn begin(workshop: Arc<Workshop>, command: String) -> Looking {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let run = tokio::task::spawn_blocking(move || look(&workshop, command, &flag));
    Looking { run, stop }
}

/// One run, or why there was none.
fn look(workshop: &Workshop, command: String, stop: &AtomicBool) -> Result<Seen, String> {
    let timeout = Duration::from_secs(DIAGNOSTICS_SECONDS_MAX);
    let call = ShellCall { command, workdir: None, timeout, unconfined: false };
    let mut said = String::new();
    let mut out = |text: &str| {
        if said.len() < DIAGNOSTICS_BYTES_MAX {
            said += text;
        }
    };
    let ran = workshop.shell(&call, &mut out, stop).map_err(|error| error.to_string())?;
    let last_line =
        said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing").to_owned();
    match ran.code {
        _ if ran.timed_out => Err(format!("it took longer than {DIAGNOSTICS_SECONDS_MAX} s")),
        // What a shell says of a program that is not there, or is none.
        Some(126 | 127) => Err(last_line),
        code => Ok(Seen { found: Found::read(&said, workshop.folder()), code, last_line }),
    }
}
