//! Real edits: an old file, an instruction, and the new file that it led to.

use crate::{Outcome, eval, paths};
use std::process::Command;

/// Sizes of files that one answer can hold.
const FILE_BYTES: std::ops::Range<usize> = 700..2600;

/// Lines that an edit adds and removes, together.
const CHANGED_LINES: std::ops::RangeInclusive<usize> = 1..=24;

/// Commits that are looked at.
const COMMITS_MAX: usize = 400;

pub struct Trace {
    pub name: String,
    pub language: &'static str,
    pub old: String,
    pub instruction: String,
    pub new: String,
}

impl Trace {
    pub fn prompt(&self) -> String {
        let Trace { language, old, instruction, .. } = self;
        format!(
            "Here is a file:\n\n```{language}\n{old}```\n\n{instruction}\n\nAnswer with the whole new file in one \
             code block, and nothing else."
        )
    }

    /// What a model that makes the edit as it was made would answer.
    pub fn answer(&self) -> String {
        format!("```{}\n{}```", self.language, self.new)
    }

    /// The same file again, word for word.
    pub fn copied(self) -> Trace {
        let instruction = "Repeat it word for word.".to_owned();
        Trace { new: self.old.clone(), instruction, ..self }
    }
}

/// Edits of this repository's own files, spread over its history.
pub fn of_history(count: usize) -> Outcome<Vec<Trace>> {
    let log =
        git(&["log", "--no-merges", "--diff-filter=M", "--format=%H %s", "-n", &COMMITS_MAX.to_string()])?;
    let mut found = Vec::new();
    for line in log.lines() {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        found.extend(of_commit(commit, subject)?);
    }
    let every = (found.len() / count.max(1)).max(1);
    Ok(found.into_iter().step_by(every).take(count).collect())
}

/// The first file of a commit that is small and changed in few lines.
fn of_commit(commit: &str, subject: &str) -> Outcome<Option<Trace>> {
    let parent = format!("{commit}^");
    let changed = git(&["diff", "--numstat", "--diff-filter=M", &parent, commit])?;
    for line in changed.lines() {
        let mut words = line.split('\t');
        let mut count = || words.next().and_then(|count| count.parse::<usize>().ok());
        let (Some(added), Some(removed), Some(path)) = (count(), count(), line.split('\t').nth(2)) else {
            continue;
        };
        let Some(language) = language(path).filter(|_| CHANGED_LINES.contains(&(added + removed))) else {
            continue;
        };
        let (old, new) =
            (git(&["show", &format!("{parent}:{path}")])?, git(&["show", &format!("{commit}:{path}")])?);
        if FILE_BYTES.contains(&new.len()) && !old.contains("```") {
            let (name, instruction) = (format!("{} {path}", &commit[..7]), format!("Change it: {subject}."));
            return Ok(Some(Trace { name, language, old, instruction, new }));
        }
    }
    Ok(None)
}

fn language(path: &str) -> Option<&'static str> {
    match path.rsplit_once('.')?.1 {
        "rs" => Some("rust"),
        "toml" => Some("toml"),
        "py" => Some("python"),
        _ => None,
    }
}

/// Solutions of HumanEval in which the function gets another name.
pub fn of_humaneval(count: usize) -> Outcome<Vec<Trace>> {
    let named = |task: eval::Task| {
        let name = format!("{}_of_input", task.entry_point);
        let old = format!("{}{}", task.prompt, task.canonical_solution);
        Trace {
            new: old.replace(&task.entry_point, &name),
            instruction: format!("Rename the function `{}` to `{name}`.", task.entry_point),
            name: task.task_id,
            language: "python",
            old,
        }
    };
    let traces = eval::tasks()?.into_iter().map(named);
    Ok(traces.filter(|trace| FILE_BYTES.contains(&trace.old.len())).take(count).collect())
}

fn git(args: &[&str]) -> Outcome<String> {
    let output = Command::new("git").current_dir(paths::repository()).args(args).output()?;
    match output.status.success() {
        // The first commit has no parent: nothing was edited there.
        false => Ok(String::new()),
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
    }
}
