//! Between transcript and composer: the plan, what was sent, and completions.

use crate::screen::{Screen, Sent};
use crate::style::{BAD, BOLD, CHOSEN, DIM, GOOD, PLAIN, STRUCK, WARNING};
use crate::wrap::{Row, cut, piece, row};
use flint_agent::talk::{How, State, Step, StepState};
use ratatui_core::style::Style;

/// The plan while a turn works on it, around the step that runs.
pub fn plan(screen: &Screen, width: usize, rows_max: usize) -> Vec<Row> {
    let steps = &screen.plan;
    let done = steps.iter().filter(|step| step.state == StepState::Done).count();
    if rows_max < 2 || done == steps.len() || !screen.is_running() {
        return Vec::new();
    }
    let room = rows_max - 1;
    let next = steps.iter().position(|step| step.state != StepState::Done).unwrap_or(0);
    let from = next.saturating_sub(1).min(steps.len().saturating_sub(room));
    let mut rows = vec![row(&cut(&format!("Plan, {done} of {} done", steps.len()), width), DIM)];
    rows.extend(steps.iter().skip(from).take(room).map(|step| step_row(step, width)));
    rows
}

fn step_row(step: &Step, width: usize) -> Row {
    let (sign, style) = match step.state {
        StepState::Open => ("☐ ", PLAIN),
        StepState::Running => ("▶ ", BOLD),
        StepState::Done => ("☑ ", DIM.patch(STRUCK)),
    };
    Row::from(vec![piece(sign, PLAIN), piece(&cut(&step.text, width.saturating_sub(2)), style)])
}

/// Each text that was steered or queued, and how far it is.
pub fn sent(screen: &Screen, width: usize, rows_max: usize) -> Vec<Row> {
    let list = screen.sent.list();
    if rows_max == 0 || list.is_empty() {
        return Vec::new();
    }
    let hidden = list.len().saturating_sub(rows_max);
    let (hidden, shown) = if hidden > 0 { (hidden + 1, rows_max - 1) } else { (0, list.len()) };
    let mut rows = Vec::new();
    if hidden > 0 {
        rows.push(row(&cut(&format!("  … {hidden} more"), width), DIM));
    }
    let edited = screen.sent.editing.as_ref().map(|editing| editing.number);
    rows.extend(list.iter().skip(hidden).take(shown).map(|sent| sent_row(sent, edited, width)));
    rows
}

fn sent_row(sent: &Sent, edited: Option<u64>, width: usize) -> Row {
    let how = match sent.how {
        How::Steered => "steer",
        How::Queued => "queue",
    };
    let (state, style) = match edited == Some(sent.number) {
        true => ("in the composer".to_owned(), WARNING),
        false => state(sent.state.as_ref()),
    };
    let head = format!("{how} {state} ");
    let room = width.saturating_sub(head.chars().count());
    Row::from(vec![piece(&cut(&head, width), style), piece(&cut(&sent.text, room), PLAIN)])
}

fn state(state: Option<&State>) -> (String, Style) {
    match state {
        None => ("…".to_owned(), DIM),
        Some(State::Waiting) => ("waiting (alt+up)".to_owned(), WARNING),
        Some(State::Sent) => ("sent".to_owned(), WARNING),
        Some(State::Accepted) => ("accepted".to_owned(), GOOD),
        Some(State::Applied) => ("applied".to_owned(), GOOD),
        Some(State::Withdrawn) => ("withdrawn".to_owned(), DIM),
        Some(State::Failed { why }) => (format!("failed: {why}:"), BAD),
    }
}

/// Commands that what is typed could become.
pub fn popup(screen: &Screen, width: usize, rows_max: usize) -> Vec<Row> {
    let found = screen.completions();
    let from = (screen.popup + 1).saturating_sub(rows_max);
    let lines = found.iter().enumerate().skip(from).take(rows_max);
    lines
        .map(|(at, slash)| {
            let name = format!("/{:<12}", slash.name());
            let style = if at == screen.popup { CHOSEN } else { BOLD };
            let room = width.saturating_sub(name.len() + 1);
            let about = cut(slash.about(), room);
            Row::from(vec![piece(&cut(&name, width), style), piece(" ", PLAIN), piece(&about, DIM)])
        })
        .collect()
}
