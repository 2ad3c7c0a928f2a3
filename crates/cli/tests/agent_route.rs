//! Two models in one session, on the real binary: two real servers that play given answers under two names.

mod support;

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::server::Server;
use support::{MODEL, Terminal, flint, model_file, stderr, stdout};

const DEEP: &str = "deeper";

/// A server for each model; the settings, which name both, are in the first one's home.
struct Two {
    fast: Server,
    deep: Server,
    folder: tempfile::TempDir,
}

impl Two {
    fn start(fast: &[(&str, &str)], deep: &[(&str, &str)], files: &[(&str, &str)], mode: &str) -> Two {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(format!("{DEEP}.gguf"));
        std::os::unix::fs::symlink(model_file(), &file).unwrap();
        let deep = Server::scripted_in(home, deep, 5_000.0, &["-m", file.to_str().unwrap()], &[]);
        let home = tempfile::tempdir().unwrap();
        let settings = format!(
            "model = \"{MODEL}\"\n\n[router]\nmode = \"{mode}\"\nrealtime = \"quick\"\ndeep = \"long\"\n\n\
             [profiles.quick]\nmodel = \"{MODEL}\"\nsandbox_mode = \"danger-full-access\"\n\n\
             [profiles.long]\nmodel = \"{DEEP}\"\nmodel_provider = \"other\"\n\n\
             [model_providers.other]\nbase_url = \"http://{}/v1\"\nenv_key = \"DEEP_KEY\"\nsupports_websockets = true\n",
            deep.address
        );
        std::fs::write(home.path().join("config.toml"), settings).unwrap();
        let fast = Server::scripted_in(home, fast, 5_000.0, &[], &[]);
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
        Two { fast, deep, folder }
    }

    fn flint(&self) -> Command {
        let mut command = flint();
        command.env("FLINT_HOME", self.fast.home.path()).env("DEEP_KEY", &self.deep.key);
        command.current_dir(self.folder.path());
        command
    }

    fn exec(&self, args: &[&str]) -> Output {
        self.flint().stdin(Stdio::null()).arg("exec").args(args).output().unwrap()
    }

    fn says(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap()
    }
}

