//! The agent on the real binary, against a real server that plays given answers.

mod support;

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::server::Server;
use support::{Terminal, flint, stderr, stdout};

fn call(name: &str, arguments: Value) -> String {
    format!("<tool_call>\n{}\n</tool_call>", json!({"name": name, "arguments": arguments}))
}

/// A folder to work in, which is no temporary one of the server.
fn workspace(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn agent(server: &Server, folder: &Path) -> Command {
    let mut command = flint();
    command.env("FLINT_HOME", server.home.path()).current_dir(folder).stdin(Stdio::null());
    command
}

fn exec(server: &Server, folder: &Path, args: &[&str]) -> Output {
    agent(server, folder).arg("exec").args(args).output().unwrap()
}

fn events(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn says(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap()
}

#[test]
fn a_file_is_read_and_changed_and_the_session_goes_on() {
    let read = call("read", json!({"path": "a.txt"}));
    let edit = call("edit", json!({"path": "a.txt", "old": "two", "new": "three"}));
    let lines = [
        ("change it", read.as_str()),
        ("one\ntwo\n", &edit),
        ("and now?", "Nothing more."),
        ("", "It says three now."),
    ];
    let server = Server::scripted(&lines, 5_000.0);
    let folder = workspace(&[("a.txt", "one\ntwo\n")]);
    let output = exec(&server, folder.path(), &["--json", "change it"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(says(folder.path(), "a.txt"), "one\nthree\n", "{}", stdout(&output));
    let events = events(&output);
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!((kinds[0], *kinds.last().unwrap()), ("thread.started", "turn.completed"));
    let done = |kind: &str| {
        let of_kind = |event: &&Value| event["type"] == "item.completed" && event["item"]["type"] == kind;
        events.iter().find(of_kind).unwrap_or_else(|| panic!("{events:?}"))["item"].clone()
    };
    assert_eq!(done("file_change")["changes"], json!([{"path": "a.txt", "kind": "update"}]));
    assert_eq!(done("agent_message")["text"], "It says three now.");
    let end = events.last().unwrap();
    assert_eq!(end["flint"]["requests"], 3);
    // Each request but the first finds what came before it warm.
    assert!(end["usage"]["cached_input_tokens"].as_u64() > end["usage"]["output_tokens"].as_u64(), "{end}");

    let id = events[0]["thread_id"].as_str().unwrap();
    let output = exec(&server, folder.path(), &["resume", id, "and now?"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "Nothing more.\n"),
        "{}",
        stderr(&output)
    );
    let output = exec(&server, folder.path(), &["resume", "--last", "and now?"]);
    assert_eq!(stdout(&output), "Nothing more.\n", "{}", stderr(&output));
    let records = std::fs::read_to_string(server.home.path().join(format!("sessions/{id}.jsonl"))).unwrap();
    assert!(records.contains("change it") && records.contains("and now?"), "{records}");
}

#[test]
fn a_change_that_is_only_told_of_is_made() {
    let lines = [
        ("tow\nthree\n```", "I fixed the second line of a.txt."),
        (" in one code block, and nothing else.", "```\none\ntwo\nthree\n```"),
        ("two\nthree\n```", "Here it is:\n```\none\ntwo\nthree\nfour\n```\nThat is all."),
        ("three\nfour\n```", "```\none\ntwo\nthree\nfour\nfive\n```"),
    ];
    let server = Server::scripted(&lines, 5_000.0);
    let folder = workspace(&[("a.txt", "one\ntow\nthree\n")]);
    let output = exec(&server, folder.path(), &["correct a.txt"]);
    assert_eq!(says(folder.path(), "a.txt"), "one\ntwo\nthree\n", "{}", stderr(&output));
    // The file's text is not what is said.
    assert_eq!(stdout(&output), "I fixed the second line of a.txt.\n");
    let output = exec(&server, folder.path(), &["add four to a.txt"]);
    assert_eq!(says(folder.path(), "a.txt"), "one\ntwo\nthree\nfour\n", "{}", stderr(&output));
    // Who asks a question wants an answer, and no more.
    let output = exec(&server, folder.path(), &["How would five look in a.txt?"]);
    assert_eq!(says(folder.path(), "a.txt"), "one\ntwo\nthree\nfour\n", "{}", stderr(&output));
    assert!(stdout(&output).contains("five"));
}

#[test]
fn commands_run_in_the_sandbox() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("f");
    let line = format!("echo in > here; echo out > {}; cat {}/key", target.display(), "$FLINT_HOME");
    let shell = call("shell", json!({"command": line}));
    let server = Server::scripted(&[("do it", &shell), ("", "Done.")], 5_000.0);
    let folder = workspace(&[]);
    let output = exec(&server, folder.path(), &["--json", "do it"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(says(folder.path(), "here"), "in\n");
    assert!(!target.exists());
    assert!(!stdout(&output).contains(&server.key));
    assert!(stdout(&output).contains("Permission denied"), "{}", stdout(&output));
}

#[test]
fn exit_codes_say_why() {
    let free = call("shell", json!({"command": "touch x", "unconfined": true}));
    let long = "word ".repeat(400);
    let lines = [("set it free", free.as_str()), ("be long", &long), ("", "Done.")];
    let server = Server::scripted(&lines, 40.0);
    let folder = workspace(&[("a.txt", "one\n")]);
    for (args, code, word) in [
        (&["-a", "on-request", "set it free"][..], 5, "needs a yes"),
        (&["set it free"], 0, "Done."),
        (&["-m", "gpt-oss-120b", "hello"], 4, "gpt-oss-120b"),
        (&["--verify", "false", "look at a.txt"], 6, "the check failed"),
        (&["--verify", "true", "hello"], 0, ""),
        (&["--timeout", "1", "be long"], 124, "longer than 1 s"),
        (&["-c", "sandbox_mode=\"none\"", "hello"], 3, "expected one of read-only"),
        (&["-c", "model_provider=\"x\"", "hello"], 3, "model_providers.x"),
        (&["-c", "modle=\"x\"", "hello"], 0, "did you mean `model`?"),
        (&["--output-schema", "nothing", "hello"], 1, "nothing"),
        (&["--frobnicate"], 2, "frobnicate"),
    ] {
        let output = exec(&server, folder.path(), args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

#[test]
fn without_a_websocket_turns_are_requests() {
    let lines = [("hello", "Good day.")];
    let home = tempfile::tempdir().unwrap();
    let server = Server::scripted_in(home, &lines, 5_000.0, &["--no-websocket"], &[]);
    let folder = workspace(&[]);
    let output = exec(&server, folder.path(), &["hello"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "Good day.\n"),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&output).contains("no WebSocket"), "{}", stderr(&output));
}

#[test]
fn a_check_that_fails_goes_back_to_the_model() {
    let file = "Here it is:\n```\nright\n```\n";
    let server = Server::scripted(&[("wrong\n```", file), ("", "I cannot.")], 5_000.0);
    let folder = workspace(&[("a.txt", "wrong\n")]);
    // The first answer is the same text, which is not taken: nobody asked for a file yet.
    let output =
        exec(&server, folder.path(), &["--json", "--verify", "grep -q right a.txt", "correct a.txt"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(says(folder.path(), "a.txt"), "right\n");
}

#[test]
fn the_terminal_answers_steers_and_ends() {
    let long = "word ".repeat(2_000);
    let lines = [("hello", "Good day to you."), ("be long", long.as_str()), ("be short", "As you wish.")];
    let server = Server::scripted(&lines, 60.0);
    let folder = workspace(&[]);
    let mut terminal =
        Terminal::open(agent(&server, folder.path()).args(["-a", "never"]).env("TERM", "xterm-256color"));
    terminal.wait_for("Do you trust it?");
    terminal.press("y\n");
    terminal.wait_for("\x1b[?1049h");
    terminal.press("hello\r");
    terminal.wait_for("Good");
    terminal.press("be long\r");
    terminal.wait_for("word");
    terminal.press("be short\r");
    terminal.wait_for("As");
    terminal.press("\x03\x03\x03");
    terminal.wait_for("flint resume");
    assert_eq!(terminal.wait().code(), Some(0));
    let settings = std::fs::read_to_string(server.home.path().join("config.toml")).unwrap();
    assert!(settings.contains("trust_level = \"trusted\""), "{settings}");
}

#[test]
fn a_session_that_is_resumed_shows_what_was() {
    let server = Server::scripted(&[("hello", "Good day to you."), ("", "Again.")], 2_000.0);
    let folder = workspace(&[]);
    let output = exec(&server, folder.path(), &["hello"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut terminal =
        Terminal::open(agent(&server, folder.path()).arg("resume").env("TERM", "xterm-256color"));
    terminal.wait_for("Do you trust it?");
    terminal.press("n\n");
    terminal.wait_for("hello");
    terminal.wait_for("Good");
    terminal.press("more\r");
    terminal.wait_for("Again");
    terminal.press("\x03\x03\x03");
    terminal.wait_for("flint resume");
    assert_eq!(terminal.wait().code(), Some(0));
}

#[test]
fn a_turn_is_taken_back_and_made_again() {
    let add = call("edit", json!({"path": "b.txt", "old": "", "new": "planted"}));
    let server = Server::scripted(&[("plant it", &add), ("", "Done.")], 2_000.0);
    let folder = workspace(&[]);
    let mut terminal = Terminal::open(agent(&server, folder.path()).env("TERM", "xterm-256color"));
    terminal.wait_for("Do you trust it?");
    terminal.press("y\n");
    terminal.wait_for("\x1b[?1049h");
    terminal.press("plant it\r");
    terminal.wait_for("Done");
    assert_eq!(says(folder.path(), "b.txt"), "planted\n");
    terminal.wait_for("enter sends");
    // What would be done is shown first, and nothing is done by who leaves it.
    terminal.press("/undo\r");
    terminal
        .wait_to_see("a preview", |screen| screen.contains("enter does it") && screen.contains("-planted"));
    terminal.press("\x1b");
    terminal.wait_to_see("what was", |screen| !screen.contains("enter does it"));
    assert_eq!(says(folder.path(), "b.txt"), "planted\n");
    terminal.press("/undo\r");
    terminal.wait_to_see("a preview", |screen| screen.contains("enter does it"));
    terminal.press("\r");
    terminal.wait_for("Undone");
    assert!(!folder.path().join("b.txt").exists());
    terminal.press("/redo\r");
    terminal.wait_to_see("a preview", |screen| screen.contains("Redo  enter does it"));
    terminal.press("\r");
    terminal.wait_for("Made");
    assert_eq!(says(folder.path(), "b.txt"), "planted\n");
    terminal.press("\x03\x03\x03");
    terminal.wait_for("flint resume");
    assert_eq!(terminal.wait().code(), Some(0));
}

#[test]
fn a_conversation_that_is_too_long_is_made_short_and_keeps_its_facts() {
    let shell = call("shell", json!({"command": "echo counted > n; exit 3"}));
    let lines = [("count", shell.as_str()), ("300 words.", "They want a count."), ("", "Counted.")];
    let server = Server::scripted(&lines, 5_000.0);
    let folder = workspace(&[]);
    let output =
        exec(&server, folder.path(), &["--json", "-c", "model_auto_compact_token_limit=100", "count"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let id = events(&output)[0]["thread_id"].as_str().unwrap().to_owned();
    let records = std::fs::read_to_string(server.home.path().join(format!("sessions/{id}.jsonl"))).unwrap();
    let short = records
        .lines()
        .find(|line| line.contains("\"kind\":\"short\""))
        .unwrap_or_else(|| panic!("{records}"));
    assert!(short.contains("They want a count.") && short.contains("Go on with this: count"), "{short}");
    // Not in the model's words: what was run, and what came of it.
    assert!(short.contains("ran `echo counted > n; exit 3`: exit code 3"), "{short}");
}

#[test]
fn of_several_attempts_the_one_that_passes_counts() {
    let right = "Here it is:\n```\nright\n```\n";
    // Asked for a whole file, each attempt writes the right one; whoever is first wins, and the others leave nothing.
    let lines = [("one\n```", right), ("", "Done.")];
    let server = Server::scripted(&lines, 5_000.0);
    let folder = workspace(&[
        ("a.txt", "one\n"),
        ("kept.txt", "kept\n"),
        (".gitignore", "ignored\n"),
        ("ignored", "x"),
    ]);
    let check = "grep -q right a.txt && test ! -e ignored && test -e kept.txt";
    let args = ["--json", "--variants", "3", "--verify", check, "correct a.txt"];
    let output = exec(&server, folder.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("passed first"), "{}", stderr(&output));
    assert_eq!(
        (says(folder.path(), "a.txt").as_str(), says(folder.path(), "ignored").as_str()),
        ("right\n", "x")
    );
    let variants: std::collections::BTreeSet<u64> =
        events(&output).iter().filter_map(|event| event["variant"].as_u64()).collect();
    assert_eq!(variants, [1, 2, 3].into());
    // What cannot pass changes nothing.
    let output = exec(&server, folder.path(), &["--variants", "2", "--verify", "false", "look at a.txt"]);
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert_eq!(says(folder.path(), "a.txt"), "right\n");
}
