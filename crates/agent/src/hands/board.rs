//! What is known of the agents at work, for whoever wants to look at any time.

use super::Role;
use crate::limits::{HANDS_LISTED_MAX, TASK_SHOWN_BYTES_MAX};
use crate::talk::{Figures, Progress};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shared by those who work and those who look.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Vec<Seat>>>);

/// One agent and its task.
#[derive(Debug, Clone)]
pub struct Seat {
    pub id: String,
    pub name: String,
    pub task: String,
    pub background: bool,
    pub figures: Figures, // so far
    pub progress: Progress,
    began: Instant,
    took: Option<Duration>, // none: it is still at work
}

impl Seat {
    pub fn took(&self) -> Duration {
        self.took.unwrap_or_else(|| self.began.elapsed())
    }
}

impl Board {
    pub(super) fn begin(&self, id: &str, name: &str, task: &str, background: bool) {
        let mut seats = self.seats();
        if seats.len() == HANDS_LISTED_MAX {
            // There are fewer at work than are listed.
            let oldest = seats.iter().position(|seat| seat.took.is_some());
            oldest.map(|oldest| seats.remove(oldest));
        }
        seats.push(Seat {
            id: id.to_owned(),
            name: name.to_owned(),
            task: task.to_owned(),
            background,
            figures: Figures::default(),
            progress: Progress::Running,
            began: Instant::now(),
            took: None,
        });
    }

    pub(super) fn counted(&self, id: &str, figures: &Figures) {
        if let Some(seat) = self.seats().iter_mut().find(|seat| seat.id == id) {
            seat.figures.clone_from(figures);
        }
    }

    pub(super) fn end(&self, id: &str, figures: &Figures, progress: Progress) {
        self.counted(id, figures);
        if let Some(seat) = self.seats().iter_mut().find(|seat| seat.id == id) {
            (seat.progress, seat.took) = (progress, Some(seat.began.elapsed()));
        }
    }

    /// Those that work and those that have, in their order.
    pub fn list(&self) -> Vec<Seat> {
        self.seats().clone()
    }

    /// The agents that there are and those at work, in words. `none` says what to do where there are none.
    pub fn told(&self, roles: &[Role], none: &str) -> String {
        let mut text = String::new();
        for role in roles {
            let model = role.model.as_deref().unwrap_or("the session's model");
            text += &format!("{}  ({model})\n  {}\n", role.name, one_line(&role.description));
        }
        if roles.is_empty() {
            text += none;
        } else {
            text += "\n/agents NAME TASK starts one in the background, /agents stop ID stops it.\n";
        }
        let seats = self.list();
        if !seats.is_empty() {
            text += "\nAt work, and before:\n";
        }
        text.extend(seats.iter().map(line));
        text
    }

    fn seats(&self) -> MutexGuard<'_, Vec<Seat>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(seat: &Seat) -> String {
    let state = match (seat.progress, seat.background) {
        (Progress::Running, true) => "at work in the background",
        (Progress::Running, false) => "at work",
        (Progress::Done, _) => "done",
        (Progress::Failed | Progress::Declined, _) => "failed",
    };
    let Figures { tokens_in, tokens_out, served, .. } = &seat.figures;
    let model = served.as_ref().map_or(String::new(), |served| format!(", {}", served.model));
    let (id, name, took) = (&seat.id, &seat.name, seat.took().as_secs_f32());
    let task = one_line(&seat.task);
    format!("{id} {name}: {state}, {took:.1} s, {tokens_in} tokens in, {tokens_out} out{model}\n  {task}\n")
}

/// The beginning of a text.
fn one_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line[..line.floor_char_boundary(TASK_SHOWN_BYTES_MAX)].to_owned()
}