fn events(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// What was said, in the records of the session.
fn records(home: &Path, events: &[Value]) -> String {
    let id = events[0]["thread_id"].as_str().unwrap();
    std::fs::read_to_string(home.join(format!("sessions/{id}.jsonl"))).unwrap()
}

const CHECK: &str = "echo seen by the check; grep -q right a.txt";

#[test]
fn what_fails_its_check_goes_to_the_deep_model_with_the_evidence() {
    // The quick model writes nothing right, however often it is asked. The deep one is shown the file as it is.
    let two = Two::start(
        &[("", "I cannot.")],
        &[
            ("finish the task.\n\na.txt is now:\n```\nwrong\n```", "I look."),
            ("wrong\n```", "```\nright\n```\n"),
            ("", "Done."),
        ],
        &[("a.txt", "wrong\n")],
        "auto",
    );
    let output = two.exec(&["--json", "--verify", CHECK, "correct a.txt"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(two.says("a.txt"), "right\n");
    let events = events(&output);
    let routed = of_kind(&events, "flint.routed");
    assert_eq!(routed.len(), 2, "{routed:?}");
    assert_eq!(
        (&routed[0]["profile"], &routed[0]["how"], &routed[0]["model"]),
        (&json!("quick"), &json!("chosen"), &json!(MODEL))
    );
    assert!(routed[0]["why"].as_str().unwrap().starts_with("one file (a.txt), and `echo seen"), "{routed:?}");
    assert_eq!((&routed[1]["profile"], &routed[1]["how"]), (&json!("long"), &json!("escalated")));
    assert!(routed[1]["why"].as_str().unwrap().ends_with("failed with exit code 1"), "{routed:?}");
    // The last attempt's end is the end, by the other model.
    let end = events.last().unwrap();
    assert_eq!((&end["type"], &end["flint"]["model_served"]), (&json!("turn.completed"), &json!(DEEP)));
    let records = records(two.fast.home.path(), &events);
    let evidence = records
        .lines()
        .find(|line| line.contains("Another model tried"))
        .unwrap_or_else(|| panic!("{records}"));
    for words in
        ["The task: correct a.txt", "ended with exit code 1", "seen by the check", "It changed no file."]
    {
        assert!(evidence.contains(words), "no {words:?} in {evidence}");
    }
    // A profile's rights do not come with its model.
    let notices = of_kind(&events, "flint.notice");
    assert!(
        notices.iter().any(|notice| {
            let text = notice["message"].as_str().unwrap();
            text.contains("config.toml:10: `sandbox_mode` does not count")
        }),
        "{notices:?}"
    );
}

#[test]
fn a_tag_and_a_profile_override_the_router() {
    let two = Two::start(&[("", "Quick.")], &[("", "Long.")], &[("a.txt", "a\n"), ("b.txt", "b\n")], "auto");
    for (args, said, why) in [
        (&["what is a.txt?"][..], "Quick.\n", "it is a question"),
        (&["compare a.txt and b.txt"], "Long.\n", "it names 2 files"),
        (&["[FAST] compare a.txt and b.txt"], "Quick.\n", "its tag says so"),
        (&["[codex] what is a.txt?"], "Long.\n", "its tag says so"),
        (&["-p", "long", "what is a.txt?"], "Long.\n", ""),
        (&["-m", MODEL, "compare a.txt and b.txt"], "Quick.\n", ""),
        (&["-c", "router.mode=off", "[DEEP] compare a.txt and b.txt"], "Quick.\n", ""),
    ] {
        let output = two.exec(args);
        assert_eq!(
            (output.status.code(), stdout(&output).as_str()),
            (Some(0), said),
            "{args:?}: {}",
            stderr(&output)
        );
        let line = stderr(&output)
            .lines()
            .find(|line| line.starts_with("note: the router takes"))
            .map(str::to_owned);
        assert_eq!(line.is_some(), !why.is_empty(), "{args:?}: {line:?}");
        assert!(line.unwrap_or_default().contains(why), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_router_that_suggests_changes_nothing() {
    let two =
        Two::start(&[("", "Quick.")], &[("", "Long.")], &[("a.txt", "a\n"), ("b.txt", "b\n")], "suggest");
    let output = two.exec(&["--json", "--verify", "false", "compare a.txt and b.txt"]);
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    let events = events(&output);
    let hows: Vec<_> = of_kind(&events, "flint.routed")
        .iter()
        .map(|event| (event["how"].clone(), event["profile"].clone()))
        .collect();
    assert_eq!(hows, [(json!("suggested"), json!("long")), (json!("suggested"), json!("long"))]);
    assert_eq!(of_kind(&events, "turn.started").len(), 1);
    let end = events.last().unwrap();
    assert_eq!((&end["type"], &end["flint"]["model_served"]), (&json!("turn.failed"), &json!(MODEL)));
    let output = two.exec(&["-c", "router.deep=nobody", "hello"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("there is no profile \"nobody\""), "{}", stderr(&output));
}

#[test]
fn the_steps_of_a_list_run_on_their_models() {
    let edit = json!({"name": "edit", "arguments": {"path": "a.txt", "old": "", "new": "planted"}});
    let edit = format!("<tool_call>\n{edit}\n</tool_call>");
    let list = "Be brief.\n\n1. [FAST] plant it\n2. [x] long done\n3. [DEEP] count\n   and wait\n4. look\n";
    let two = Two::start(
        &[("Be brief.\n\nplant it", edit.as_str()), ("", "Quick.")],
        &[("Be brief.\n\ncount\n   and wait", "Counted."), ("", "Long.")],
        &[("plan.md", list)],
        "off",
    );
    let output = two.exec(&["--json", "--tasks", "plan.md"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert_eq!(two.says("a.txt"), "planted\n");
    let events = events(&output);
    let steps: Vec<_> = of_kind(&events, "flint.step.completed")
        .iter()
        .map(|event| {
            (
                event["step"].as_u64().unwrap(),
                event["model_served"].as_str(),
                event["result"].as_str().unwrap(),
            )
        })
        .collect();
    let skipped = (2, None, "ticked off already");
    assert_eq!(steps, [(1, Some(MODEL), "done"), skipped, (3, Some(DEEP), "done"), (4, Some(MODEL), "done")]);
    // One session, whatever the model: all of it is in one file.
    assert_eq!(of_kind(&events, "thread.started").len(), 1);
    let records = records(two.fast.home.path(), &events);
    assert!(
        records.contains("plant it") && records.contains("Counted.") && records.contains("Quick."),
        "{records}"
    );
    let table = stderr(&output);
    assert!(table.lines().any(|line| line.trim_start().starts_with(&format!("3  {DEEP}"))), "{table}");
}

#[test]
fn a_step_that_fails_ends_the_list_unless_it_is_to_go_on() {
    let list = "- [FAST] look at a.txt\n- [DEEP] correct a.txt\n- look at a.txt again\n";
    let two = Two::start(
        &[("", "I cannot.")],
        &[("wrong\n```", "```\nright\n```\n"), ("", "Long.")],
        &[("plan.md", list), ("none.md", "Do it.\n"), ("a.txt", "wrong\n")],
        "off",
    );
    let check = "grep -q right a.txt";
    let output = two.exec(&["--tasks", "plan.md", "--verify", check]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("step 1: the check failed") && said.contains("2 more were not begun"), "{said}");
    // The first step fails again, the second makes it right, and the exit code is that of the first.
    let output = two.exec(&["--tasks", "plan.md", "--keep-going", "--verify", check]);
    let said = stderr(&output);
    assert_eq!((output.status.code(), two.says("a.txt").as_str()), (Some(6), "right\n"), "{said}");
    let done = |start: &str| said.lines().rfind(|line| line.starts_with(start)).unwrap().ends_with("done");
    assert_eq!([done("   1  "), done("   2  "), done("   3  ")], [false, true, true], "{said}");
    let output = two.exec(&["--tasks", "none.md"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("1. [FAST] Rename"), "{}", stderr(&output));
    let output = two.exec(&["--tasks", "plan.md", "-c", "router.deep=nobody"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    std::fs::write(two.fast.home.path().join("config.toml"), format!("model = \"{MODEL}\"\n")).unwrap();
    let output = two.exec(&["--tasks", "plan.md"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let words = "line 1 has a tag for the real-time model, and router.realtime names no profile";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
}

#[test]
fn a_setting_that_the_model_ignores_is_told_once_with_its_line() {
    let two =
        Two::start(&[("", "Quick.")], &[("", "Long.")], &[("plan.md", "1. a\n2. b\n3. [DEEP] c\n")], "off");
    let path = two.fast.home.path().join("config.toml");
    let settings = std::fs::read_to_string(&path).unwrap();
    // Above all tables, and in the other model's profile; neither model thinks.
    let settings = format!("model_reasoning_effort = \"high\"\n{settings}");
    let settings = settings.replace("[profiles.long]\n", "[profiles.long]\nmodel_verbosity = \"low\"\n");
    std::fs::write(&path, settings).unwrap();
    let output = two.exec(&["--tasks", "plan.md", "-c", "service_tier=priority"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let told: Vec<&str> = said.lines().filter(|line| line.contains("has no effect")).collect();
    let file = path.display();
    assert_eq!(
        told,
        [
            format!("note: {file}:1: `model_reasoning_effort` has no effect: {MODEL} has no use for it"),
            format!("note: {file}:1: `model_reasoning_effort` has no effect: {DEEP} has no use for it"),
            format!("note: {file}:14: `model_verbosity` has no effect: {DEEP} has no use for it"),
        ],
        "{said}"
    );
}

#[test]
fn the_terminal_says_which_model_a_turn_is_for() {
    let two = Two::start(&[("", "Quick.")], &[("", "Long.")], &[("a.txt", "a\n"), ("b.txt", "b\n")], "auto");
    let mut terminal = Terminal::open(two.flint().env("TERM", "xterm-256color"));
    terminal.wait_for("Do you trust it?");
    terminal.press("n\n");
    terminal.wait_for("\x1b[?1049h");
    terminal.press("compare a.txt and b.txt\r");
    terminal.wait_for("the router takes long");
    terminal.wait_for("Long");
    terminal.press("\x03\x03\x03");
    terminal.wait_for("flint resume");
    assert_eq!(terminal.wait().code(), Some(0));
}
