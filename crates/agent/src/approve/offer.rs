//! Rules that a person could make of one yes.

use crate::rules::{MODULES, PROJECT_RULE, Rule, Scope, Word};
use std::time::SystemTime;

/// Programs whose first word says what they do, and those words after which the others change little. Tools that build and
/// test run what the project says, whatever else they are told.
const PARTS: &[(&str, &[&str])] = &[
    ("bundle", &["install"]),
    ("cargo", &["bench", "build", "check", "clippy", "doc", "fmt", "test", "tree", "update"]),
    ("cmake", &["--build"]),
    ("composer", &["install"]),
    ("dotnet", &["build", "restore", "test"]),
    ("git", &["add", "branch", "checkout", "commit", "mv", "restore", "stash", "switch", "tag"]),
    ("go", &["build", "fmt", "mod", "test", "vet"]),
    ("gradle", &["build", "check", "test"]),
    ("mix", &["compile", "test"]),
    ("mvn", &["compile", "package", "test", "verify"]),
    ("npm", &["ci", "install", "test"]),
    ("pip", &["install"]),
    ("pnpm", &["install", "test"]),
    ("poetry", &["install"]),
    ("swift", &["build", "test"]),
    ("uv", &["sync"]),
    ("yarn", &["install", "test"]),
];

/// Programs of which the second word names one of the project's own tasks.
const TASKS: [(&str, &str); 5] =
    [("npm", "run"), ("pnpm", "run"), ("yarn", "run"), ("python", "-m"), ("python3", "-m")];

/// For this command alone, then for its kind; for this session, then for the project.
pub fn offered(argv: &[String], unconfined: bool, now: SystemTime) -> Vec<Rule> {
    let exact: Vec<Word> = argv.iter().cloned().map(Word::Exactly).collect();
    let mut kinds = vec![exact.clone()];
    if let Some(count) = kind(argv) {
        kinds.push(exact.into_iter().take(count).chain([Word::Any]).collect());
    }
    let rule = |argv: &Vec<Word>, scope: Scope| Rule {
        argv: argv.clone(),
        scope,
        until: match scope {
            Scope::Session => None,
            Scope::Project => Some(now + PROJECT_RULE),
        },
        unconfined,
    };
    let both = |argv: &Vec<Word>| [rule(argv, Scope::Session), rule(argv, Scope::Project)];
    kinds.iter().flat_map(both).filter(|rule| !rule.is_open()).collect()
}

/// How many words say what kind of command it is.
fn kind(argv: &[String]) -> Option<usize> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let ["make" | "just", ..] = words.as_slice() else { return kind_of_parts(&words) };
    let named = |task: &&str| !task.is_empty() && !task.starts_with('-') && !task.contains('=');
    words.get(1).is_some_and(named).then_some(2)
}

fn kind_of_parts(words: &[&str]) -> Option<usize> {
    let [program, part, rest @ ..] = words else { return None };
    let known = PARTS.iter().any(|(name, parts)| name == program && parts.contains(part));
    let task = |task: &&str| match *part {
        "-m" => MODULES.contains(task),
        _ => !task.starts_with('-'),
    };
    match TASKS.contains(&(*program, *part)) && rest.first().is_some_and(task) {
        true => Some(3),
        false => known.then_some(2),
    }
}
