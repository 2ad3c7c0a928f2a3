//! What is read stays where it is, whatever comes.

use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers};
use flint_agent::talk::Event;
use flint_terminal::{Screen, Setup, draw};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Rect, Size};

const HEIGHT: u16 = 13; // ten rows of transcript: five notices with a row between

fn painted(screen: &mut Screen, width: u16) -> Vec<String> {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, HEIGHT));
    screen.lay_out(Size { width, height: HEIGHT });
    draw(screen, &mut buffer);
    let rows = buffer.content.chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

/// The numbers of the notices that are on the screen.
fn numbers(screen: &mut Screen) -> Vec<u32> {
    let rows = painted(screen, 40);
    rows.iter().filter_map(|row| row.strip_prefix("! notice ")?.parse().ok()).collect()
}

fn notices(screen: &mut Screen, numbers: std::ops::Range<u32>) {
    for number in numbers {
        screen.fold(Event::Notice { text: format!("notice {number}") });
    }
}

fn press(screen: &mut Screen, code: KeyCode, modifiers: KeyModifiers) {
    screen.input(Input::Key(KeyEvent::new(code, modifiers)));
}

fn with_notices() -> Screen {
    let mut screen = Screen::new(Setup::default());
    notices(&mut screen, 0..50);
    assert_eq!(numbers(&mut screen), [45, 46, 47, 48, 49]);
    screen
}

#[test]
fn the_newest_is_shown_unless_someone_reads() {
    let mut screen = with_notices();
    press(&mut screen, KeyCode::PageUp, KeyModifiers::NONE);
    let read = numbers(&mut screen);
    assert!(read.contains(&41) && !read.contains(&49), "{read:?}");
    notices(&mut screen, 50..60);
    assert_eq!(numbers(&mut screen), read, "new things do not move what is read");
    press(&mut screen, KeyCode::End, KeyModifiers::CONTROL);
    assert_eq!(numbers(&mut screen), [55, 56, 57, 58, 59]);
}

#[test]
fn up_to_the_first_and_down_to_the_last() {
    let mut screen = with_notices();
    for _ in 0..30 {
        press(&mut screen, KeyCode::PageUp, KeyModifiers::NONE);
        numbers(&mut screen);
    }
    assert_eq!(numbers(&mut screen), [0, 1, 2, 3, 4]);
    press(&mut screen, KeyCode::Down, KeyModifiers::SHIFT);
    assert_eq!(numbers(&mut screen), [2, 3, 4, 5, 6]);
    for _ in 0..30 {
        press(&mut screen, KeyCode::PageDown, KeyModifiers::NONE);
        numbers(&mut screen);
    }
    notices(&mut screen, 50..51);
    assert_eq!(numbers(&mut screen), [46, 47, 48, 49, 50], "it follows again");
}

#[test]
fn another_width_keeps_the_place() {
    let mut screen = with_notices();
    press(&mut screen, KeyCode::PageUp, KeyModifiers::NONE);
    let first = numbers(&mut screen)[0];
    painted(&mut screen, 7);
    assert_eq!(numbers(&mut screen)[0], first);
}
