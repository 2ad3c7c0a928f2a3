//! The agent in a terminal: how soon it paints.

use super::milliseconds;
use super::model::{LONG, Model, WORDS, word};
use crate::Outcome;
use crate::pty::Pty;
use std::collections::HashMap;
use std::num::NonZeroU16;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

const ROWS: NonZeroU16 = NonZeroU16::new(50).unwrap();
const COLUMNS: NonZeroU16 = NonZeroU16::new(120).unwrap();

/// Nothing is painted for so long: what was typed is on the screen.
const QUIET: Duration = Duration::from_millis(60);

pub struct Face {
    pty: Pty,
    _folder: tempfile::TempDir,
}

impl Face {
    pub fn open(program: &Path, home: &Path) -> Outcome<Face> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(program);
        let pty =
            Pty::open(command.env("FLINT_HOME", home).current_dir(folder.path()), ROWS.get(), COLUMNS.get())?;
        let mut face = Face { pty, _folder: folder };
        face.wait_for(b"Do you trust it?")?;
        face.press("n\n")?;
        face.wait_for(b"\x1b[?1049h")?;
        Ok(face)
    }

    pub fn press(&mut self, keys: &str) -> Outcome {
        self.pty.press(keys)
    }

    pub fn settle(&self) {
        while self.pty.painted.recv_timeout(QUIET).is_ok() {}
    }

    fn wait_for(&mut self, text: &[u8]) -> Outcome {
        let mut seen = Vec::new();
        loop {
            let (_, bytes) =
                self.pty.painted.recv_timeout(PATIENCE).map_err(|_| "the program does not start")?;
            seen.extend(bytes);
            if seen.windows(text.len()).any(|window| window == text) {
                return Ok(());
            }
        }
    }

    /// From each word's frame to when it first stands on the screen.
    pub fn paints(&mut self, model: &Model) -> Outcome<Vec<f64>> {
        self.press(LONG)?;
        self.settle();
        self.press("\r")?;
        model.asked()?;
        let known: HashMap<String, usize> = (0..WORDS).map(|index| (word(index), index)).collect();
        // A terminal is sent the cells that change, not words: only who draws them sees these.
        let mut screen = vt100::Parser::new(ROWS, COLUMNS, 0);
        let mut seen: HashMap<usize, Instant> = HashMap::new();
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match self.pty.painted.recv_timeout(Duration::from_secs(1)) {
                Ok((at, bytes)) => {
                    screen.process(&bytes);
                    let contents = screen.screen().contents();
                    for index in contents.split_whitespace().filter_map(|word| known.get(word)) {
                        seen.entry(*index).or_insert(at);
                    }
                }
                Err(RecvTimeoutError::Timeout) if seen.len() > WORDS / 2 => break,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("the program ended".into()),
            }
        }
        let sent = model.spoken.recv_timeout(PATIENCE)?;
        let late = |(word, at): (&usize, &Instant)| Some(milliseconds(at.duration_since(*sent.get(*word)?)));
        let times: Vec<f64> = seen.iter().filter_map(late).collect();
        match times.len() > WORDS / 2 {
            true => Ok(times),
            false => Err(format!("only {} of {WORDS} words were seen", times.len()).into()),
        }
    }
}

/// Letters that the model does not write.
const LETTERS: &str = "äöüßéèêàâçñøåæœðþłżšč";

impl Face {
    /// From each key that is pressed while the model writes to when it stands on the screen.
    pub fn keys(&mut self, model: &Model) -> Outcome<Vec<f64>> {
        self.press(LONG)?;
        self.settle();
        self.press("\r")?;
        model.asked()?;
        let mut times = Vec::new();
        for (number, letter) in LETTERS.chars().enumerate() {
            // Not in step with the frames.
            let until = Instant::now() + Duration::from_micros(100_000 + number as u64 * 3_700);
            while self.pty.painted.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
            let (pressed, mut seen) = (Instant::now(), Vec::new());
            self.press(letter.encode_utf8(&mut [0; 4]))?;
            while !String::from_utf8_lossy(&seen).contains(letter) {
                let (at, bytes) = self.pty.painted.recv_timeout(PATIENCE)?;
                seen.extend(bytes);
                if String::from_utf8_lossy(&seen).contains(letter) {
                    times.push(milliseconds(at.duration_since(pressed)));
                }
            }
        }
        model.spoken.recv_timeout(PATIENCE)?;
        Ok(times)
    }
}
