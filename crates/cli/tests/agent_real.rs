//! The agent with the real default model: two of the tasks of `cargo xtask eval edits`.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use support::server::Server;
use support::{flint, stderr, stdout};

/// What each task wants changed is a line or three.
const CHANGED_LINES_MAX: usize = 6;

/// Lines of all files that are there in one folder and not in the other.
fn changed_lines(before: &Path, after: &Path) -> usize {
    let lines = |folder: &Path| {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let texts = files.filter(|path| path.is_file()).map(|path| std::fs::read_to_string(path).unwrap());
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect::<Vec<String>>()
    };
    let (before, after) = (lines(before), lines(after));
    let lacks = |one: &[String], other: &[String]| one.iter().filter(|line| !other.contains(line)).count();
    lacks(&before, &after) + lacks(&after, &before)
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn passes(check: &str, folder: &Path) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", check]).current_dir(folder).stdin(Stdio::null());
    command.output().unwrap().status.success()
}

#[test]
fn small_tasks_are_done() {
    let server = Server::of("qwen2.5-coder-1.5b");
    let tasks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/edits");
    for name in ["py-raise", "js-equality"] {
        let task = tasks.join(name);
        let about: toml::Table =
            toml::from_str(&std::fs::read_to_string(task.join("task.toml")).unwrap()).unwrap();
        let [prompt, check] = ["prompt", "verify"].map(|key| about[key].as_str().unwrap());
        let folder = tempfile::tempdir().unwrap();
        copy(&task.join("before"), folder.path());
        assert!(!passes(check, folder.path()), "{name}");
        let mut agent = flint();
        agent.env("FLINT_HOME", server.home.path()).current_dir(folder.path()).stdin(Stdio::null());
        let output = agent.args(["exec", "--json", "--verify", check, prompt]).output().unwrap();
        let said = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{name}: {said}");
        assert!(passes(check, folder.path()), "{name}: {said}");
        let changed = changed_lines(&task.join("before"), folder.path());
        assert!((1..=CHANGED_LINES_MAX).contains(&changed), "{name}: {changed} lines were changed");
        assert!(said.contains("\"model_served\":\"qwen2.5-coder-1.5b\""), "{name}: {said}");
    }
}
