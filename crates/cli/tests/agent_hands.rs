//! Other agents that work for one, on the real binary, against a real server that plays given answers.

mod support;

use flint_agent::hands::Role;
use flint_agent::limits::ROLES_MAX;
use flint_agent::prompt;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use support::server::Server;
use support::{Terminal, flint, run, stderr, stdout};

fn call(name: &str, arguments: Value) -> String {
    format!("<tool_call>\n{}\n</tool_call>", json!({"name": name, "arguments": arguments}))
}

fn delegate(role: &str, task: &str) -> String {
    call("agent", json!({"role": role, "task": task}))
}

/// What the model reads when its task was given away.
fn begun(role: &str) -> String {
    format!("agent_1 ({role}) has begun. Its report will come as a message; go on meanwhile.")
}

/// A server, a folder to work in, and files of roles.
struct Desk {
    server: Server,
    folder: tempfile::TempDir,
}

impl Desk {
    fn new(lines: &[(&str, &str)], rate: f64) -> Desk {
        Desk { server: Server::scripted(lines, rate), folder: tempfile::tempdir().unwrap() }
    }

    fn home(&self) -> &Path {
        self.server.home.path()
    }

    /// One of the user's.
    fn role(&self, name: &str, text: &str) {
        write(&self.home().join("agents").join(name), text);
    }

    fn trusts(&self) {
        let folder = self.folder.path().canonicalize().unwrap();
        let text = format!("[projects.{:?}]\ntrust_level = \"trusted\"\n", folder.to_str().unwrap());
        write(&self.home().join("config.toml"), &text);
    }

