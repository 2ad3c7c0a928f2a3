//! What must hold for any text that is shown: nothing in it reaches the terminal as more than visible signs.

use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers};
use flint_agent::rules::{Rule, Scope, Word};
use flint_agent::talk::{
    Asked, Connection, Event, Failure, Figures, FileChange, FileKind, How, Item, Limit, ModelState, Outcome,
    Probe, Progress, Question, Served, State, Step, StepState, What,
};
use flint_terminal::{Action, Choice, Reply, Screen, Setup, clean, draw, is_clean};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Rect, Size};
use std::time::Duration;

/// The first two bytes are a size; then come records, each after a line break and `%`: a letter that says what happens, and
/// the text of it.
pub fn terminal(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    cleaned(&text);
    let size = |at: usize, most: u16| bytes.get(at).map_or(1, |byte| u16::from(*byte) % most);
    let mut stage = Stage::new(Size { width: size(0, 120), height: size(1, 50) });
    for (time, record) in text.split("\n%").skip(1).enumerate() {
        let mut chars = record.chars();
        stage.play(chars.next().unwrap_or('n'), chars.as_str(), time as u64);
        stage.paint();
    }
}

fn cleaned(text: &str) {
    let clean_text = clean(text);
    assert!(is_clean(&clean_text), "{clean_text:?}");
    assert_eq!(clean(&clean_text), clean_text, "what is clean stays as it is");
}

struct Stage {
    screen: Screen,
    size: Size,
}

impl Stage {
    fn new(size: Size) -> Stage {
        let setup = Setup { colour: true, first_number: 1, ..Setup::default() };
        Stage { screen: Screen::new(setup), size }
    }

    fn play(&mut self, letter: char, text: &str, time: u64) {
        self.screen.tick(Duration::from_millis(time * 300));
        match letter {
            'k' => text.chars().for_each(|char| self.press(char)),
            'P' => {
                self.screen.input(Input::Paste(text.into()));
            }
            'w' => {
                let at = |index: usize| text.as_bytes().get(index).map_or(1, |byte| u16::from(*byte)) % 100;
                self.size = Size { width: at(0), height: at(1) };
            }
            'R' => self.screen.reply(Some(Reply::Page { title: text.into(), text: text.into() })),
            'L' => {
                let choice = Choice { label: text.into(), about: text.into(), action: Action::Fork };
                self.screen.reply(Some(Reply::Choose { title: text.into(), choices: vec![choice; 3] }));
            }
            _ => self.screen.fold(event(letter, text)),
        }
    }

    /// Letters are themselves; digits above the row of letters stand for other keys.
    fn press(&mut self, char: char) {
        let (code, modifiers) = match char {
            '\n' => (KeyCode::Enter, KeyModifiers::NONE),
            '<' => (KeyCode::Left, KeyModifiers::NONE),
            '>' => (KeyCode::Right, KeyModifiers::ALT),
            '^' => (KeyCode::Up, KeyModifiers::NONE),
            '_' => (KeyCode::Down, KeyModifiers::NONE),
            '!' => (KeyCode::Esc, KeyModifiers::NONE),
            '|' => (KeyCode::Tab, KeyModifiers::NONE),
            '{' => (KeyCode::PageUp, KeyModifiers::NONE),
            '}' => (KeyCode::PageDown, KeyModifiers::NONE),
            '$' => (KeyCode::Up, KeyModifiers::ALT),
            '#' => (KeyCode::Backspace, KeyModifiers::NONE),
            '@' => (KeyCode::Delete, KeyModifiers::ALT),
            'A'..='Z' => (KeyCode::Char(char.to_ascii_lowercase()), KeyModifiers::CONTROL),
            _ => (KeyCode::Char(char), KeyModifiers::NONE),
        };
        self.screen.input(Input::Key(KeyEvent::new(code, modifiers)));
    }

    fn paint(&mut self) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, self.size.width, self.size.height));
        self.screen.lay_out(self.size);
        let cursor = draw(&self.screen, &mut buffer);
        assert!(cursor.is_none_or(|cursor| buffer.area.contains(cursor)));
        for cell in &buffer.content {
            assert!(is_clean(cell.symbol()) && !cell.symbol().contains('\n'), "{:?}", cell.symbol());
        }
    }
}

