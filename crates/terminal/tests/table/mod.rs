//! The scenes, and the little language that they are written in.

mod pages;
mod session;

use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers};
use flint_agent::talk::{Connection, Context, Event, Figures, Item, Served, What};
use flint_terminal::{Screen, Setup, Wish};
use std::time::Duration;

pub struct Scene {
    pub name: &'static str,
    pub width: u16,
    pub height: u16,
    pub screen: Screen,
}

pub fn scenes() -> Vec<Scene> {
    let mut scenes = session::scenes();
    scenes.extend(pages::scenes());
    scenes
}

pub fn scene(name: &'static str, screen: Screen) -> Scene {
    Scene { name, width: 72, height: 20, screen }
}

pub fn begun() -> Screen {
    let setup = Setup {
        folder: "~/example".into(),
        colour: true,
        model: Some("qwen".into()),
        history: vec!["an earlier text".into()],
        ..Setup::default()
    };
    let mut screen = Screen::new(setup);
    screen.fold(Event::Began { session: "s-1".into() });
    screen.fold(Event::Connection(Connection::Open));
    screen
}

/// A turn runs, since a second.
pub fn running() -> Screen {
    let mut screen = begun();
    screen.fold(Event::TurnBegan);
    ended(&mut screen, What::Said { text: "Mend the parser.".into() });
    screen.tick(Duration::from_secs(1));
    screen
}

pub fn ended(screen: &mut Screen, what: What) {
    screen.fold(Event::ItemEnded(Item { id: "item".into(), what }));
}

pub fn open(screen: &mut Screen, id: &str, what: What) {
    screen.fold(Event::ItemBegan(Item { id: id.into(), what }));
}

pub fn press(screen: &mut Screen, code: KeyCode) -> Vec<Wish> {
    chord(screen, code, KeyModifiers::NONE)
}

pub fn chord(screen: &mut Screen, code: KeyCode, modifiers: KeyModifiers) -> Vec<Wish> {
    screen.input(Input::Key(KeyEvent::new(code, modifiers)))
}

pub fn write(screen: &mut Screen, text: &str) {
    for char in text.chars() {
        press(screen, KeyCode::Char(char));
    }
}

/// A command with a slash, by its whole name.
pub fn command(screen: &mut Screen, text: &str) -> Vec<Wish> {
    write(screen, text);
    press(screen, KeyCode::Enter)
}

pub fn served(asked: &str, model: &str) -> Served {
    Served {
        asked: asked.into(),
        model: model.into(),
        digest: Some("sha256:12ab".into()),
        quantisation: Some("Q8_0".into()),
        device: Some("cpu".into()),
        engine: Some("flint 0.1.0".into()),
        tier: None,
        ignored: vec!["temperature: this model has none".into()],
    }
}

pub fn figures(asked: &str, model: &str) -> Figures {
    Figures {
        served: Some(served(asked, model)),
        requests: 2,
        tokens_in: 12_345,
        tokens_cached: 11_000,
        tokens_out: 678,
        tokens_reasoning: 90,
        took: Duration::from_millis(4_321),
        first_token: Some(Duration::from_millis(43)),
        tokens_a_second: Some(1_987.4),
        queued: Some(Duration::from_millis(2)),
        context: Context { tokens: 12_000, window: Some(32_768) },
        agents: Vec::new(),
        limits: Vec::new(),
    }
}
