//! `cargo xtask picture OUT.svg`: the agent at work, recorded in a pseudo-terminal, as a picture that moves.
//!
//! The real program with the default model. Nothing is retouched but waiting: where the screen stands still for longer than
//! `STILL_MAX`, the picture goes on after that.

mod rows;
mod svg;

use crate::pty::Pty;
use crate::{Outcome, bench};
use rows::{Row, Shown};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::sleep;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cargo xtask picture [--bin PATH] OUT.svg";

const ROWS: NonZeroU16 = NonZeroU16::new(26).unwrap();
const COLUMNS: NonZeroU16 = NonZeroU16::new(92).unwrap();

/// Loading the model, or a turn.
const PATIENCE: Duration = Duration::from_secs(180);
const STILL_MAX: Duration = Duration::from_millis(1_500);
/// Between two keys.
const KEY: Duration = Duration::from_millis(35);
/// Changes that follow each other sooner are one.
const FRAME: Duration = Duration::from_millis(80);

const FILE: &str = "class Square:\n    def __init__(self, side):\n        self.side = side\n\n    def size(self):\n        return self.side * self.side\n";

pub fn run(args: &[String]) -> Outcome {
    let (program, out) = match args {
        [out] => (bench::release_build()?, out),
        [flag, program, out] if flag == "--bin" => (PathBuf::from(program).canonicalize()?, out),
        _ => return Err(USAGE.into()),
    };
    let shown = record(&program)?;
    std::fs::write(Path::new(out), svg::draw(&shown, ROWS.get(), COLUMNS.get()))
        .map_err(|error| format!("{out}: {error}").into())
}

/// What happens before the picture begins, and then in it.
fn record(program: &Path) -> Outcome<Shown> {
    // Its name is in the picture.
    let folder = tempfile::Builder::new().prefix("shapes").rand_bytes(0).tempdir()?;
    let home = tempfile::tempdir()?;
    std::fs::write(folder.path().join("shapes.py"), FILE)?;
    let mut command = Command::new(program);
    let pty = Pty::open(
        command.env("FLINT_HOME", home.path()).current_dir(folder.path()),
        ROWS.get(),
        COLUMNS.get(),
    )?;
    let mut stage = Stage::new(pty);
    stage.until("trust it?")?;
    stage.pty.press("y\n")?;
    stage.until("enter sends")?;
    // The model is loaded, and reads the agent's words, once.
    stage.pty.press("Say hello.\r")?;
    stage.until("tok/s")?;
    stage.pty.press("/clear\r")?;
    stage.rest(Duration::from_secs(3))?;

    stage.begin();
    stage.types("Rename the method size of Square to area in shapes.py")?;
    stage.until("+1 -1")?;
    stage.until("enter sends")?;
    stage.rest(STILL_MAX)?;
    stage.types("Explain to me, in 40 points of one sentence each, what else Square could do.")?;
    stage.rest(Duration::from_secs(2))?;
    stage.types("Only the two best ones, please.")?;
    stage.until("enter sends")?;
    stage.rest(Duration::from_millis(500))?;
    stage.show();
    Ok(stage.shown)
}

/// A terminal, what stands on it, and what stood there.
struct Stage {
    pty: Pty,
    screen: vt100::Parser,
    shown: Shown,
    clock: Duration, // of the picture
    last: Instant,   // a change
}

impl Stage {
    fn new(pty: Pty) -> Stage {
        let screen = vt100::Parser::new(ROWS, COLUMNS, 0);
        Stage { pty, screen, shown: Shown::default(), clock: Duration::ZERO, last: Instant::now() }
    }

    /// What was shown so far is not in the picture.
    fn begin(&mut self) {
        (self.shown, self.clock, self.last) = (Shown::default(), Duration::ZERO, Instant::now());
        self.show();
    }

    /// Key by key, then Enter.
    fn types(&mut self, text: &str) -> Outcome {
        for letter in text.chars() {
            self.pty.press(letter.encode_utf8(&mut [0; 4]))?;
            self.rest(KEY)?;
        }
        self.rest(Duration::from_millis(400))?;
        self.pty.press("\r")?;
        self.rest(Duration::from_millis(200))
    }

    fn rest(&mut self, time: Duration) -> Outcome {
        let until = Instant::now() + time;
        while self.step(until)? {}
        Ok(())
    }

    /// Until the screen has this text.
    fn until(&mut self, text: &str) -> Outcome {
        let until = Instant::now() + PATIENCE;
        while !self.screen.screen().contents().contains(text) {
            if !self.step(until)? {
                let contents = self.screen.screen().contents();
                return Err(format!("{text:?} does not come:\n{contents}").into());
            }
        }
        Ok(())
    }

    /// The next change, if there is one in time.
    fn step(&mut self, until: Instant) -> Outcome<bool> {
        match self.pty.painted.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((at, bytes)) => {
                self.screen.process(&bytes);
                if at.duration_since(self.last) >= FRAME {
                    self.clock += at.duration_since(self.last).min(STILL_MAX);
                    self.last = at;
                    self.show();
                }
                Ok(true)
            }
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => {
                sleep(Duration::from_millis(100));
                Err(format!("the program ended:\n{}", self.screen.screen().contents()).into())
            }
        }
    }

    fn show(&mut self) {
        let screen = self.screen.screen();
        self.shown
            .add(self.clock, (0..ROWS.get()).map(|row| Row::read(screen, row, COLUMNS.get())).collect());
    }
}
