//! Ctrl-C: the first stops what runs, another one quits.

use crate::error::CliError;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Ctrl-C stops something, or ends the program.
static RUNNING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);
static INSTALLED: OnceLock<bool> = OnceLock::new();

const EXIT_INTERRUPTED: i32 = 130;

/// Listens for Ctrl-C from here on.
pub fn listen() -> Result<(), CliError> {
    let installed = INSTALLED.get_or_init(|| ctrlc::set_handler(on_interrupt).is_ok());
    if *installed { Ok(()) } else { Err(CliError::Usage("Ctrl-C cannot be handled on this system".into())) }
}

fn on_interrupt() {
    let stops_something = RUNNING.load(Ordering::SeqCst) && !ASKED.swap(true, Ordering::SeqCst);
    if !stops_something {
        eprintln!();
        std::process::exit(EXIT_INTERRUPTED);
    }
}

/// While this lives, the first Ctrl-C only asks to stop.
pub struct Stoppable(());

impl Stoppable {
    pub fn begin() -> Stoppable {
        ASKED.store(false, Ordering::SeqCst);
        RUNNING.store(true, Ordering::SeqCst);
        Stoppable(())
    }

    pub fn asked(&self) -> bool {
        ASKED.load(Ordering::SeqCst)
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        RUNNING.store(false, Ordering::SeqCst);
    }
}
