//! The server as a library, with its real worker, on a real socket, and with times of its own.

use flint_engine::load::ModelFile;
use flint_engine::supervise::{Options, Supervisor};
use flint_open::ModelText;
use flint_server::keys::{Ring, Table};
use flint_server::usage::Books;
use flint_server::{
    Data, Facts, Front, Gate, Journal, Limits, Model, Pace, Rules, Server, Settings, Style, Truth,
};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

/// What plays: the program whose worker it is, the file whose vocabulary it has, and the script.
pub struct Play {
    pub program: PathBuf,
    pub model: PathBuf,
    pub script: String,
}

pub struct Served {
    pub address: String,
    pub key: String,
    // In the order in which they end.
    _runtime: Runtime,
    _supervisor: Supervisor,
    _home: tempfile::TempDir,
}

impl Served {
    pub fn start(pace: Pace, home: tempfile::TempDir, play: &Play) -> Served {
        let runtime = Runtime::new().unwrap();
        let (model, supervisor) = model(play, runtime.handle().clone());
        let data = Data::claim(home.path()).unwrap();
        let table = Table::open(&data.database()).unwrap();
        let key = table.add("guest").unwrap();
        let rules = Rules {
            limits: Limits::default(),
            prices: HashMap::new(),
            journal: Journal::new(Style::Plain, None),
        };
        let books = Books::open(&data.database()).unwrap();
        let gate = Gate::new(Ring::new(table).unwrap(), books, rules, [NAME]);
        let settings =
            Settings { models: vec![Arc::new(model)], gate, data, store_bytes_max: 64 << 20, pace };
        let server = Server::new(settings).unwrap();
        let address = runtime.block_on(async {
            let listener = flint_server::listen(([127, 0, 0, 1], 0).into()).unwrap();
            let address = listener.local_addr().unwrap().to_string();
            tokio::spawn(flint_server::run(server, front(), listener, std::future::pending()));
            address
        });
        Served { address, key, _runtime: runtime, _supervisor: supervisor, _home: home }
    }
}

const NAME: &str = "played";

fn front() -> Front {
    Front {
        allow_hosts: Vec::new(),
        allow_origins: Vec::new(),
        websockets: true,
        tls: None,
        drain: Duration::ZERO,
        idle: None,
    }
}

fn model(play: &Play, runtime: Handle) -> (Model, Supervisor) {
    let file = ModelFile::open(&play.model).unwrap();
    let text = ModelText::read(&file).unwrap();
    let context = file.config.context as u32;
    let listener = flint_server::listener(runtime);
    let supervisor = Supervisor::start_heard(worker(play), Options::default(), listener).unwrap();
    let word = |word: &str| word.to_owned();
    let (sha256, quantisation, device, engine) = (word("0"), word("Q4_1"), word("scripted"), word("test"));
    let truth = Truth { sha256, quantisation, device, engine, speculation: false, fallback: None };
    let facts = Facts::new(NAME, &text, context, 0);
    (Model::new(NAME.to_owned(), text, supervisor.handle(), truth, facts), supervisor)
}

fn worker(play: &Play) -> impl Fn() -> Command + Send + 'static {
    let (program, model, script) = (play.program.clone(), play.model.clone(), play.script.clone());
    move || {
        let mut command = Command::new(&program);
        command.args(["worker", "--device", "cpu", "--precision", "exact", "--scripted", &script]);
        command.arg("--path").arg(&model).stdout(Stdio::null());
        command
    }
}

/// The file of a script: how prompts end, and what comes then, so many forward passes a second, or as fast as they can.
pub fn play(folder: &Path, lines: &[(String, String)], rate: Option<f64>) -> String {
    let line = |(cue, answer): &(String, String)| serde_json::json!({"cue": cue, "answer": answer});
    let lines: Vec<serde_json::Value> = lines.iter().map(line).collect();
    let script = folder.join("script.json");
    std::fs::write(&script, serde_json::json!({"rate": rate, "lines": lines}).to_string()).unwrap();
    script.to_str().unwrap().to_owned()
}
