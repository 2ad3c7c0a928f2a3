//! What was said yes to once and for more than once.

use std::fmt;
use std::time::{Duration, SystemTime};

/// Commands that need no further yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub argv: Vec<Word>, // of the whole command
    pub scope: Scope,
    pub until: Option<SystemTime>,
    pub unconfined: bool, // without the sandbox too
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    Exactly(String),
    /// One word, whatever it is; as the last one, any number of words or none.
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Session,
    /// This folder, in later sessions too.
    Project,
}

/// How long a rule for a project holds, unless it is given anew.
pub const PROJECT_RULE: Duration = Duration::from_secs(30 * DAY_SECONDS);

const DAY_SECONDS: u64 = 24 * 3600;

/// Programs that run whatever their words say: a rule that leaves these words open is one for everything.
const RUNNERS: [&str; 61] = [
    ".",
    "ash",
    "awk",
    "bash",
    "builtin",
    "bun",
    "bunx",
    "busybox",
    "command",
    "csh",
    "dash",
    "deno",
    "doas",
    "docker",
    "env",
    "eval",
    "exec",
    "expect",
    "fd",
    "find",
    "fish",
    "gawk",
    "gdb",
    "ionice",
    "ksh",
    "ltrace",
    "lua",
    "mawk",
    "nice",
    "node",
    "nohup",
    "nsenter",
    "parallel",
    "perl",
    "php",
    "pipx",
    "pnpx",
    "podman",
    "npx",
    "python",
    "python2",
    "python3",
    "ruby",
    "script",
    "sed",
    "setsid",
    "sh",
    "source",
    "ssh",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "tclsh",
    "timeout",
    "uvx",
    "watch",
    "xargs",
    "yash",
    "zsh",
];

/// Modules of Python that test and check what a project says.
pub(crate) const MODULES: [&str; 5] = ["black", "mypy", "pytest", "ruff", "unittest"];

/// The rules that hold in a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    pub fn new(rules: Vec<Rule>) -> Rules {
        Rules { rules }
    }

    pub fn add(&mut self, rule: Rule) {
        self.rules.retain(|other| (&other.argv, other.scope) != (&rule.argv, rule.scope));
        self.rules.push(rule);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    pub fn allow(&self, argv: &[String], unconfined: bool, now: SystemTime) -> bool {
        self.rules.iter().any(|rule| {
            (rule.unconfined || !unconfined) && rule.holds(now) && !rule.is_open() && rule.matches(argv)
        })
    }
}

impl Rule {
    pub fn holds(&self, now: SystemTime) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    pub fn matches(&self, argv: &[String]) -> bool {
        let same = |(word, given): (&Word, &String)| match word {
            Word::Exactly(word) => word == given,
            Word::Any => true,
        };
        let (words, open) = match self.argv.as_slice() {
            [words @ .., Word::Any] => (words, true),
            words => (words, false),
        };
        let enough = if open { argv.len() >= words.len() } else { argv.len() == words.len() };
        enough && !argv.is_empty() && words.iter().zip(argv).all(same)
    }

    /// Whether it would allow nearly everything: it names no program, or one that runs whatever it is told.
    pub fn is_open(&self) -> bool {
        let open = self.argv.contains(&Word::Any);
        let module =
            |word: &Word| matches!(word, Word::Exactly(module) if MODULES.contains(&module.as_str()));
        match self.argv.as_slice() {
            [] | [Word::Any, ..] => true,
            [Word::Exactly(program)] => runs_words(program),
            // Its options name programs.
            [Word::Exactly(program), Word::Any, ..] if program == "git" => true,
            [Word::Exactly(program), Word::Exactly(option), third, ..]
                if is_python(program) && option == "-m" =>
            {
                open && !module(third)
            }
            [Word::Exactly(program), ..] => open && runs_words(program),
        }
    }

    /// In plain words, for a person who is to say yes to it.
    pub fn told(&self, now: SystemTime) -> String {
        let words: Vec<String> = self.argv.iter().map(Word::to_string).collect();
        let confined = if self.unconfined { " without the sandbox" } else { "" };
        let scope = match self.scope {
            Scope::Session => "in this session",
            Scope::Project => "in this project",
        };
        let until = self.until.map(|until| match until.duration_since(now) {
            Err(_) => ", not any more".to_owned(),
            Ok(left) => match left.as_secs().div_ceil(DAY_SECONDS) {
                0 | 1 => ", for a day".to_owned(),
                days => format!(", for {days} days"),
            },
        });
        format!("`{}`{confined}, {scope}{}", words.join(" "), until.unwrap_or_default())
    }
}

fn is_python(program: &str) -> bool {
    matches!(program, "python" | "python3")
}

/// By its own name, not by the folder it stands in; versions are part of the name.
fn runs_words(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    let plain = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    RUNNERS.contains(&name) || RUNNERS.contains(&plain)
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.told(SystemTime::now()))
    }
}

impl fmt::Display for Word {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,+@%^".contains(letter);
        match self {
            Word::Any => write!(out, "…"),
            Word::Exactly(word) if !word.is_empty() && word.chars().all(plain) => write!(out, "{word}"),
            // No escape sequence reaches a terminal by a word.
            Word::Exactly(word) => write!(out, "'{}'", word.escape_debug()),
        }
    }
}
