//! Rules of projects, in one file of the person's own: a line of JSON each, with the project's folder.
//!
//! A repository cannot bring rules along: the file is never read from within a project, and only if nobody else can write
//! it. A line that says nothing is named and passed over; it stays where it is.

use crate::limits::{RULE_WORDS_MAX, RULES_BYTES_MAX, RULES_MAX};
use crate::rules::{Rule, Scope, Word};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone)]
pub struct Book {
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum BookError {
    #[error("{path:?} lies within {project:?}: rules are not read from a project")]
    WithinProject { path: PathBuf, project: PathBuf },
    #[error("{0:?} is not read: it must be a file that nobody else can write; `chmod 600` makes it one")]
    Writable(PathBuf),
    #[error("{0:?} has more than {RULES_BYTES_MAX} bytes or {RULES_MAX} rules: take out what is not needed")]
    Full(PathBuf),
    #[error("{0:?} is not UTF-8: there can be no rules for it")]
    NotText(PathBuf),
    #[error("the rule {0} is too wide to be kept")]
    Open(Rule),
    #[error("{path:?}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// A line of the file.
struct Entry {
    project: String,
    rule: Rule,
}

impl Book {
    pub fn new(path: PathBuf) -> Book {
        Book { path }
    }

    /// The rules of a project that still hold, and what is wrong with the file.
    pub fn load(&self, project: &Path, now: SystemTime) -> Result<(Vec<Rule>, Vec<String>), BookError> {
        let project = self.project(project)?;
        let (mut rules, mut faults) = (Vec::new(), Vec::new());
        for (index, line) in self.text()?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match parse(line) {
                Ok(entry) if entry.project == project && entry.rule.holds(now) => rules.push(entry.rule),
                Ok(_) => {}
                Err(fault) => {
                    faults.push(format!("{:?}, line {}: {fault}: it is passed over", self.path, index + 1));
                }
            }
        }
        match rules.len() > RULES_MAX {
            true => Err(BookError::Full(self.path.clone())),
            false => Ok((rules, faults)),
        }
    }

    /// Writes a rule of a project down, in place of an earlier one for the same. One of a session is not kept.
    pub fn save(&self, project: &Path, rule: &Rule, now: SystemTime) -> Result<(), BookError> {
        if rule.is_open() {
            return Err(BookError::Open(rule.clone()));
        }
        match rule.scope {
            Scope::Session => Ok(()),
            Scope::Project => self.change(project, rule, Some(rule), now),
        }
    }

    pub fn forget(&self, project: &Path, rule: &Rule, now: SystemTime) -> Result<(), BookError> {
        self.change(project, rule, None, now)
    }

    fn change(
        &self,
        project: &Path,
        old: &Rule,
        new: Option<&Rule>,
        now: SystemTime,
    ) -> Result<(), BookError> {
        let project = self.project(project)?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(|source| self.io(source))?;
        let _lock = self.lock()?;
        let goes = |line: &str| match parse(line) {
            Ok(Entry { project: of, rule }) => !rule.holds(now) || (of == project && rule.argv == old.argv),
            Err(_) => line.trim().is_empty(),
        };
        let text = self.text()?;
        let mut lines: Vec<String> = text.lines().filter(|line| !goes(line)).map(str::to_owned).collect();
        lines.extend(new.map(|rule| written(&project, rule)));
        let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        if lines.len() > RULES_MAX || text.len() as u64 > RULES_BYTES_MAX {
            return Err(BookError::Full(self.path.clone()));
        }
        self.replace(folder, &text).map_err(|source| self.io(source))
    }

    /// The whole file or the old one, whatever ends this process.
    fn replace(&self, folder: &Path, text: &str) -> io::Result<()> {
        let new = self.path.with_extension(format!("{}.new", std::process::id()));
        // Left by one of the same number that was ended here.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        File::open(folder)?.sync_all()
    }

    /// Held while the file is changed, by one process at a time.
    fn lock(&self) -> Result<File, BookError> {
        let path = self.path.with_extension("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(|source| self.io(source))?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| self.io(error.into()))?;
        Ok(file)
    }

    /// What the file says; nothing if there is none.
    fn text(&self) -> Result<String, BookError> {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(&self.path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            opened => opened.map_err(|source| self.io(source))?,
        };
        let about = file.metadata().map_err(|source| self.io(source))?;
        let own = about.uid() == rustix::process::geteuid().as_raw();
        if !about.is_file() || !own || about.mode() & 0o022 != 0 {
            return Err(BookError::Writable(self.path.clone()));
        }
        let mut bytes = Vec::new();
        file.take(RULES_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|source| self.io(source))?;
        match bytes.len() as u64 > RULES_BYTES_MAX {
            true => Err(BookError::Full(self.path.clone())),
            false => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// The folder without links, as it is written down.
    fn project(&self, project: &Path) -> Result<String, BookError> {
        let io = |source| BookError::Io { path: project.to_owned(), source };
        let real = project.canonicalize().map_err(io)?;
        let own = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        if own.starts_with(&real) || self.path.starts_with(project) {
            return Err(BookError::WithinProject { path: self.path.clone(), project: real });
        }
        real.to_str().map(str::to_owned).ok_or(BookError::NotText(real))
    }

    fn io(&self, source: io::Error) -> BookError {
        BookError::Io { path: self.path.clone(), source }
    }
}

fn written(project: &str, rule: &Rule) -> String {
    let word = |word: &Word| match word {
        Word::Exactly(word) => json!(word),
        Word::Any => Value::Null,
    };
    let seconds = |until: SystemTime| until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    json!({
        "project": project,
        "argv": rule.argv.iter().map(word).collect::<Vec<_>>(),
        "until": rule.until.map(seconds),
        "unconfined": rule.unconfined,
    })
    .to_string()
}

fn parse(line: &str) -> Result<Entry, &'static str> {
    let value: Value = serde_json::from_str(line).map_err(|_| "it is not JSON")?;
    let project = value["project"].as_str().ok_or("`project` must be a folder")?.to_owned();
    let words = value["argv"].as_array().filter(|words| words.len() <= RULE_WORDS_MAX);
    let word = |word: &Value| match word {
        Value::Null => Ok(Word::Any),
        Value::String(word) => Ok(Word::Exactly(word.clone())),
        _ => Err("`argv` must be words, with null for any"),
    };
    let argv = words.ok_or("`argv` must be a list of a few words")?.iter().map(word);
    let until = match &value["until"] {
        Value::Null => None,
        seconds => {
            let since =
                seconds.as_u64().map(Duration::from_secs).and_then(|since| UNIX_EPOCH.checked_add(since));
            Some(since.ok_or("`until` must be in seconds since 1970, or null")?)
        }
    };
    let unconfined = value["unconfined"].as_bool().ok_or("`unconfined` must be true or false")?;
    let rule = Rule { argv: argv.collect::<Result<_, _>>()?, scope: Scope::Project, until, unconfined };
    if rule.is_open() { Err("the rule would allow nearly everything") } else { Ok(Entry { project, rule }) }
}
