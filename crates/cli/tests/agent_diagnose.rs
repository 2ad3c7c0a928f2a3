//! What a linter says after an edit reaches the model, on the real binary.

mod support;

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Output, Stdio};
use support::server::Server;
use support::{flint, stderr, stdout};

fn edit(old: &str, new: &str) -> String {
    edit_of("a.txt", old, new)
}

fn edit_of(path: &str, old: &str, new: &str) -> String {
    let call = json!({"name": "edit", "arguments": {"path": path, "old": old, "new": new}});
    format!("<tool_call>\n{call}\n</tool_call>")
}

fn exec(server: &Server, folder: &Path, args: &[&str]) -> Output {
    let mut command = flint();
    command.env("FLINT_HOME", server.home.path()).current_dir(folder).stdin(Stdio::null());
    command.arg("exec").args(args).output().unwrap()
}

fn workspace(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), text).unwrap();
    folder
}

/// A linter: each line that says it is bad is an error.
const LINT: &str =
    r"diagnostics_command='''grep -n bad a.txt | sed -E 's/^([0-9]+):(.*)/a.txt:\1:1: error: \2/' '''";

#[test]
fn what_an_edit_breaks_is_told_with_its_result_and_what_moves_is_not() {
    let (breaks, mends) = (edit("one", "zero\none\nbad two"), edit("bad two", "good"));
    let lines = [
        ("bad before\n```", breaks.as_str()),
        // The end of what the edit returned: the line that was bad before has moved, and is not told.
        ("Done: a.txt changed.\nnew diagnostics:\na.txt:3:1: error: bad two", &mends),
        ("Done: a.txt changed.\nno new diagnostics\ngone: 1", "All is well."),
        ("", "I see nothing."),
    ];
    let server = Server::scripted(&lines, 5_000.0);
    let folder = workspace("one\nbad before\n");
    let output = exec(&server, folder.path(), &["--json", "-c", LINT, "break a.txt"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let events: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let items: Vec<&Value> = events.iter().map(|event| &event["item"]).collect();
    let said = items.iter().rfind(|item| item["type"] == "agent_message").unwrap();
    assert_eq!(said["text"], "All is well.", "{}", stdout(&output));
    let shown: Vec<_> =
        items.iter().filter(|item| item["tool"] == "diagnostics").map(|item| &item["output"]).collect();
    assert_eq!(shown, ["new diagnostics:\na.txt:3:1: error: bad two", "no new diagnostics\ngone: 1"]);
}

#[test]
fn a_command_that_cannot_be_run_is_told_once() {
    let (first, second) = (edit("one", "two"), edit_of("b.txt", "one", "three"));
    let lines = [("one\n```", first.as_str()), ("Done: a.txt changed.", &second), ("", "Done.")];
    let server = Server::scripted(&lines, 5_000.0);
    let folder = workspace("one\n");
    std::fs::write(folder.path().join("b.txt"), "one\n").unwrap();
    let args = ["-c", "diagnostics_command=no-such-linter", "change a.txt and b.txt"];
    let output = exec(&server, folder.path(), &args);
    let said = stderr(&output);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "Done.\n"), "{said}");
    assert!(said.contains("diagnostics_command `no-such-linter` is not used in this session: "), "{said}");
    assert_eq!(said.matches("is not used in this session").count(), 1, "{said}");
    assert_eq!(std::fs::read_to_string(folder.path().join("b.txt")).unwrap(), "three\n", "{said}");
}

#[test]
fn a_linter_that_fails_without_a_word_about_code_is_no_good_news() {
    let lines = [
        ("one\n```", edit("one", "two")),
        ("diagnostics: `echo it broke; exit 3` ended with exit code 3: it broke", "I see.".to_owned()),
        ("", "I see nothing.".to_owned()),
    ];
    let lines: Vec<(&str, &str)> = lines.iter().map(|(cue, answer)| (*cue, answer.as_str())).collect();
    let server = Server::scripted(&lines, 5_000.0);
    let folder = workspace("one\n");
    let output =
        exec(&server, folder.path(), &["-c", "diagnostics_command='echo it broke; exit 3'", "change a.txt"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "I see.\n"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_answer_waits_for_no_linter() {
    let server = Server::scripted(&[("", "Good day.")], 5_000.0);
    let folder = workspace("one\n");
    let began = std::time::Instant::now();
    let output = exec(&server, folder.path(), &["-c", "diagnostics_command='sleep 50'", "hello"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "Good day.\n"),
        "{}",
        stderr(&output)
    );
    assert!(began.elapsed().as_secs() < 40, "{:?}", began.elapsed());
}
