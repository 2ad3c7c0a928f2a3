//! Scenes of the commands that show something.

use super::{Scene, begun, command, ended, figures, press, running, scene, served, write};
use crossterm::event::KeyCode;
use flint_agent::talk::{
    Connection, Event, Figures, FileChange, FileKind, Limit, ModelState, Outcome, Probe, Progress, What,
};
use flint_terminal::{Action, Choice, Reply, Screen};
use std::time::Duration;

pub fn scenes() -> Vec<Scene> {
    vec![
        scene("completions", typed("/re")),
        scene("unknown_command", shown("/modle")),
        Scene { height: 42, ..scene("help", shown("/help")) },
        scene("status_asking", shown("/status")),
        scene("status", probed("/status")),
        scene("models", models()),
        Scene { width: 110, ..scene("usage", usage()) },
        scene("usage_empty", shown("/usage")),
        scene("diff", diff()),
        scene("diff_empty", shown("/diff")),
        scene("undo", undo()),
        Scene { width: 130, ..scene("limits", limits()) },
        scene("choices", choices()),
        scene("told", told()),
    ]
}

fn typed(text: &str) -> Screen {
    let mut screen = begun();
    write(&mut screen, text);
    press(&mut screen, KeyCode::Down);
    screen
}

fn shown(text: &str) -> Screen {
    let mut screen = begun();
    command(&mut screen, text);
    screen
}

fn probe() -> Probe {
    let model = |name: &str, window, refused: Option<&str>| ModelState {
        name: name.into(),
        window,
        refused: refused.map(Into::into),
    };
    Probe {
        provider: "flint".into(),
        address: "ws://127.0.0.1:8080/v1/responses".into(),
        connection: Connection::Requests { why: "the upgrade was refused with 426".into() },
        served: Some(served("qwen", "qwen")),
        models: vec![
            model("qwen", Some(32_768), None),
            model("gpt-oss", None, Some("it needs 12 GiB and 8 are free")),
            model("smol", Some(8_192), None),
        ],
        limits: vec![Limit {
            name: "interactive".into(),
            used_percent: 37.0,
            resets: Some(Duration::from_secs(90)),
        }],
        sandbox: "workspace-write".into(),
        approvals: "on-request".into(),
        ignored: vec!["config.toml:3: model_reasoning_effort: qwen does not reason".into()],
    }
}

fn probed(text: &str) -> Screen {
    let mut screen = shown(text);
    screen.fold(Event::Probed(Box::new(probe())));
    screen
}

fn models() -> Screen {
    let mut screen = probed("/model");
    press(&mut screen, KeyCode::Down);
    press(&mut screen, KeyCode::Enter);
    screen
}

fn usage() -> Screen {
    let mut screen = running();
    let what = What::Agent {
        name: "reviewer".into(),
        task: "look".into(),
        report: String::new(),
        figures: figures("smol", "smol").into(),
        progress: Progress::Done,
    };
    ended(&mut screen, what);
    screen.fold(Event::TurnEnded { outcome: Outcome::Interrupted, figures: figures("qwen", "qwen").into() });
    screen.fold(Event::TurnBegan);
    screen.fold(Event::TurnEnded { outcome: Outcome::Done, figures: figures("qwen", "other").into() });
    command(&mut screen, "/usage");
    screen
}

fn diff() -> Screen {
    let mut screen = running();
    let change =
        |path: &str, diff: &str| FileChange { path: path.into(), kind: FileKind::Added, diff: diff.into() };
    let files = |change| What::Files { changes: vec![change], progress: Progress::Done };
    ended(&mut screen, files(change("a.txt", "@@ -0,0 +1,2 @@\n+one\n+two\n")));
    screen.fold(Event::TurnEnded { outcome: Outcome::Done, figures: figures("qwen", "qwen").into() });
    screen.fold(Event::TurnBegan);
    ended(&mut screen, files(change("b.txt", "+three\n")));
    screen.fold(Event::TurnEnded { outcome: Outcome::Done, figures: figures("qwen", "qwen").into() });
    screen.fold(Event::Rewound { undone: true, turn: "add b".into(), files: vec!["b.txt".into()] });
    command(&mut screen, "/diff");
    screen
}

fn undo() -> Screen {
    let mut screen = shown("/undo");
    let change = FileChange {
        path: "a.txt".into(),
        kind: FileKind::Updated,
        diff: "@@ -1,2 +1,2 @@\n one\n-three\n+two\n".into(),
    };
    screen.fold(Event::Previewed { undo: true, turn: "Make it three.".into(), changes: vec![change] });
    screen
}

/// What is left of them stands in the status line after each turn.
fn limits() -> Screen {
    let mut screen = running();
    let figures = Figures { limits: probe().limits, ..figures("qwen", "qwen") };
    screen.fold(Event::TurnEnded { outcome: Outcome::Done, figures: figures.into() });
    screen
}

fn choices() -> Screen {
    let mut screen = begun();
    let choice = |label: &str, about: &str| Choice {
        label: label.into(),
        about: about.into(),
        action: Action::Resume { session: Some(label.into()) },
    };
    let choices = vec![choice("s-1", "an hour ago"), choice("s-2", "yesterday")];
    screen.reply(Some(Reply::Choose { title: "Sessions".into(), choices }));
    press(&mut screen, KeyCode::Down);
    screen
}

fn told() -> Screen {
    let mut screen = begun();
    screen
        .reply(Some(Reply::Page { title: "Agents".into(), text: "reviewer: looks\n\ntester: tests".into() }));
    screen
}
