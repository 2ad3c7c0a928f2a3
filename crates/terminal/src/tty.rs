//! The real terminal: taken over at the start, given back whatever happens.

mod backend;

use crate::draw::draw;
use crate::screen::Screen;
use backend::{Tty, queue_begin, queue_end};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{cursor, execute};
use ratatui_core::terminal::Terminal;
use rustix::process::{Signal, getpgrp, kill_process_group};
use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a screen is painted on.
pub trait Face {
    fn paint(&mut self, screen: &mut Screen) -> io::Result<()>;

    /// Gives the terminal back and stops the process; `resume` follows when it goes on.
    fn suspend(&mut self) -> io::Result<()>;

    fn resume(&mut self) -> io::Result<()>;
}

pub struct Taken {
    terminal: Terminal<Tty>,
}

/// Whether the terminal is ours: a panic on any thread gives it back first, so that its message can be read.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Taken {
    pub fn take() -> io::Result<Taken> {
        give_back_on_panic();
        enter()?;
        let terminal = Terminal::new(Tty::new()).inspect_err(|_| give_back())?;
        Ok(Taken { terminal })
    }
}

impl Face for Taken {
    /// One frame, which the terminal shows at once or not at all.
    fn paint(&mut self, screen: &mut Screen) -> io::Result<()> {
        if !TAKEN.load(Ordering::SeqCst) {
            return Err(io::Error::other("a part of the program has panicked; its message stands above"));
        }
        queue_begin(self.terminal.backend_mut())?;
        self.terminal.draw(|frame| {
            screen.lay_out(frame.area().as_size());
            if let Some(cursor) = draw(screen, frame.buffer_mut()) {
                frame.set_cursor_position(cursor);
            }
        })?;
        queue_end(self.terminal.backend_mut())
    }

    fn suspend(&mut self) -> io::Result<()> {
        give_back();
        kill_process_group(getpgrp(), Signal::TSTP)?;
        Ok(())
    }

    fn resume(&mut self) -> io::Result<()> {
        enter()?;
        self.terminal.clear()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste).inspect_err(|_| give_back())
}

/// Once: after it the terminal is somebody else's.
fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // There is nobody left to tell if this fails.
    let mut out = io::stdout();
    let _ = execute!(out, DisableBracketedPaste, LeaveAlternateScreen, cursor::Show);
    let _ = out.flush();
    let _ = disable_raw_mode();
}

fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
    });
}
