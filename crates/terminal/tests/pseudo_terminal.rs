//! The example `play` in a real pseudo-terminal: it takes the terminal over, and gives it back however it ends.

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// A program that runs in a terminal of its own.
struct Played {
    terminal: File,
    other_end: OwnedFd,
    child: Child,
    bytes: Receiver<Vec<u8>>,
    written: Vec<u8>, // all that has been read
}

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(20);

fn play(arguments: &[&str]) -> Played {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let other_end = open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&other_end, size).unwrap();
    let end = || Stdio::from(other_end.try_clone().unwrap());
    let child =
        Command::new(example()).args(arguments).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    let terminal = File::from(terminal);
    let bytes = read_all(terminal.try_clone().unwrap());
    Played { terminal, other_end, child, bytes, written: Vec::new() }
}

/// On a thread of its own, so that a wait can come to an end.
fn read_all(mut terminal: File) -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(64);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count) = terminal.read(&mut bytes) {
            if count == 0 || sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Cargo builds examples beside the folder of the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/play")
}

impl Played {
    /// Reads until something holds for all that was written.
    fn read_until(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        loop {
            let text = String::from_utf8_lossy(&self.written).into_owned();
            if holds(&text) {
                return;
            }
            match self.bytes.recv_timeout(PATIENCE) {
                Ok(bytes) => self.written.extend(bytes),
                Err(_) => panic!("no {what:?} on\n{}", screen(&text)),
            }
        }
    }

    fn wait_for_bytes(&mut self, wanted: &str) {
        self.read_until(wanted, |text| text.contains(wanted));
    }

    fn wait_to_see(&mut self, wanted: &str) {
        self.read_until(wanted, |text| screen(text).contains(wanted));
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.other_end).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Waits for the last words after the end, and says how it ended.
    fn given_back(mut self, last_words: &str) -> ExitStatus {
        self.wait_for_bytes("\u{1b}[?1049l");
        self.wait_for_bytes(last_words);
        let status = self.child.wait().unwrap();
        assert!(!self.is_raw(), "the terminal is as it was");
        self.wait_for_bytes("\u{1b}[?25h"); // the cursor is shown
        self.wait_for_bytes("\u{1b}[?2004l"); // pastes are as they were
        status
    }
}

/// What a terminal of 80 columns would show. Of all sequences it only needs to know those that move the cursor.
fn screen(text: &str) -> String {
    let mut cells = vec![vec![' '; 80]; 24];
    let (mut x, mut y) = (0, 0);
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        rest = &rest[char.len_utf8()..];
        if let Some(sequence) = rest.strip_prefix('[').filter(|_| char == '\u{1b}') {
            let Some(end) = sequence.find(|char: char| char.is_ascii_alphabetic()) else { break };
            let numbers = || sequence[..end].split(';').map(|number| number.parse().unwrap_or(1));
            match &sequence[end..=end] {
                "H" => (y, x) = (numbers().next().unwrap_or(1) - 1, numbers().nth(1).unwrap_or(1) - 1),
                "J" => cells.iter_mut().for_each(|row| row.fill(' ')),
                _ => {}
            }
            rest = &sequence[end + 1..];
        } else if let Some(cell) = cells.get_mut(y).and_then(|row| row.get_mut(x)) {
            *cell = char;
            x += 1;
        }
    }
    cells.into_iter().map(|row| row.into_iter().collect::<String>() + "\n").collect()
}

#[test]
fn keys_are_painted_and_end_it() {
    let mut played = play(&["100000"]);
    played.wait_for_bytes("\u{1b}[?1049h");
    played.wait_to_see("1987 tok/s");
    assert!(played.is_raw());
    played.wait_for_bytes("\u{1b}[?2026h"); // frames are shown whole
    played.wait_for_bytes("\u{1b}[?2026l");
    played.press("/stat");
    played.wait_to_see("ask the server what it serves");
    played.press("\u{3}\u{3}");
    played.wait_to_see("ctrl+c once more");
    played.press("\u{3}");
    assert!(played.given_back("Quit: ").success());
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let played = play(&["100000", "--end"]);
    assert!(played.given_back("Signal: ").success());
}

#[test]
fn a_panic_gives_the_terminal_back_and_can_be_read() {
    let played = play(&["100000", "--panic"]);
    assert!(!played.given_back("as was asked for").success());
}
