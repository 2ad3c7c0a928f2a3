//! Bars and spinners on standard error; plain lines where that is no terminal.

use crate::interrupt::Stoppable;
use flint_models::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(120);

/// The progress of a pull.
pub struct PullBar {
    bar: Option<ProgressBar>,
    stoppable: Stoppable,
}

impl PullBar {
    pub fn new() -> PullBar {
        PullBar { bar: None, stoppable: Stoppable::begin() }
    }
}

impl Progress for PullBar {
    fn begin(&mut self, what: &str, total: Option<u64>, done: u64) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if !std::io::stderr().is_terminal() {
            eprintln!("{what}");
            return;
        }
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        let template = match total {
            Some(_) => {
                "{wide_msg}\n{bar:40.cyan/dim} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left"
            }
            None => "{spinner} {wide_msg}\n{bytes}, {binary_bytes_per_sec}",
        };
        bar.set_style(style(template));
        bar.set_message(what.to_string());
        bar.enable_steady_tick(TICK);
        bar.set_position(done);
        bar.reset_eta();
        self.bar = Some(bar);
    }

    fn at(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    fn stop(&self) -> bool {
        self.stoppable.asked()
    }
}

impl Drop for PullBar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Shows that something takes a while, until it is dropped.
pub struct Spinner(Option<ProgressBar>);

impl Spinner {
    pub fn new(what: impl Into<String>) -> Spinner {
        if !std::io::stderr().is_terminal() {
            return Spinner(None);
        }
        let bar = ProgressBar::new_spinner();
        bar.set_style(style("{spinner} {msg} {elapsed}"));
        bar.set_message(what.into());
        bar.enable_steady_tick(TICK);
        Spinner(Some(bar))
    }

    pub fn say(&self, what: impl Into<String>) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.into());
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
