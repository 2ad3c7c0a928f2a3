//! What must hold for any patch: it is refused in words, or each file's other lines stay and its new ones are there.
//! And for any command line: no rule for one command lets another one through.

use flint_agent::approve::{Approvals, Policy, Simple, Verdict, split};
use flint_agent::patch::{Line, What, parse, patched};
use flint_agent::rules::{Rule, Rules, Scope, Word};
use flint_agent::tools::ShellCall;
use std::time::Duration;

/// A file, an empty line of dashes, and a patch.
pub fn patch(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (file, patch) = text.split_once("\n----\n").unwrap_or(("", &text));
    let edits = match parse(patch) {
        Ok(edits) => edits,
        Err(error) => return in_words(&error.to_string()),
    };
    for edit in edits {
        in_words(&edit.name.to_string());
        let What::Update { hunks, .. } = edit.what else { continue };
        match patched(&edit.name, file, &hunks) {
            Ok(after) => {
                let lines = || hunks.iter().flat_map(|hunk| &hunk.lines);
                let old = lines().filter(|line| matches!(line, Line::Old(_))).count();
                let new = lines().filter(|line| matches!(line, Line::New(_))).count();
                assert_eq!(after.lines().count(), file.lines().count() - old + new);
                if new == 0 && old == 0 {
                    assert_eq!(after, file);
                }
            }
            Err(error) => in_words(&error.to_string()),
        }
    }
}

fn in_words(text: &str) {
    assert!(!text.is_empty() && text.len() < 10_000);
    assert!(!text.contains('\u{1b}'), "an escape sequence");
}

/// A command line.
pub fn approve(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let call = call(&text);
    for policy in [Policy::Untrusted, Policy::OnRequest, Policy::OnFailure, Policy::Never] {
        if let Verdict::Ask { why, rules } = approvals(policy, Vec::new()).judge(&call) {
            in_words(&why);
            rules.iter().for_each(|rule| enough(rule, &call));
        }
    }
    let commands = split(&text).unwrap_or_default();
    if !commands.is_empty() {
        plain(&text, &commands);
        again(&commands);
    }
    let rule = Rule { argv: words(&["cargo", "test", ""]), ..open() };
    if approvals(Policy::OnRequest, vec![rule]).judge(&call) == Verdict::Run {
        let idle = ["cd", "echo", "pwd", "true", "false"];
        let mut argv = commands.iter().map(|simple| &simple.argv);
        assert!(argv.all(
            |argv| argv.starts_with(&["cargo".into(), "test".into()]) || idle.contains(&argv[0].as_str())
        ));
        assert!(!commands.is_empty());
    }
}

/// What is offered allows what it was offered for, and shows no escape sequence.
fn enough(rule: &Rule, call: &ShellCall) {
    assert!(!rule.to_string().contains('\u{1b}'));
    for policy in [Policy::OnRequest, Policy::Untrusted] {
        assert_eq!(approvals(policy, vec![rule.clone()]).judge(call), Verdict::Run, "{rule}");
    }
}

/// Where nothing is quoted, operators are seen by anyone.
fn plain(text: &str, commands: &[Simple]) {
    if text.contains(['\'', '"', '\\']) {
        return;
    }
    assert!(!text.contains(['(', ')', '{', '}', '$', '`', '\r', '\0']), "{text:?}");
    let harmless = ["2>&1", ">&1", ">&2", "/dev/null", "&&", "||"]
        .iter()
        .fold(text.to_owned(), |text, word| text.replace(word, " "));
    assert!(!harmless.contains('&'), "{text:?}");
    if commands.len() == 1 {
        assert!(!text.trim_end_matches([' ', '\t', '\n', ';']).contains([';', '|']), "{text:?}");
    }
}

/// Words that are quoted are the same words again.
fn again(commands: &[Simple]) {
    let quote = |word: &String| format!("'{}'", word.replace('\'', "'\\''"));
    let line = |simple: &Simple| simple.argv.iter().map(quote).collect::<Vec<_>>().join(" ");
    let text = commands.iter().map(line).collect::<Vec<_>>().join(" && ");
    // Quotes may make it too long.
    let Ok(found) = split(&text) else { return assert!(text.len() > 10_000, "{text:?}") };
    let same = found.iter().zip(commands).all(|(found, simple)| found.argv == simple.argv && !found.expands);
    assert!(same && found.len() == commands.len(), "{text:?}");
}

fn call(command: &str) -> ShellCall {
    ShellCall { command: command.to_owned(), workdir: None, timeout: Duration::ZERO, unconfined: true }
}

fn approvals(policy: Policy, rules: Vec<Rule>) -> Approvals {
    Approvals { policy, mode: flint_agent::approve::Mode::WorkspaceWrite, rules: Rules::new(rules) }
}

fn words(words: &[&str]) -> Vec<Word> {
    let word = |word: &&str| if word.is_empty() { Word::Any } else { Word::Exactly((*word).to_owned()) };
    words.iter().map(word).collect()
}

fn open() -> Rule {
    Rule { argv: Vec::new(), scope: Scope::Session, until: None, unconfined: true }
}
