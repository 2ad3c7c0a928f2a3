//! A frame costs what is on the screen, not what has been said before.

use flint_agent::talk::{Event, FileChange, FileKind, Item, Progress, What};
use flint_terminal::{Screen, Setup, draw};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Rect, Size};
use std::time::{Duration, Instant};

const SIZE: Size = Size { width: 160, height: 50 };

/// Far more than a frame takes (see the example `play`), far less than would be noticed.
const FRAME_TIME_MAX: Duration = Duration::from_millis(5);

/// Ten thousand items of ten lines each.
fn long_session() -> Screen {
    let mut screen = Screen::new(Setup { colour: true, ..Setup::default() });
    screen.fold(Event::TurnBegan);
    for number in 0..5_000 {
        let text = "## A title\n\nSome *words* with `code`, in a line that is long enough to be broken somewhere.\n\n```rs\nfn main() {\n    let x = 1;\n}\n```\n";
        ended(&mut screen, number, What::Message { text: text.into() });
        let diff = "@@ -1,3 +1,3 @@\n a\n-b\n+c\n d\n".repeat(2);
        let change = FileChange { path: format!("file{number}"), kind: FileKind::Updated, diff };
        ended(&mut screen, number, What::Files { changes: vec![change], progress: Progress::Done });
    }
    screen
}

fn ended(screen: &mut Screen, number: usize, what: What) {
    screen.fold(Event::ItemEnded(Item { id: format!("i{number}"), what }));
}

/// The middle one of the times that frames take, each after `before` has happened.
fn frame_time(screen: &mut Screen, mut before: impl FnMut(&mut Screen, usize)) -> Duration {
    let mut times = Vec::new();
    for number in 0..101 {
        before(screen, number);
        let began = Instant::now();
        let mut buffer = Buffer::empty(Rect::new(0, 0, SIZE.width, SIZE.height));
        screen.lay_out(SIZE);
        draw(screen, &mut buffer);
        times.push(began.elapsed());
    }
    times.sort();
    times[times.len() / 2]
}

#[test]
fn long_sessions_do_not_slow_a_frame() {
    let mut screen = long_session();
    let median = frame_time(&mut screen, |_, _| {});
    assert!(median < FRAME_TIME_MAX, "{median:?}");
    let median = frame_time(&mut screen, |screen, number| {
        let text = format!("word {number} of a *message* that grows\n");
        ended(screen, number, What::Message { text });
    });
    assert!(median < FRAME_TIME_MAX, "while items come: {median:?}");
}

/// As much as comes between two frames at two thousand tokens a second, at the end of an answer of 20,000 lines.
#[test]
fn long_answers_do_not_slow_a_frame() {
    for begin in ["", "```rs\n"] {
        let mut screen = Screen::new(Setup { colour: true, ..Setup::default() });
        let text = begin.to_owned() + &"let x = f(\"a\", 12); // and so on\n\n".repeat(10_000);
        screen.fold(Event::ItemBegan(Item { id: "m".into(), what: What::Message { text } }));
        let median = frame_time(&mut screen, |screen, _| {
            for _ in 0..34 {
                screen.fold(Event::ItemGrew { id: "m".into(), text: "word ".into() });
            }
        });
        assert!(median < FRAME_TIME_MAX, "{begin:?}: {median:?}");
    }
}

/// A build that says much.
#[test]
fn long_outputs_do_not_slow_a_frame() {
    let mut screen = Screen::new(Setup { colour: true, ..Setup::default() });
    let what = What::Command {
        command: "make".into(),
        output: "a line of output\n".repeat(100_000),
        code: None,
        took: Duration::ZERO,
        progress: Progress::Running,
    };
    screen.fold(Event::ItemBegan(Item { id: "c".into(), what }));
    let median = frame_time(&mut screen, |screen, _| {
        screen.fold(Event::ItemGrew { id: "c".into(), text: "more output\n".repeat(100) });
    });
    assert!(median < FRAME_TIME_MAX, "{median:?}");
}
