//! The real clients, unmodified: the Codex CLI and OpenAI's SDKs for Python and JavaScript.

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use support::server::Server;
use support::{clients, gpt_oss, succeeds};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
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

/// Good and bad requests made from the published document: none is the server's fault, and all answers are as said.
#[test]
fn schemathesis() {
    let server = Server::scripted(&[("", "so be it")], 20_000.0);
    let document = server.home.path().join("openapi.json");
    std::fs::write(&document, server.get("/openapi.json").body).unwrap();
    let mut command = Command::new(clients().join("python/bin/schemathesis"));
    command.arg("run").arg(&document).current_dir(server.home.path());
    command.args(["--url", &format!("http://{}/v1", server.address)]);
    command.args(["-H", &format!("Authorization: Bearer {}", server.key)]);
    command.args(["--mode", "all", "--phases", "coverage,fuzzing", "--max-examples", "30", "--seed", "1"]);
    let checks =
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
    succeeds(command.args(["--checks", checks, "--generation-database", ":memory:"]));
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

    /// With more settings, which stand before all others.
    fn also(&self, settings: &str) {
        let path = self.home.path().join("config.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, settings.to_owned() + &config).unwrap();
    }

    /// Codex, to be run in its folder.
    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.arg("240").arg(clients().join("node_modules/.bin/codex")).current_dir(self.work.path());
        command.env("CODEX_HOME", self.home.path()).env("FLINT_API_KEY", &self.key);
        command
    }

    /// Runs `codex exec` and returns its events.
    fn exec(&self, args: &[&str]) -> Vec<Value> {
        let mut command = self.command();
        command.arg("exec").args(args).args(["--skip-git-repo-check", "--json"]);
        let output = succeeds(&mut command);
        let out = support::stdout(&output);
        out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

fn items<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let items = events.iter().filter(|event| event["type"] == "item.completed").map(|event| &event["item"]);
    items.filter(|item| item["type"] == kind).collect()
}

/// One turn in which a command really ran, and a second one that remembers it. Fails with the answer if that lacks the word.
fn reads_the_note(codex: &Codex, prompt: &str) -> Result<(), String> {
    let has_the_word = |events: &[Value]| {
        let answer = items(events, "agent_message").last().unwrap()["text"].to_string();
        if answer.contains("marmalade") { Ok(()) } else { Err(answer) }
    };
    let events = codex.exec(&["-s", "danger-full-access", prompt]);
    let commands = items(&events, "command_execution");
    let ran = commands.first().unwrap_or_else(|| panic!("no command ran: {events:#?}"));
    assert!(ran["aggregated_output"].as_str().unwrap().contains("marmalade"), "{ran}");
    assert_eq!(ran["exit_code"], 0);
    has_the_word(&events)?;
    let events = codex.exec(&["resume", "--last", "Say that word again."]);
    has_the_word(&events)?;
    let usage = &events.last().unwrap()["usage"];
    assert!(
        usage["cached_input_tokens"].as_u64().unwrap() > 500,
        "the second process found its session: {usage}"
    );
    Ok(())
}

#[test]
fn codex_with_a_real_model() {
    let server = Server::of("qwen2.5-coder-1.5b");
    let prompt = "Read the file note.txt with a shell command and tell me the secret word.";
    for websockets in [true, false] {
        // A small model sometimes says that it did, and not the word; each time its folder has another name.
        let attempt = |_| reads_the_note(&Codex::new(&server, "qwen2.5-coder-1.5b", websockets), prompt);
        let answers: Vec<String> = (0..3).map(attempt).map_while(Result::err).collect();
        assert!(answers.len() < 3, "{answers:?}");
    }
}

#[test]
fn codex_with_a_script() {
    let call = json!({"name": "exec_command", "arguments": {"cmd": "cat note.txt"}});
    let call = format!("<tool_call>\n{call}\n</tool_call>");
    let server = Server::scripted(&[("read the note", &call), ("", "It says marmalade.")], 2000.0);
    for websockets in [true, false] {
        reads_the_note(&Codex::new(&server, support::MODEL, websockets), "read the note").unwrap();
    }
}

/// gpt-oss's own format: what it thinks is shown as such, and its call is the client's.
#[test]
fn codex_with_a_model_that_thinks() {
    let thought = |text: &str| format!("<|channel|>analysis<|message|>{text}<|end|><|start|>assistant");
    let head = "<|channel|>commentary to=functions.exec_command <|constrain|>json<|message|>";
    let call = format!("{}{head}{{\"cmd\": \"cat note.txt\"}}<|call|>", thought("I have to look."));
    let answer =
        format!("{}<|channel|>final<|message|>It says marmalade.<|return|>", thought("There it is."));
    let server = gpt_oss::scripted(&[("read the note", &call), ("", &answer)], 2000.0);
    for websockets in [true, false] {
        let codex = Codex::new(&server, "gpt-oss", websockets);
        codex.also("show_raw_agent_reasoning = true\n");
        reads_the_note(&codex, "read the note").unwrap();
        let mut app = AppServer::start(&codex);
        let thread = app.call("thread/start", json!({"cwd": codex.work.path()}))["thread"]["id"].clone();
        let input = json!([{"type": "text", "text": "is it there?"}]);
        app.call("turn/start", json!({"threadId": thread, "input": input}));
        let item = |message: &Value| {
            (message["method"] == "item/completed").then(|| message["params"]["item"].clone())
        };
        let thought = app.until(|message| item(message).is_some_and(|item| item["type"] == "reasoning"));
        assert_eq!(item(&thought).unwrap()["content"], json!(["There it is."]), "{thought}");
    }
}

#[test]
fn codex_does_without_a_websocket_that_is_switched_off() {
    let call = json!({"name": "exec_command", "arguments": {"cmd": "cat note.txt"}});
    let call = format!("<tool_call>\n{call}\n</tool_call>");
    let lines = [("read the note", call.as_str()), ("", "It says marmalade.")];
    let home = tempfile::tempdir().unwrap();
    let server = Server::scripted_in(home, &lines, 2000.0, &["--no-websocket"], &[]);
    reads_the_note(&Codex::new(&server, support::MODEL, true), "read the note").unwrap();
    let said = server.said();
    assert!(said.contains("GET /v1/responses 426") && !said.contains("WS /v1/responses"), "{said}");
}

/// The names in the timing event are those that the client's program has in it.
#[test]
fn codex_knows_the_names_of_timings() {
    let server = Server::scripted(&[("", "so be it")], 2000.0);
    let mut socket = server.socket_with(&[("x-responsesapi-include-timing-metrics", "true")]);
    socket.send(&json!({"type": "response.create", "input": "hi"}));
    socket.until("response.completed");
    let timing = socket.next();
    let metrics = timing["timing_metrics"].as_object().unwrap();
    let names: Vec<&String> = metrics.keys().filter(|name| !name.starts_with("flint.")).collect();
    assert_eq!(names.len(), 6, "{timing}");
    let packages = clients().join("node_modules/@openai");
    for name in names {
        let mut grep = Command::new("grep");
        grep.args(["-r", "-q", "-a", "-F", "--include=codex", name]).arg(&packages);
        assert!(grep.status().unwrap().success(), "{name} is unknown to it");
    }
}

/// `codex app-server`: what editors talk to, in lines of JSON.
struct AppServer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
}

