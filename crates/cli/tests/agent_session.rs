//! What surrounds the turns of a session, on the real binary: its server, its instructions, what waits, and its commands.

mod support;

use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::server::{Server, until};
use support::vendor::{Vendor, message};
use support::{MODEL, Terminal, flint, run, stderr, stdout};

fn agent(server: &Server, folder: &Path) -> Command {
    let mut command = flint();
    command.env("FLINT_HOME", server.home.path()).env("TERM", "xterm-256color").current_dir(folder);
    command
}

fn open(command: &mut Command) -> Terminal {
    let mut terminal = Terminal::open(command);
    terminal.wait_for("Do you trust it?");
    terminal.press("n\n");
    terminal.wait_for("\x1b[?1049h");
    terminal
}

fn shows(terminal: &mut Terminal, text: &str) {
    terminal.wait_to_see(text, |screen| screen.contains(text));
}

fn sessions(home: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(home.join("sessions")).unwrap().flatten().map(|file| file.path());
    files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect()
}

/// Ends what was started in a home.
struct Started(tempfile::TempDir);

impl Started {
    fn processes(&self) -> Vec<i32> {
        let wanted = format!("FLINT_HOME={}\0", self.0.path().display());
        let of_home = |pid: &i32| {
            let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&variables).contains(&wanted)
        };
        let names = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).filter(of_home).collect()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        for pid in self.processes() {
            // SAFETY: it has the home of this test, which nobody else knows.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

#[test]
fn a_server_is_started_where_none_runs_and_serves_the_next_one_too() {
    support::model_file();
    let (started, folder) = (Started(tempfile::tempdir().unwrap()), tempfile::tempdir().unwrap());
    let home = started.0.path();
    let mut notes = Vec::new();
    for _ in 0..2 {
        let mut command = flint();
        command.env("FLINT_HOME", home).current_dir(folder.path()).stdin(Stdio::null());
        command.args(["exec", "--json", "-m", MODEL, "hello"]).stdout(Stdio::piped());
        let mut exec = command.spawn().unwrap();
        let mut lines = BufReader::new(exec.stdout.take().unwrap()).lines().map(Result::unwrap);
        // What it says is the small model's affair.
        assert!(lines.any(|line| line.contains("agent_message")), "nobody answers");
        exec.kill().unwrap();
        exec.wait().unwrap();
        notes.push(std::fs::read_to_string(home.join("server.json")).unwrap());
    }
    assert_eq!(notes[0], notes[1]);
    assert!(!started.processes().is_empty(), "it waits for another agent");
}

#[test]
fn instructions_are_read_from_the_root_down_to_here() {
    let vendor = Vendor::start("vendor-1", vec![message("Read.")]);
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("sub/here");
    std::fs::create_dir_all(&here).unwrap();
    std::fs::create_dir(folder.path().join(".git")).unwrap();
    for (file, text) in [
        ("AGENTS.md", "of the root"),
        ("sub/AGENTS.md", "not this"),
        ("sub/AGENTS.override.md", "of the middle"),
        ("sub/here/AGENTS.md", "of here"),
    ] {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    let output = run(vendor.command(&here).args(["exec", "-m", "vendor-1", "-"]), "look");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let body = vendor.asked().body;
    let first = body["input"][0].to_string();
    let places: Vec<Option<usize>> =
        ["of the root", "of the middle", "of here"].iter().map(|text| first.find(text)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{first}");
    assert!(!first.contains("not this"), "{first}");
    assert!(body["input"][1].to_string().contains("look"), "{body}");
}

#[test]
fn a_result_has_its_schema_and_its_file_and_stdout_has_nothing_else() {
    let answer = "{\"files\": 3}";
    let vendor = Vendor::start("vendor-1", vec![message(answer)]);
    let folder = tempfile::tempdir().unwrap();
    let schema = json!({"type": "object", "properties": {"files": {"type": "integer"}},
        "required": ["files"], "additionalProperties": false});
    std::fs::write(folder.path().join("schema.json"), schema.to_string()).unwrap();
    let args = ["exec", "-m", "vendor-1", "--output-schema", "schema.json", "-o", "out.txt", "-"];
    let output = run(vendor.command(folder.path()).args(args), "how many files?");
    assert_eq!((output.status.code(), stdout(&output).trim_end()), (Some(0), answer), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(folder.path().join("out.txt")).unwrap().trim_end(), answer);
    let body = vendor.asked().body;
    let format = &body["text"]["format"];
    assert_eq!((&format["type"], &format["schema"]), (&json!("json_schema"), &schema), "{body}");
    assert!(body["input"].to_string().contains("how many files?"));
}

#[test]
fn what_was_queued_is_said_after_a_crash() {
    let long = "word ".repeat(2_000);
    let server = Server::scripted(&[("be long", long.as_str()), ("be short", "As you wish.")], 60.0);
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = open(&mut agent(&server, folder.path()));
    terminal.press("be long\r");
    shows(&mut terminal, "word word");
    terminal.press("be short\t");
    let files = sessions(server.home.path());
    assert_eq!(files.len(), 1, "{files:?}");
    until("it is on disk", || std::fs::read_to_string(&files[0]).unwrap().contains("\"kind\":\"waiting\""));
    // SAFETY: the child is ours and has not been waited for.
    unsafe { libc::kill(terminal.pid() as i32, libc::SIGKILL) };
    drop(terminal);

    let mut terminal = Terminal::open(agent(&server, folder.path()).arg("resume"));
    shows(&mut terminal, "› be short");
    shows(&mut terminal, "As you wish.");
}

/// Each command that shows or makes something, one after the other.
#[test]
fn commands_do_what_they_say() {
    let lines = [("hello", "Good day."), ("300 words.", "They greeted."), ("", "Well.")];
    let server = Server::scripted(&lines, 2_000.0);
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = open(agent(&server, folder.path()).args(["-m", MODEL]));
    terminal.press("hello\r");
    shows(&mut terminal, "Good day.");
    shows(&mut terminal, "enter sends");
    let pages = [
        ("/status", "digest"),
        ("/usage", "reasoning"),
        ("/diff", "No file was changed."),
        ("/permissions", "approval_policy:"),
        ("/agents", "There are none"),
        ("/help", "/compact"),
    ];
    for (command, text) in pages {
        terminal.press(&format!("{command}\r"));
        shows(&mut terminal, text);
        terminal.press("\x1b");
        terminal.wait_to_see("the page closed", |screen| screen.contains("Good day."));
    }
    terminal.press("/export talk.md\r");
    shows(&mut terminal, "written to");
    let talk = std::fs::read_to_string(folder.path().join("talk.md")).unwrap();
    assert_eq!(talk, "## hello\n\nGood day.\n\n");
    terminal.press("/fast on\r");
    shows(&mut terminal, "asked to be served sooner");
    terminal.press("quick\r");
    shows(&mut terminal, "Well.");
    terminal.wait_to_see("the tier and its speed", |screen| {
        let line = screen.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        line.starts_with(&format!("{MODEL} (priority)")) && line.contains(" tok/s")
    });
    terminal.press("/compact\r");
    shows(&mut terminal, "The conversation was made short");
    assert_eq!(sessions(server.home.path()).len(), 1);
    terminal.press("/fork\r");
    until("there are two sessions", || sessions(server.home.path()).len() == 2);
    terminal.wait_to_see("the same again", |screen| {
        screen.contains("Good day.") && !screen.contains("made short")
    });
    terminal.press("/clear\r");
    terminal.wait_to_see("an empty session", |screen| {
        screen.contains("enter sends") && !screen.contains("Good day.")
    });
    terminal.press("hello\r");
    shows(&mut terminal, "Good day.");
    assert_eq!(sessions(server.home.path()).len(), 3);
    terminal.press("\x03\x03\x03");
    terminal.wait_for("flint resume");
    assert_eq!(terminal.wait().code(), Some(0));
}

#[test]
fn init_has_an_agents_file_written() {
    let patch = "*** Begin Patch\n*** Add File: AGENTS.md\n+Build with make.\n*** End Patch";
    let call = json!({"name": "patch", "arguments": {"patch": patch}});
    let call = format!("<tool_call>\n{call}\n</tool_call>");
    let server =
        Server::scripted(&[(" lines that a newcomer needs.", call.as_str()), ("", "It is there.")], 2_000.0);
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = open(agent(&server, folder.path()).args(["-m", MODEL, "-s", "workspace-write"]));
    terminal.press("/init\r");
    shows(&mut terminal, "AGENTS.md is being written");
    // What agents are told is not changed without a word.
    terminal.wait_for("Make these changes?");
    // It is painted again when it listens.
    terminal.wait_for("this once");
    terminal.wait_for("this once");
    assert!(!folder.path().join("AGENTS.md").exists());
    terminal.press("y");
    shows(&mut terminal, "It is there.");
    let written = std::fs::read_to_string(folder.path().join("AGENTS.md")).unwrap();
    assert_eq!(written, "Build with make.\n");
}

/// The tracer plays a kernel that lacks a part. Without one this is not shown.
#[test]
fn where_commands_cannot_be_confined_nothing_is_begun() {
    if !support::can_trace() {
        return;
    }
    let server = Server::scripted(&[("", "Hello.")], 2_000.0);
    let folder = tempfile::tempdir().unwrap();
    let exec = |fault: &str, mode: &str| {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e"]).arg(format!("inject={fault}"));
        command.arg(env!("CARGO_BIN_EXE_flint")).args(["exec", "-s", mode, "hello"]);
        command.env("FLINT_HOME", server.home.path()).current_dir(folder.path());
        command.stdin(Stdio::null()).output().unwrap()
    };
    for (fault, lacks) in [
        ("landlock_create_ruleset:error=ENOSYS", "Landlock is not there"),
        ("prctl:error=EINVAL", "seccomp is not there"),
    ] {
        let output = exec(fault, "workspace-write");
        let said = stderr(&output);
        assert_ne!(output.status.code(), Some(0), "{said}");
        let message = format!("this kernel cannot confine commands: {lacks}. Linux 6.12");
        assert_eq!((said.matches(&message).count(), stdout(&output).as_str()), (1, ""), "{said}");
        assert_eq!(stdout(&exec(fault, "danger-full-access")), "Hello.\n");
    }
}