    fn flint(&self) -> Command {
        let mut command = flint();
        command.env("FLINT_HOME", self.home()).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn exec(&self, args: &[&str]) -> Output {
        self.flint().arg("exec").args(args).output().unwrap()
    }

    /// The lines of JSON of a turn that went well.
    fn events(&self, prompt: &str) -> Vec<Value> {
        let output = self.exec(&["--json", prompt]);
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Ctrl-C, once a turn has said this. Returns its last event.
    fn interrupts(&self, prompt: &str, words: &str) -> Value {
        let (code, last) = self.signals(prompt, words, libc::SIGINT);
        assert_eq!(code, Some(130));
        serde_json::from_str(&last.unwrap()).unwrap()
    }

    /// The exit code, and the last line.
    fn signals(&self, prompt: &str, words: &str, signal: i32) -> (Option<i32>, Option<String>) {
        let mut exec = self.flint().args(["exec", "--json", prompt]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(exec.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains(words)), "it ended before {words:?}");
        // SAFETY: the child is ours and has not been waited for.
        unsafe { libc::kill(exec.id() as i32, signal) };
        let last = lines.last();
        (exec.wait().unwrap().code(), last)
    }

    fn terminal(&self) -> Terminal {
        self.trusts();
        let mut terminal = Terminal::open(self.flint().env("TERM", "xterm-256color"));
        terminal.wait_for("\x1b[?1049h");
        terminal
    }

    fn session(&self, id: &str) -> String {
        std::fs::read_to_string(self.home().join(format!("sessions/{id}.jsonl"))).unwrap()
    }

    /// The only one that there is.
    fn only_session(&self) -> String {
        let files =
            std::fs::read_dir(self.home().join("sessions")).unwrap().flatten().map(|file| file.path());
        let files: Vec<PathBuf> = files.filter(|path| path.is_file()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        std::fs::read_to_string(&files[0]).unwrap()
    }

    fn says(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join(file)).ok()
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn ended<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    let found =
        events.iter().find(|event| event["type"] == "item.completed" && event["item"]["type"] == kind);
    &found.unwrap_or_else(|| panic!("no {kind} in {events:#?}"))["item"]
}

fn quit(mut terminal: Terminal) {
    terminal.press("\x03\x03\x03");
    terminal.wait_for("flint resume");
    assert_eq!(terminal.wait().code(), Some(0));
}

#[test]
fn a_report_reaches_the_model_and_the_ledger() {
    let give = delegate("counter", "count the files");
    let lines = [
        ("how many?", give.as_str()),
        (&begun("counter"), "I wait for it."),
        ("count the files", "There are three."),
        ("There are three.", "Three, says the counter."),
    ];
    let desk = Desk::new(&lines, 5_000.0);
    desk.role(
        "counter.toml",
        "description = 'counts'\nmodel = 'smollm2-135m'\ndeveloper_instructions = 'Count.'",
    );
    let events = desk.events("how many?");
    let agent = ended(&events, "collab_tool_call");
    assert_eq!((&agent["agent"], &agent["task"]), (&json!("counter"), &json!("count the files")));
    assert_eq!((&agent["report"], &agent["status"]), (&json!("There are three."), &json!("completed")));
    assert_eq!(agent["flint"]["model_served"], "smollm2-135m");
    assert!(agent["usage"]["output_tokens"].as_u64() > Some(0), "{agent}");
    let mut messages = events.iter().filter(|event| event["item"]["type"] == "agent_message");
    assert_eq!(messages.next_back().unwrap()["item"]["text"], "Three, says the counter.");

    let end = events.last().unwrap();
    let share = &end["flint"]["agents"][0];
    assert_eq!((&share["agent"], &share["usage"]), (&json!("counter"), &agent["usage"]), "{end}");
    // The turn's own tokens are its own: what the agent took stands beside.
    assert_eq!(end["flint"]["requests"], 3);

    let parent = desk.session(events[0]["thread_id"].as_str().unwrap());
    let record = parent.lines().find(|line| line.contains("\"kind\":\"agent\"")).unwrap();
    let record: Value = serde_json::from_str(record.split_once(' ').unwrap().1).unwrap();
    let own = desk.session(&format!("agents/{}", record["session"].as_str().unwrap()));
    assert!(own.contains("count the files") && !own.contains("how many?"), "{own}");
    // Nobody takes an agent's session up for their own.
    let again = run(desk.flint().args(["exec", "resume", "--last"]), "how many?");
    assert!(
        desk.session(events[0]["thread_id"].as_str().unwrap()).len() > parent.len(),
        "{}",
        stderr(&again)
    );
}

#[test]
fn a_pin_that_is_not_served_fails_the_spawn() {
    let give = delegate("deep", "think");
    let lines = [
        ("go deep", give.as_str()),
        (" there is: smollm2-135m.", "It could not be had."),
        ("think", "I am somebody else."),
    ];
    let desk = Desk::new(&lines, 5_000.0);
    desk.role("deep.toml", "model = 'gpt-oss-120b'");
    let events = desk.events("go deep");
    let agent = ended(&events, "collab_tool_call");
    let report = agent["report"].as_str().unwrap();
    assert!(report.contains("gpt-oss-120b is not served") && report.contains("smollm2-135m"), "{report}");
    assert_eq!((&agent["status"], &agent["usage"]["input_tokens"]), (&json!("failed"), &json!(0)));
    assert_eq!(ended(&events, "agent_message")["text"], "It could not be had.");
    // Nobody else was asked, and there is no session of one that did not begin.
    let sessions = std::fs::read_dir(desk.home().join("sessions/agents")).map_or(0, Iterator::count);
    assert_eq!(sessions, 0);
}

#[test]
fn roles_of_a_project_count_when_it_is_trusted() {
    let give = delegate("local", "say it");
    let lines = [
        ("let it be said", give.as_str()),
        (&begun("local"), "Yes."),
        ("say it", "Said."),
        ("Said.", "It was said."),
    ];
    let desk = Desk::new(&lines, 5_000.0);
    write(
        &desk.folder.path().join(".codex/agents/local.toml"),
        "description = 'says'\nnickname_candidates = ['Al']",
    );
    write(&desk.folder.path().join(".flint/agents/x.toml"), "modle = 'y'");
    let events = desk.events("let it be said");
    // A tool that is not there is text.
    assert_eq!(ended(&events, "agent_message")["text"], give.as_str());
    assert!(!events.iter().any(|event| event["type"] == "flint.notice"), "{events:?}");

    desk.trusts();
    let events = desk.events("let it be said");
    assert_eq!(ended(&events, "collab_tool_call")["report"], "Said.");
    let notices: Vec<&str> = events.iter().filter_map(|event| event["message"].as_str()).collect();
    let told = |words: &str| notices.iter().any(|notice| notice.contains(words));
    assert!(told("local.toml:2: `nickname_candidates` means nothing in an agent's file"), "{notices:?}");
    assert!(told("x.toml:1: `modle` means nothing in an agent's file; did you mean `model`?"), "{notices:?}");
}

#[test]
fn a_role_has_no_more_rights_than_the_session() {
    let outside = tempfile::tempdir().unwrap();
    let there = outside.path().join("there");
    let shell = call("shell", json!({"command": format!("echo x > {}; echo x > here", there.display())}));
    let (wide, narrow) = (delegate("wide", "write as wide"), delegate("narrow", "write as narrow"));
    let lines = [
        ("be wide", wide.as_str()),
        ("be narrow", &narrow),
        (&begun("wide"), "I wait."),
        (&begun("narrow"), "I wait."),
        ("write as wide", &shell),
        ("write as narrow", &shell),
        ("", "Done."),
    ];
    let desk = Desk::new(&lines, 5_000.0);
    desk.role("wide.toml", "sandbox_mode = 'danger-full-access'\n");
    desk.role("narrow.toml", "sandbox_mode = 'read-only'\n");
    let events = desk.events("be narrow");
    assert_eq!(ended(&events, "collab_tool_call")["status"], "completed");
    assert_eq!((desk.says("here"), there.exists()), (None, false), "{events:#?}");
    let events = desk.events("be wide");
    let notices: Vec<&str> = events.iter().filter_map(|event| event["message"].as_str()).collect();
    let told = "wide.toml:1: `sandbox_mode` is ignored: an agent can only have fewer rights than the session";
    assert!(notices.iter().any(|notice| notice.ends_with(told)), "{notices:?}");
    assert_eq!((desk.says("here").as_deref(), there.exists()), (Some("x\n"), false), "{events:#?}");
}

#[test]
fn an_agent_that_asks_where_nobody_is_needs_a_yes() {
    let (give, free) =
        (delegate("free", "set it free"), call("shell", json!({"command": "id", "unconfined": true})));
    let lines =
        [("be free", give.as_str()), (&begun("free"), "I wait."), ("set it free", &free), ("", "Done.")];
    let desk = Desk::new(&lines, 5_000.0);
    desk.role("free.toml", "description = 'is free'");
    let output = desk.exec(&["-a", "on-request", "be free"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("the command `id` of the agent free needs a yes"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_turn_that_is_stopped_stops_its_agents_and_keeps_what_is_done() {
    let (give, long) = (delegate("slow", "be long"), "word ".repeat(4_000));
    let lines = [("be slow", give.as_str()), (&begun("slow"), "I wait."), ("be long", &long)];
    let desk = Desk::new(&lines, 100.0);
    desk.role("slow.toml", "description = 'is slow'");
    let end = desk.interrupts("be slow", "in_progress");
    // What was taken by then is told all the same.
    assert_eq!((&end["type"], &end["error"]["message"]), (&json!("turn.failed"), &json!("interrupted")));
    assert_eq!(end["flint"]["agents"][0]["agent"], "slow", "{end}");
    assert_eq!(end["flint"]["model_served"], "smollm2-135m", "{end}");
    let parent = desk.only_session();
    let report = parent.lines().find(|line| line.contains("Report of agent_1 (slow)")).unwrap();
    assert!(report.contains("It was stopped before it was done."), "{report}");
}

#[test]
fn an_agent_that_ended_with_the_program_is_not_waited_for() {
    let (give, long) = (delegate("slow", "be long"), "word ".repeat(9_000));
    let lines = [
        ("be slow", give.as_str()),
        (&begun("slow"), "I wait."),
        ("be long", &long),
        ("well?", "It is gone."),
    ];
    let desk = Desk::new(&lines, 300.0);
    desk.role("slow.toml", "description = 'is slow'");
    assert_eq!(desk.signals("be slow", "I wait.", libc::SIGKILL).0, None);
    for _ in 0..2 {
        let again = run(desk.flint().args(["exec", "resume", "--last"]), "well?");
        assert_eq!(
            (again.status.code(), stdout(&again).as_str()),
            (Some(0), "It is gone.\n"),
            "{}",
            stderr(&again)
        );
    }
    let parent = desk.only_session();
    assert_eq!(parent.matches("It ended with the program").count(), 2, "the item and its record: {parent}");
}

#[test]
fn only_so_many_are_at_work_at_once() {
    let (give, long) = (delegate("slow", "be long"), "word ".repeat(9_000));
    let begun: Vec<String> = (1..=4).map(|number| begun("slow").replace('1', &number.to_string())).collect();
    let mut lines = vec![("be slow", give.as_str()), ("be long", &long)];
    lines.extend(begun.iter().map(|begun| (begun.as_str(), give.as_str())));
    let desk = Desk::new(&lines, 300.0);
    desk.role("slow.toml", "description = 'is slow'");
    desk.interrupts("be slow", "4 agents are at work already");
    let parent = desk.only_session();
    assert!(parent.contains("Nothing was begun: 4 agents are at work already"), "{parent}");
    assert_eq!(parent.matches("Report of agent_").count(), 4, "{parent}");
}

#[test]
fn a_background_agent_reports_while_another_turn_runs() {
    let (count, long) = ("one ".repeat(150) + "\nCounted", "word ".repeat(4_000));
    let lines = [("count slowly", count.as_str()), ("be long", &long), ("well?", "It counted.")];
    let desk = Desk::new(&lines, 60.0);
    desk.role("counter.toml", "description = 'counts'");
    let mut terminal = desk.terminal();
    terminal.press("/agents counter count slowly\r");
    terminal.wait_for("agent counter:");
    terminal.press("be long\r");
    terminal.wait_for("word");
    terminal.wait_for("Counted");
    assert!(desk.only_session().contains("be long"));
    terminal.press("\x1b");
    terminal.wait_for("Interrupted");
    terminal.press("/agents\r");
    terminal.wait_for("agent_1");
    terminal.press("\x1b");
    terminal.wait_for("Interrupted");
    terminal.press("well?\r");
    terminal.wait_for("counted");
    terminal.press("/agents counter be long\r");
    terminal.wait_for("agent counter:");
    terminal.press("/agents stop 2\r");
    terminal.wait_for("It was stopped");
    quit(terminal);
    let parent = desk.only_session();
    let (report, words) = (parent.find("Report of agent_1"), parent.find("\"well?\""));
    assert!(report.is_some() && report < words, "{parent}");
    let mut again = Terminal::open(desk.flint().arg("resume").env("TERM", "xterm-256color"));
    again.wait_for("agent counter:");
    again.wait_for("Counted");
    quit(again);
}

#[test]
fn a_person_is_asked_for_an_agent_and_what_it_changes_is_taken_back() {
    let give = delegate("gardener", "plant it");
    let edit = call("edit", json!({"path": "b.txt", "old": "", "new": "planted"}));
    let lines = [
        ("have it planted", give.as_str()),
        (&begun("gardener"), "I wait."),
        ("plant it", &edit),
        ("Done: b.txt changed.", "Planted."),
        ("Planted.", "So be it."),
    ];
    let desk = Desk::new(&lines, 2_000.0);
    desk.role("gardener.toml", "description = 'plants'\napproval_policy = 'untrusted'");
    let mut terminal = desk.terminal();
    terminal.press("have it planted\r");
    terminal.wait_for("Agent gardener asks:");
    // It is painted again when it listens.
    terminal.wait_for("this once");
    terminal.wait_for("this once");
    assert_eq!(desk.says("b.txt"), None);
    terminal.press("y");
    terminal.wait_for("So");
    assert_eq!(desk.says("b.txt").as_deref(), Some("planted\n"));
    terminal.wait_for("enter sends");
    terminal.press("/undo\r");
    terminal.wait_to_see("a preview", |screen| screen.contains("enter does it"));
    terminal.press("\r");
    terminal.wait_for("Undone");
    assert_eq!(desk.says("b.txt"), None);
    quit(terminal);
}

#[test]
fn what_the_model_is_told_first_stays_short() {
    let about = "looks at whatever is new, and says what could be wrong with it; ".repeat(20);
    let role = |number: usize| Role {
        name: format!("reviewer-of-all-things-{number:02}"),
        description: about.clone(),
        ..Role::default()
    };
    let roles: Vec<Role> = (0..ROLES_MAX).map(role).collect();
    let mut tools = prompt::tools(true);
    tools.as_array_mut().unwrap().push(prompt::agent(&roles, true));
    let desk = Desk::new(&[], 5_000.0);
    let input = format!("{}{tools}", prompt::INSTRUCTIONS);
    let counted = desk.server.post("/v1/responses/input_tokens", &json!({"input": input})).json();
    let tokens = counted["input_tokens"].as_u64().unwrap();
    assert!((1_000..=3_000).contains(&tokens), "{counted}");
}
