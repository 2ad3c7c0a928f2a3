//! Scenes of a session: what items, questions and sent texts look like.

use super::{Scene, begun, chord, ended, figures, open, press, running, scene, write};
use crossterm::event::{Event as Input, KeyCode, KeyModifiers};
use flint_agent::rules::{Rule, Scope, Word};
use flint_agent::talk::{
    Asked, Connection, Event, Failure, FileChange, FileKind, How, Item, Outcome, Progress, Question, State,
    Step, StepState, What,
};
use flint_terminal::Screen;
use ratatui_core::layout::Size;
use std::time::{Duration, SystemTime};

const MARKDOWN: &str = "# Title\n\nSome **bold**, *soft*, ~~struck~~ and `code` with a [link](https://example.com).\n\n- one\n- two\n  1. inner\n\n> quoted\n\n| a | b |\n|---|---|\n| 1 | two |\n\n```rust\nfn main() { let x = \"a\"; } // end\n```\n\n---\n";

const HOSTILE: &str =
    "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m a\u{202e}b\u{200b}c &#27;[31m \u{0}\u{8}\u{7f}\ttab";

const DIFF: &str = "@@ -1,3 +1,3 @@ fn parse\n fn a() {\n-    old();\n+    new();\n }\n";

pub fn scenes() -> Vec<Scene> {
    vec![
        scene("empty", begun()),
        scene("streaming", streaming()),
        Scene { height: 30, ..scene("markdown", markdown()) },
        Scene { height: 40, ..scene("items", items()) },
        Scene { height: 40, ..scene("items_full", full(items())) },
        Scene { height: 24, ..scene("agents", agents()) },
        scene("approval_command", approval(false)),
        scene("approval_unconfined", approval(true)),
        Scene { height: 14, ..scene("approval_diff_short_of_room", approval_diff()) },
        scene("approval_reason", reason()),
        scene("sent_states", sent()),
        scene("editing_a_waiting_text", editing()),
        Scene { width: 20, height: 16, ..scene("narrow", items()) },
        Scene { width: 24, height: 12, ..scene("wide_signs", wide()) },
        scene("hostile_text", hostile()),
        Scene { width: 100, ..scene("another_model_answered", mismatch()) },
        scene("turn_failed", failed()),
        scene("interrupting", interrupting()),
        scene("plan", plan()),
        scene("paste", paste()),
        scene("no_colour", no_colour()),
        scene("connection_lost", lost()),
        Scene { width: 8, height: 3, ..scene("tiny", approval(false)) },
    ]
}

fn message(text: &str) -> What {
    What::Message { text: text.into() }
}

fn streaming() -> Screen {
    let mut screen = running();
    open(&mut screen, "m", message(""));
    for text in ["I will ", "look at **the", " parser** and\n\n```py\nx = 1", "\ndef f"] {
        screen.fold(Event::ItemGrew { id: "m".into(), text: text.into() });
    }
    write(&mut screen, "but keep the");
    screen
}

fn markdown() -> Screen {
    let mut screen = running();
    ended(&mut screen, message(MARKDOWN));
    screen
}

fn command(output: &str, code: Option<i32>, progress: Progress) -> What {
    let took = Duration::from_millis(1_250);
    What::Command { command: "cargo test -p parser".into(), output: output.into(), code, took, progress }
}

fn items() -> Screen {
    let mut screen = running();
    let thoughts = "First I read.\nThen I think.\nThen I write.\nThen I test.";
    ended(&mut screen, What::Reasoning { text: thoughts.into() });
    for (tool, about) in [("read", "src/lib.rs"), ("search", "fn parse")] {
        let (tool, about) = (tool.into(), about.into());
        ended(&mut screen, What::Look { tool, about, output: "a\nb\n".into(), progress: Progress::Done });
    }
    let output =
        (1..=9).map(|line| format!("line {line}\n")).collect::<String>() + "50%\r\u{1b}[32m100%\u{1b}[0m\n";
    ended(&mut screen, command(&output, Some(0), Progress::Done));
    ended(&mut screen, command("error: no\n", Some(101), Progress::Failed));
    ended(&mut screen, command("", None, Progress::Declined));
    ended(&mut screen, What::Files { changes: vec![change()], progress: Progress::Done });
    let (name, task) = ("reviewer".into(), "look for mistakes".into());
    let report = "None found.".into();
    let figures = figures("qwen", "qwen").into();
    ended(&mut screen, What::Agent { name, task, report, figures, progress: Progress::Done });
    ended(&mut screen, What::Trouble { message: "The disk is full.".into() });
    open(&mut screen, "running", command("building\n", None, Progress::Running));
    screen
}

/// One that was begun in an earlier turn has reported, one asks, though no turn runs.
fn agents() -> Screen {
    let mut screen = running();
    let agent = |name: &str, report: &str, progress| {
        let (name, task, report) = (name.into(), "look for mistakes".into(), report.into());
        What::Agent { name, task, report, figures: figures("qwen", "qwen").into(), progress }
    };
    open(&mut screen, "agent_1", agent("reviewer", "", Progress::Running));
    open(&mut screen, "agent_2", agent("tester", "$ cargo test\n", Progress::Running));
    screen.fold(Event::TurnEnded { outcome: Outcome::Done, figures: figures("qwen", "qwen").into() });
    let what = agent("reviewer", "None found.", Progress::Done);
    screen.fold(Event::ItemEnded(Item { id: "agent_1".into(), what }));
    let what = Asked::Command { argv: vec!["id".into()], shown: "id".into(), unconfined: false };
    let (item, who) = ("agent_2/call".into(), Some("tester".into()));
    screen.fold(Event::Asked(Question { item, who, what, why: String::new(), rules: Vec::new() }));
    screen.fold(Event::TurnBegan);
    screen.fold(Event::TurnEnded { outcome: Outcome::Done, figures: figures("qwen", "qwen").into() });
    screen
}

