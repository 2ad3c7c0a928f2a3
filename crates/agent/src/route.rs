//! Which of two models a piece of work is for: the one that answers at once, or the one that thinks long.
//!
//! What the field has learned, as rules in an order: what touches one file and can be checked within half a minute is for
//! the real-time model, since a mistake is found at once and costs little. Several files, long plans, work where a mistake
//! is a hole, and what is longer than the real-time model's window are for the deep one. Pure: facts in, a route and why.

use crate::question::is_question;
use std::fmt;
use std::time::Duration;

/// Where work goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    Realtime,
    Deep,
}

impl fmt::Display for To {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            To::Realtime => "real-time",
            To::Deep => "deep",
        })
    }
}

/// What is known before the model is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts<'a> {
    pub text: &'a str,
    pub files: Vec<(String, u64)>, // that the text names and that are there, with their bytes
    pub check: Option<Check>,      // the command that says whether the work is right
    pub tokens: u64,               // of the conversation so far
    pub window: Option<u64>,       // tokens of the real-time model
}

#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    pub command: String,
    pub took: Option<Duration>, // the last time; none: it has not run yet
}

/// The decision, and the reason in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub to: To,
    pub why: String,
}

/// A check that takes longer is not waited for between two attempts.
const QUICK: Duration = Duration::from_secs(30);

/// Steps from which on a text is a plan.
const PLAN_STEPS: usize = 4;

/// Bytes that are about a token of code, rather too few.
const BYTES_A_TOKEN: u64 = 3;

/// Share of a window that is left for the answer and for what tools return, as a divisor.
const WINDOW_LEFT: u64 = 4;

/// Of a text, where words are looked for: its beginning says what it is about.
const WORDS_BYTES_MAX: usize = 64 << 10;

/// Beginnings of words that are about work where a mistake is a hole.
const SECURITY: [&str; 21] = [
    "security",
    "secure",
    "vulnerab",
    "exploit",
    "authent",
    "authoriz",
    "authoris",
    "oauth",
    "password",
    "passphrase",
    "credential",
    "encrypt",
    "decrypt",
    "crypto",
    "cipher",
    "hmac",
    "csrf",
    "xss",
    "injection",
    "sanitiz",
    "privilege",
];

/// Beginnings of words that ask for much at once.
const WIDE: [&str; 9] = [
    "refactor",
    "migrat",
    "redesign",
    "rearchitect",
    "architecture",
    "rewrite",
    "overhaul",
    "everywhere",
    "codebase",
];

/// Tags, and where they send work.
const TAGS: [(&str, To); 4] =
    [("fast", To::Realtime), ("spark", To::Realtime), ("deep", To::Deep), ("codex", To::Deep)];

/// The tag that a text begins with, and the rest of it.
pub fn tag(text: &str) -> Option<(To, &str)> {
    let (word, rest) = text.trim_start().strip_prefix('[')?.split_once(']')?;
    let (_, to) = TAGS.iter().find(|(tag, _)| tag.eq_ignore_ascii_case(word.trim()))?;
    Some((*to, rest.trim_start()))
}

/// Tokens of a text and of files, about.
pub fn tokens(text: &str, files: &[(String, u64)]) -> u64 {
    let files = files.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
    files.saturating_add(text.len() as u64) / BYTES_A_TOKEN
}

/// The first rule that has something to say decides.
pub fn route(facts: &Facts<'_>) -> Route {
    let deep = |why: String| Route { to: To::Deep, why };
    let realtime = |why: String| Route { to: To::Realtime, why };
    let beginning = &facts.text[..facts.text.floor_char_boundary(WORDS_BYTES_MAX)];
    let words = Words::of(beginning);
    if let Some(why) = too_long(facts) {
        return deep(why);
    }
    if let Some(word) = words.any(&SECURITY) {
        return deep(format!("`{word}`: a mistake there is a hole"));
    }
    let steps = steps(beginning);
    if steps >= PLAN_STEPS {
        return deep(format!("it is a plan of {steps} steps"));
    }
    if facts.files.len() > 1 {
        return deep(format!("it names {} files", facts.files.len()));
    }
    if is_question(beginning) {
        return realtime("it is a question: nothing is changed that needs a check".to_owned());
    }
    if let Some(word) = words.any(&WIDE) {
        return deep(format!("`{word}`: it goes beyond one file"));
    }
    let about = match facts.files.first() {
        Some((name, _)) => format!("one file ({name})"),
        None => "no file is named".to_owned(),
    };
    match &facts.check {
        None => deep(format!("{about}, and no verify_command could tell whether it is right")),
        Some(Check { command, took: Some(took) }) if *took > QUICK => {
            deep(format!("`{command}` took {} s, more than {}", took.as_secs(), QUICK.as_secs()))
        }
        Some(Check { command, took: Some(took) }) => {
            realtime(format!("{about}, and `{command}` tells within {} s", took.as_secs() + 1))
        }
        Some(Check { command, took: None }) => {
            realtime(format!("{about}, and `{command}` tells whether it is right"))
        }
    }
}

/// What would not fit beside an answer.
fn too_long(facts: &Facts<'_>) -> Option<String> {
    let window = facts.window?;
    let tokens = facts.tokens.saturating_add(tokens(facts.text, &facts.files));
    let room = window - window / WINDOW_LEFT;
    (tokens > room).then(|| format!("about {tokens} tokens, and the real-time model holds {window}"))
}

/// Lines that begin as steps do: a number or a bullet.
fn steps(text: &str) -> usize {
    let is_step = |line: &&str| {
        let line = line.trim_start();
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.len() < line.len() {
            true => rest.starts_with(". ") || rest.starts_with(") "),
            false => ["- ", "* ", "+ "].iter().any(|bullet| line.starts_with(bullet)),
        }
    };
    text.lines().filter(is_step).count()
}

/// A text's words in small letters. What looks like a file's name is none: `auth.rs` may hold anything.
struct Words(Vec<String>);

impl Words {
    fn of(text: &str) -> Words {
        let plain =
            |word: &&str| !word.trim_end_matches(['.', ',', ':', ';', '!', '?']).contains(['.', '/', '_']);
        let trimmed = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        let words = text.split_whitespace().filter(plain).map(trimmed).filter(|word| !word.is_empty());
        Words(words.collect())
    }

    /// The first word that begins as one of these.
    fn any(&self, beginnings: &[&str]) -> Option<&str> {
        let begins = |word: &&String| beginnings.iter().any(|beginning| word.starts_with(beginning));
        self.0.iter().find(begins).map(String::as_str)
    }
}

#[cfg(test)]
mod tests;