fn event(letter: char, text: &str) -> Event {
    let item = |id: &str, what| Item { id: id.into(), what };
    match letter {
        'B' => Event::TurnBegan,
        'E' => Event::TurnEnded { outcome: outcome(text), figures: figures(text).into() },
        'm' => Event::ItemBegan(item("m", What::Message { text: text.into() })),
        'g' => Event::ItemGrew { id: "m".into(), text: text.into() },
        'M' => Event::ItemEnded(item("m", What::Message { text: text.into() })),
        'r' => Event::ItemBegan(item("r", What::Reasoning { text: text.into() })),
        'h' => Event::ItemGrew { id: "r".into(), text: text.into() },
        'c' => Event::ItemBegan(item("c", command(text, Progress::Running))),
        'o' => Event::ItemGrew { id: "c".into(), text: text.into() },
        'C' => Event::ItemEnded(item("c", command(text, Progress::Failed))),
        'q' => Event::Asked(question(text, true)),
        'Q' => Event::Asked(question(text, false)),
        'S' => sent(text),
        'p' => Event::Probed(Box::new(probe(text))),
        'x' => Event::Connection(Connection::Lost { why: text.into() }),
        'b' => Event::Began { session: text.into() },
        'u' => Event::Rewound { undone: true, turn: text.into(), files: vec![text.into()] },
        'U' => Event::Rewound { undone: false, turn: text.into(), files: Vec::new() },
        'v' => Event::Previewed { undo: true, turn: text.into(), changes: vec![change(text)] },
        'z' => Event::Compacted { tokens_before: text.len() as u64, tokens_after: u64::MAX },
        'A' => Event::ItemBegan(item("i", agent(text, Progress::Running))),
        's' | 'f' | 'l' | 'a' | 'd' | 't' => Event::ItemEnded(item("i", what(letter, text))),
        _ => Event::Notice { text: text.into() },
    }
}

fn what(letter: char, text: &str) -> What {
    let progress = Progress::Done;
    match letter {
        's' => What::Said { text: text.into() },
        'f' => What::Files { changes: vec![change(text)], progress },
        'l' => What::Look { tool: text.into(), about: text.into(), output: text.into(), progress },
        'a' => agent(text, progress),
        'd' => {
            let step = |state| Step { text: text.into(), state };
            What::Plan { steps: vec![step(StepState::Done), step(StepState::Running), step(StepState::Open)] }
        }
        _ => What::Trouble { message: text.into() },
    }
}

fn agent(text: &str, progress: Progress) -> What {
    let (name, task, report) = (text.into(), text.into(), text.into());
    What::Agent { name, task, report, figures: figures(text).into(), progress }
}

fn command(text: &str, progress: Progress) -> What {
    let code = (progress == Progress::Failed).then_some(-1);
    What::Command { command: text.into(), output: text.into(), code, took: Duration::MAX, progress }
}

fn change(text: &str) -> FileChange {
    FileChange { path: text.into(), kind: FileKind::Moved { from: text.into() }, diff: text.into() }
}

fn outcome(text: &str) -> Outcome {
    match text.len() % 3 {
        0 => Outcome::Done,
        1 => Outcome::Interrupted,
        _ => Outcome::Failed { error: Failure::Model(text.into()) },
    }
}

fn served(text: &str) -> Served {
    let some = || Some(text.into());
    Served {
        asked: text.into(),
        model: text.chars().take(3).collect(),
        digest: some(),
        quantisation: some(),
        device: some(),
        engine: some(),
        tier: some(),
        ignored: vec![text.into()],
    }
}

fn figures(text: &str) -> Figures {
    Figures {
        served: Some(served(text)),
        tokens_in: u64::MAX,
        tokens_cached: text.len() as u64,
        tokens_out: u64::MAX,
        took: Duration::MAX,
        first_token: Some(Duration::MAX),
        tokens_a_second: Some(f64::NAN),
        queued: Some(Duration::ZERO),
        ..Figures::default()
    }
}

fn question(text: &str, command: bool) -> Question {
    let what = match command {
        true => Asked::Command {
            argv: vec![text.into()],
            shown: text.into(),
            unconfined: text.len().is_multiple_of(2),
        },
        false => Asked::Files { changes: vec![change(text)] },
    };
    let argv = vec![Word::Exactly(text.into()), Word::Any];
    let rule = Rule {
        argv,
        scope: Scope::Project,
        until: std::time::SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(1 << 40)),
        unconfined: true,
    };
    let who = text.len().is_multiple_of(3).then(|| text.into());
    Question { item: text.into(), who, what, why: text.into(), rules: vec![rule; text.len() % 12] }
}

fn sent(text: &str) -> Event {
    let state = match text.len() % 6 {
        0 => State::Waiting,
        1 => State::Sent,
        2 => State::Accepted,
        3 => State::Applied,
        4 => State::Withdrawn,
        _ => State::Failed { why: text.into() },
    };
    let how = if text.len().is_multiple_of(2) { How::Steered } else { How::Queued };
    Event::Sent { number: text.bytes().map(u64::from).sum::<u64>() % 5, text: text.into(), how, state }
}

fn probe(text: &str) -> Probe {
    let model = |refused| ModelState { name: text.into(), window: Some(1), refused };
    Probe {
        provider: text.into(),
        address: text.into(),
        connection: Connection::Requests { why: text.into() },
        served: Some(served(text)),
        models: vec![model(None), model(Some(text.into()))],
        limits: vec![Limit { name: text.into(), used_percent: f64::INFINITY, resets: Some(Duration::MAX) }],
        sandbox: text.into(),
        approvals: text.into(),
        ignored: vec![text.into()],
    }
}