fn full(mut screen: Screen) -> Screen {
    chord(&mut screen, KeyCode::Char('o'), KeyModifiers::CONTROL);
    screen
}

fn change() -> FileChange {
    FileChange { path: "src/parse.rs".into(), kind: FileKind::Updated, diff: DIFF.into() }
}

fn rules() -> Vec<Rule> {
    let word = |word: &str| Word::Exactly(word.into());
    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    vec![
        Rule {
            argv: vec![word("rm"), word("-r"), word("target")],
            scope: Scope::Session,
            until: None,
            unconfined: false,
        },
        Rule {
            argv: vec![word("rm"), Word::Any],
            scope: Scope::Project,
            until: Some(until),
            unconfined: false,
        },
    ]
}

fn ask(screen: &mut Screen, what: Asked, rules: Vec<Rule>) {
    let why = "the policy asks before files are deleted".into();
    screen.fold(Event::Asked(Question { item: "q".into(), who: None, what, why, rules }));
    screen.lay_out(Size { width: 72, height: 20 });
    screen.tick(Duration::from_secs(3));
}

fn approval(unconfined: bool) -> Screen {
    let mut screen = running();
    let argv = vec!["rm".into(), "-r".into(), "target".into()];
    ask(&mut screen, Asked::Command { argv, shown: "rm -r target".into(), unconfined }, rules());
    screen
}

fn approval_diff() -> Screen {
    let mut screen = running();
    let diff = (0..30).map(|line| format!("+line {line}\n")).collect();
    let change = FileChange { path: "a.txt".into(), kind: FileKind::Added, diff };
    ask(&mut screen, Asked::Files { changes: vec![change] }, Vec::new());
    press(&mut screen, KeyCode::Down);
    screen
}

fn reason() -> Screen {
    let mut screen = approval(false);
    press(&mut screen, KeyCode::Char('r'));
    write(&mut screen, "use cargo clean");
    screen
}

fn sent() -> Screen {
    let mut screen = running();
    let states = [
        State::Waiting,
        State::Sent,
        State::Accepted,
        State::Applied,
        State::Failed { why: "the turn was over".into() },
    ];
    for (number, state) in (10..).zip(states) {
        let how = if number % 2 == 0 { How::Queued } else { How::Steered };
        screen.fold(Event::Sent { number, text: format!("text {number}"), how, state });
    }
    write(&mut screen, "not answered yet");
    press(&mut screen, KeyCode::Enter);
    screen
}

fn editing() -> Screen {
    let mut screen = running();
    let text = "write tests too".into();
    screen.fold(Event::Sent { number: 1, text, how: How::Queued, state: State::Waiting });
    write(&mut screen, "a draft");
    chord(&mut screen, KeyCode::Up, KeyModifiers::ALT);
    screen
}

fn wide() -> Screen {
    let mut screen = running();
    ended(&mut screen, message("日本語のとても長いテキスト and 👩\u{200d}💻 e\u{301}"));
    write(&mut screen, "日本語のとても長いテキスト");
    screen
}

fn hostile() -> Screen {
    let mut screen = running();
    ended(&mut screen, message(HOSTILE));
    let output = HOSTILE.into();
    let command = HOSTILE.into();
    let took = Duration::ZERO;
    ended(&mut screen, What::Command { command, output, code: Some(1), took, progress: Progress::Failed });
    let kind = FileKind::Moved { from: HOSTILE.into() };
    let change = FileChange { path: HOSTILE.into(), kind, diff: format!("+{HOSTILE}") };
    ended(&mut screen, What::Files { changes: vec![change], progress: Progress::Done });
    screen
}

fn end_turn(screen: &mut Screen, outcome: Outcome, model: &str) {
    screen.fold(Event::TurnEnded { outcome, figures: figures("qwen", model).into() });
}

fn mismatch() -> Screen {
    let mut screen = running();
    end_turn(&mut screen, Outcome::Done, "smaller-qwen");
    screen
}

fn failed() -> Screen {
    let mut screen = running();
    let error = Failure::Turn("the server closed the connection".into());
    end_turn(&mut screen, Outcome::Failed { error }, "qwen");
    screen
}

fn interrupting() -> Screen {
    let mut screen = running();
    press(&mut screen, KeyCode::Esc);
    screen
}

fn plan() -> Screen {
    let mut screen = running();
    let states = [StepState::Done, StepState::Running, StepState::Open];
    let steps =
        (1..).zip(states).map(|(number, state)| Step { text: format!("step {number}"), state }).collect();
    ended(&mut screen, What::Plan { steps });
    screen
}

fn paste() -> Screen {
    let mut screen = begun();
    let text: String = (0..200).map(|line| format!("pasted {line}\n")).collect();
    screen.input(Input::Paste(text));
    screen
}

fn no_colour() -> Screen {
    let mut screen = Screen::new(flint_terminal::Setup { colour: false, ..Default::default() });
    screen.fold(Event::TurnBegan);
    ended(&mut screen, message(MARKDOWN));
    screen
}

fn lost() -> Screen {
    let mut screen = begun();
    screen.fold(Event::Connection(Connection::Lost { why: "connection refused".into() }));
    screen.tick(Duration::from_secs(60));
    screen
}
