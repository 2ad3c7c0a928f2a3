//! The real clients, unmodified: the Codex CLI and OpenAI's SDKs for Python and JavaScript.

mod support;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use support::server::Server;

/// Where `cargo xtask test` installs the clients.
fn clients() -> PathBuf {
    let models = support::model_file();
    let folder = models.ancestors().nth(2).unwrap().join("clients");
    assert!(folder.is_dir(), "{} is missing: run `cargo xtask test`", folder.display());
    folder
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) = (support::stdout(&output), support::stderr(&output));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    output
}

fn python(parts: &[&str]) {
    let server = Server::start();
    for part in parts {
        let mut sdk = Command::new(clients().join("python/bin/python"));
        let base_url = format!("http://{}/v1", server.address);
        succeeds(sdk.arg(script("sdk.py")).args([&base_url, &server.key, support::MODEL, part]));
    }
}

#[test]
fn python_sdk() {
    python(&["create", "stream", "tools", "chat", "errors"]);
}

#[test]
fn python_sdk_200_schemas() {
    python(&["structured"]);
}

#[test]
fn javascript_sdk() {
    let server = Server::start();
    let base_url = format!("http://{}/v1", server.address);
    let mut node = Command::new("node");
    let node = node.arg(script("sdk.mjs")).arg(clients());
    succeeds(node.args([&base_url, &server.key, support::MODEL]));
}

/// A Codex home and a folder to work in. Neither may lie under the temporary folder: Codex refuses that.
struct Codex {
    home: tempfile::TempDir,
    work: tempfile::TempDir,
    key: String,
}

impl Codex {
    fn new(server: &Server, model: &str, websockets: bool) -> Codex {
        let folder = clients();
        let home = tempfile::tempdir_in(&folder).unwrap();
        let work = tempfile::tempdir_in(&folder).unwrap();
        std::fs::write(work.path().join("note.txt"), "the secret word is marmalade\n").unwrap();
        let base = format!("http://{}/v1", server.address);
        let config = format!(
            "model = \"{model}\"\nmodel_provider = \"flint\"\nweb_search = \"disabled\"\n\
             include_permissions_instructions = false\n\
             [model_providers.flint]\nname = \"Flint\"\nbase_url = \"{base}\"\n\
             model_catalog_url = \"{base}/models\"\nenv_key = \"FLINT_API_KEY\"\nwire_api = \"responses\"\n\
             supports_websockets = {websockets}\n\
             [skills.bundled]\nenabled = false\n\
             [features]\nmulti_agent = false\ngoals = false\nview_image = false\napps = false\nplugins = false\n"
        );
        std::fs::write(home.path().join("config.toml"), config).unwrap();
        Codex { home, work, key: server.key.clone() }
    }

    /// Runs `codex exec` and returns its events.
    fn exec(&self, args: &[&str]) -> Vec<Value> {
        let mut command = Command::new("timeout");
        command.arg("240").arg(clients().join("node_modules/.bin/codex")).arg("exec").args(args);
        command.args(["--skip-git-repo-check", "--json"]);
        command
            .current_dir(self.work.path())
            .env("CODEX_HOME", self.home.path())
            .env("FLINT_API_KEY", &self.key);
        let output = succeeds(&mut command);
        let out = support::stdout(&output);
        out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

fn items<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let items = events.iter().filter(|event| event["type"] == "item.completed").map(|event| &event["item"]);
    items.filter(|item| item["type"] == kind).collect()
}

/// One turn in which a command really ran, and a second one that remembers it.
fn reads_the_note(codex: &Codex, prompt: &str) {
    let events = codex.exec(&["-s", "danger-full-access", prompt]);
    let commands = items(&events, "command_execution");
    let ran = commands.first().unwrap_or_else(|| panic!("no command ran: {events:#?}"));
    assert!(ran["aggregated_output"].as_str().unwrap().contains("marmalade"), "{ran}");
    assert_eq!(ran["exit_code"], 0);
    let answer = items(&events, "agent_message").last().unwrap()["text"].to_string();
    assert!(answer.contains("marmalade"), "{answer}");
    let events = codex.exec(&["resume", "--last", "Say that word again."]);
    let answer = items(&events, "agent_message").last().unwrap()["text"].to_string();
    assert!(answer.contains("marmalade"), "{answer}");
    let usage = &events.last().unwrap()["usage"];
    assert!(
        usage["cached_input_tokens"].as_u64().unwrap() > 500,
        "the second process found its session: {usage}"
    );
}

#[test]
fn codex_with_a_real_model() {
    let server = Server::of("qwen2.5-coder-1.5b");
    for websockets in [true, false] {
        let codex = Codex::new(&server, "qwen2.5-coder-1.5b", websockets);
        reads_the_note(&codex, "Read the file note.txt with a shell command and tell me the secret word.");
    }
}

#[test]
fn codex_with_a_script() {
    let call = json!({"name": "exec_command", "arguments": {"cmd": "cat note.txt"}});
    let call = format!("<tool_call>\n{call}\n</tool_call>");
    let server = Server::scripted(&[("read the note", &call), ("", "It says marmalade.")], 2000.0);
    for websockets in [true, false] {
        reads_the_note(&Codex::new(&server, support::MODEL, websockets), "read the note");
    }
}