impl AppServer {
    fn start(codex: &Codex) -> AppServer {
        let mut command = codex.command();
        command.arg("app-server").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = AppServer { child, to, from, calls: 0 };
        server.call("initialize", json!({"clientInfo": {"name": "test", "version": "1"}}));
        server.send(&json!({"method": "initialized"}));
        server
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.to, "{message}").unwrap();
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        self.send(&json!({"id": id, "method": method, "params": params}));
        let answer = self.until(|message| message["id"] == id);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the app server ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            if wanted(&message) {
                return message;
            }
        }
    }

    /// Begins a turn and waits for the first words of its answer.
    fn turn(&mut self, thread: &Value, text: &str) -> Value {
        let input = json!([{"type": "text", "text": text}]);
        let turn = self.call("turn/start", json!({"threadId": thread, "input": input}))["turn"]["id"].clone();
        self.until(|message| message["method"] == "item/agentMessage/delta");
        turn
    }
}

impl Drop for AppServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn codex_steers_and_interrupts_in_mid_stream() {
    let long = "and another word ".repeat(400);
    let server = Server::scripted(&[("go on", &long), ("", "as you wish")], 50.0);
    let codex = Codex::new(&server, support::MODEL, true);
    let mut app = AppServer::start(&codex);
    let thread = app.call("thread/start", json!({"cwd": codex.work.path()}))["thread"]["id"].clone();
    let turn = app.turn(&thread, "go on");
    let input = json!([{"type": "text", "text": "stop"}]);
    app.call("turn/steer", json!({"threadId": thread, "expectedTurnId": turn, "input": input}));
    // At 50 words a second the whole answer would take 24 seconds: the steer did not wait for it.
    let done = |message: &Value| {
        message["method"] == "item/completed" && message["params"]["item"]["type"] == "agentMessage"
    };
    let message = app.until(done);
    assert_eq!(message["params"]["item"]["text"], "as you wish");
    app.until(|message| message["method"] == "turn/completed");
    let turn = app.turn(&thread, "go on");
    app.call("turn/interrupt", json!({"threadId": thread, "turnId": turn}));
    let end = app.until(|message| message["method"] == "turn/completed");
    assert_eq!(end["params"]["turn"]["status"], "interrupted");
    let turn = app.turn(&thread, "say it");
    let end = app.until(|message| message["method"] == "turn/completed");
    assert_eq!(
        (&end["params"]["turn"]["id"], &end["params"]["turn"]["status"]),
        (&turn, &json!("completed"))
    );
}

#[test]
fn codex_shows_what_is_left_of_a_limit() {
    let home = tempfile::tempdir().unwrap();
    let limits = "[limits]\nrequests_a_minute = 8\ntokens_a_minute = 1_000_000\n";
    std::fs::write(home.path().join("config.toml"), limits).unwrap();
    let server = Server::scripted_in(home, &[("", "as you wish")], 2000.0, &[], &[]);
    for websockets in [true, false] {
        let codex = Codex::new(&server, support::MODEL, websockets);
        let mut app = AppServer::start(&codex);
        let thread = app.call("thread/start", json!({"cwd": codex.work.path()}))["thread"]["id"].clone();
        let input = json!([{"type": "text", "text": "say it"}]);
        app.call("turn/start", json!({"threadId": thread, "input": input}));
        let told = app.until(|message| message["method"] == "account/rateLimits/updated");
        let limits = &told["params"]["rateLimits"];
        for window in ["primary", "secondary"] {
            assert_eq!(limits[window]["windowDurationMins"], 1, "{limits}");
        }
        let used = limits["secondary"]["usedPercent"].as_f64().unwrap();
        assert!((5.0..=60.0).contains(&used), "a few requests of eight: {limits}");
    }
}
