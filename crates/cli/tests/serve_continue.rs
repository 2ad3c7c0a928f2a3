//! Continue, whose agent is in VS Code and JetBrains, in its own form for the terminal, set up by the README's words.

mod support;

use serde_json::json;
use std::process::Command;
use support::server::{Server, until};
use support::{Terminal, clients, stdout, succeeds};

const MODEL: &str = "qwen2.5-coder-1.5b";
const README: &str = include_str!("../../../README.md");

/// Continue's folder with the README's configuration, and a folder to work in.
struct Continue {
    home: tempfile::TempDir,
    work: tempfile::TempDir,
    key: String,
}

impl Continue {
    fn new(server: &Server) -> Continue {
        let (home, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (_, config) = README.split_once("```yaml\n").unwrap();
        let (config, _) = config.split_once("```").unwrap();
        let config = config.replace("127.0.0.1:8645", &server.address);
        assert!(config.contains(&server.address) && config.contains(MODEL), "{config}");
        std::fs::write(home.path().join("config.yaml"), config).unwrap();
        std::fs::write(work.path().join("note.txt"), "the secret word is marmalade\n").unwrap();
        Continue { home, work, key: server.key.clone() }
    }

    /// The program at its pinned version: told that it has just updated itself, it does not.
    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--foreground", "600"]).arg(clients().join("node_modules/.bin/cn"));
        command.arg("--config").arg(self.home.path().join("config.yaml")).current_dir(self.work.path());
        command.env("CONTINUE_GLOBAL_DIR", self.home.path()).env("CONTINUE_CLI_AUTO_UPDATED", "true");
        command.env("FLINT_API_KEY", &self.key).env("TERM", "xterm");
        // In a continuous integration it would paint no screen.
        command.env("CI", "false").env_remove("CONTINUOUS_INTEGRATION");
        command
    }

    /// One answer.
    fn ask(&self, args: &[&str]) -> String {
        stdout(&succeeds(self.command().arg("-p").args(args))).trim().to_owned()
    }
}

/// Tokens of each turn that the server has logged: prompt, answer, and what was cached of the prompt.
fn turns(server: &Server) -> Vec<[u32; 3]> {
    let number = |text: &str| text.parse::<u32>().unwrap();
    let parse = |line: &str| {
        let (_, rest) = line.split_once(" tokens=")?;
        let (tokens, rest) = rest.split_once(" cached=")?;
        let (prompt, answer) = tokens.split_once('+')?;
        Some([number(prompt), number(answer), number(rest.split(' ').next()?)])
    };
    server.said().lines().filter_map(parse).collect()
}

/// A server whose model says these things, `words` a second.
fn scripted(lines: &[(&str, &str)], words: f64) -> Server {
    Server::scripted_in(tempfile::tempdir().unwrap(), lines, words, &["-m", MODEL], &[])
}

fn call(name: &str, arguments: serde_json::Value) -> String {
    format!("<tool_call>\n{}\n</tool_call>", json!({"name": name, "arguments": arguments}))
}

#[test]
fn continue_reads_a_file_and_remembers_it() {
    let read = call("Read", json!({"filepath": "note.txt"}));
    // Only a prompt with the file in it gets the last answer.
    let file = "the secret word is marmalade\n\n</tool_response>";
    let server =
        scripted(&[("read the note", &read), (file, "It is marmalade."), ("again", "Marmalade.")], 2000.0);
    let editor = Continue::new(&server);
    assert_eq!(editor.ask(&["read the note"]), "It is marmalade.");
    assert_eq!(editor.ask(&["--resume", "again"]), "Marmalade.");
    check_all_was_kept(&server, 3);
}

/// Of so many turns, each began with all tokens of the one before.
fn check_all_was_kept(server: &Server, count: usize) {
    let turns = turns(server);
    assert_eq!(turns.len(), count, "{}", server.said());
    for turn in turns.windows(2) {
        let ([prompt, answer, _], [.., cached]) = (turn[0], turn[1]);
        assert_eq!(cached, prompt + answer, "{turns:?}");
    }
}

#[test]
fn continue_writes_a_file() {
    let write = call("Write", json!({"filepath": "hi.py", "content": "print(\"hi\")\n"}));
    let write = format!("I will.\n{write}");
    let server = scripted(&[("write it", &write), ("</tool_response>", "Done.")], 2000.0);
    let editor = Continue::new(&server);
    assert_eq!(editor.ask(&["--auto", "write it"]), "Done.");
    check_all_was_kept(&server, 2);
    let written = std::fs::read_to_string(editor.work.path().join("hi.py")).unwrap();
    assert_eq!(written, "print(\"hi\")\n");
}

/// On its screen, Escape ends a turn, in the server too; the conversation can be gone on with.
#[test]
fn continue_can_be_stopped() {
    let long = "and another word ".repeat(400);
    let server = scripted(&[("go on", &long), ("say it", "as you wish")], 50.0);
    let editor = Continue::new(&server);
    let mut terminal = Terminal::open(editor.command().arg("go on"));
    terminal.wait_for("esc to interrupt");
    until("some words", || decoded(&server) > 5);
    terminal.press("\x1b");
    until("the turn ends", || !turns(&server).is_empty());
    let [_, answer, _] = turns(&server)[0];
    assert!((5..1000).contains(&answer), "it was stopped after {answer} of 1,200 words");
    drop(terminal);
    assert_eq!(editor.ask(&["--resume", "say it"]), "as you wish");
}

/// Tokens that the server has made.
fn decoded(server: &Server) -> u64 {
    let metrics = server.get("/metrics").body;
    let of = |line: &&str| line.starts_with("flint_rows_total{") && line.contains("kind=\"decode\"");
    let line = metrics.lines().find(of).unwrap_or("0");
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn continue_with_a_real_model() {
    let server = Server::of(MODEL);
    let editor = Continue::new(&server);
    let unused = ["Bash", "Checklist", "CheckBackgroundJob", "AskQuestion", "Skills"];
    let mut args: Vec<&str> = unused.iter().flat_map(|tool| ["--exclude", tool]).collect();
    args.push("Read the file note.txt and tell me the secret word.");
    let answer = editor.ask(&args);
    assert!(answer.contains("marmalade"), "{answer}\n{}", server.said());
    let turns = turns(&server);
    let ([first, ..], [.., cached]) = (turns[0], *turns.last().unwrap());
    assert!(turns.len() > 1 && cached >= first, "it called a tool, and went on warm: {turns:?}");
}
