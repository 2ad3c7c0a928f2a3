//! What `/help`, `/status`, `/usage`, `/diff`, `/undo` and `/model` show.

mod status;
mod usage;

use crate::item::{Fit, change_rows};
use crate::outside::Choice;
use crate::screen::{Page, PageKind, Screen};
use crate::slash;
use crate::style::{BAD, BOLD, CHOSEN, DIM, GOOD, PLAIN};
use crate::wrap::{Margin, Row, cut, piece, row, wrap_text};
use flint_agent::talk::{FileChange, ModelState, Progress};

/// The title and the empty row below it.
pub const HEAD_ROWS: usize = 2;

pub fn rows(screen: &Screen, page: &Page) -> Vec<Row> {
    let width = screen.fit.width;
    match &page.kind {
        PageKind::Help => help(width),
        PageKind::Status => status::rows(screen, width),
        PageKind::Usage => usage::rows(screen, width),
        PageKind::Diff => changes(screen),
        PageKind::Models => models(screen, page.chosen, width),
        PageKind::Rewind { turn, changes, .. } => rewind(turn, changes, screen.fit),
        PageKind::Told { text, .. } => wrap_text(text, PLAIN, width, &Margin::default()),
        PageKind::Choose { choices, .. } => choice_rows(choices, page.chosen, width),
    }
}

/// How many lines can be chosen from.
pub fn choices(screen: &Screen, page: &Page) -> usize {
    match &page.kind {
        PageKind::Models => screen.probe.as_ref().map_or(0, |probe| probe.models.len()),
        PageKind::Choose { choices, .. } => choices.len(),
        PageKind::Help
        | PageKind::Status
        | PageKind::Usage
        | PageKind::Diff
        | PageKind::Rewind { .. }
        | PageKind::Told { .. } => 0,
    }
}

/// The title, and the rows from the first that is shown.
pub fn shown(page: &Page, width: usize) -> Vec<Row> {
    let keys = piece(&format!("  {}", page.keys()), DIM);
    let title = Row::from(vec![piece(&cut(page.title(), width), BOLD), keys]);
    let mut rows = vec![title, Row::default()];
    rows.extend(page.rows.iter().skip(page.top).cloned());
    rows
}

const KEYS: [(&str, &str); 13] = [
    ("enter", "sends; while a turn runs, steers it"),
    ("tab", "queues for the next turn"),
    ("esc", "interrupts the turn and keeps what is done"),
    ("ctrl+c", "clears the text, then interrupts, then, twice, ends the program"),
    ("alt+enter, ctrl+j", "a new line"),
    ("up, down", "what was sent before"),
    ("alt+up", "takes a waiting text back to change it"),
    ("ctrl+x", "withdraws the waiting text that is being changed"),
    ("pgup, pgdn, shift+up", "scroll; ctrl+end goes to the newest"),
    ("ctrl+o", "shows outputs, thoughts and diffs in full, or short"),
    ("ctrl+a, ctrl+e", "to the beginning and end of the line"),
    ("ctrl+w, ctrl+u, ctrl+k", "delete a word, to the beginning, to the end of the line"),
    ("ctrl+z", "suspends the program"),
];

fn help(width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for (key, about) in KEYS {
        rows.extend(wrap_text(about, PLAIN, width, &Margin::new(&format!("{key:<24}"), "    ", BOLD)));
    }
    rows.push(Row::default());
    for slash in slash::ALL {
        let name = format!("/{:<23}", slash.name());
        rows.extend(wrap_text(slash.about(), PLAIN, width, &Margin::new(&name, "    ", BOLD)));
    }
    rows
}

/// All changes; those of turns that were undone say so, and do not count.
fn changes(screen: &Screen) -> Vec<Row> {
    let fit = Fit { full: true, ..screen.fit };
    let (mut plus, mut minus, mut body) = (0, 0, Vec::new());
    for (turn, change) in screen.transcript.changes() {
        if screen.undone.contains(&turn) {
            body.push(row(&cut(&format!("undone: {}", change.path), fit.width), DIM));
            continue;
        }
        let (came, went) = crate::diff::counts(&change.diff);
        (plus, minus) = (plus + came, minus + went);
        body.extend(change_rows(change, Progress::Done, fit));
    }
    if body.is_empty() {
        return vec![row("No file was changed.", DIM)];
    }
    let sum =
        vec![piece(&format!("+{plus}"), GOOD), piece(&format!(" -{minus}"), BAD), piece(" in all", DIM)];
    [vec![Row::from(sum), Row::default()], body].concat()
}

/// A turn, and what would become of the files.
fn rewind(turn: &str, changes: &[FileChange], fit: Fit) -> Vec<Row> {
    let mut rows = wrap_text(turn, PLAIN, fit.width, &Margin::new("› ", "  ", BOLD));
    rows.push(Row::default());
    if changes.is_empty() {
        rows.push(row("No file changes; the conversation does.", DIM));
    }
    let fit = Fit { full: true, ..fit };
    rows.extend(changes.iter().flat_map(|change| change_rows(change, Progress::Done, fit)));
    rows
}

fn models(screen: &Screen, chosen: usize, width: usize) -> Vec<Row> {
    let Some(probe) = &screen.probe else { return vec![row("The server is being asked …", DIM)] };
    if probe.models.is_empty() {
        return vec![row("The server names no models.", DIM)];
    }
    let lines = probe.models.iter().enumerate();
    lines.map(|(at, model)| model_row(model, at == chosen, width)).collect()
}

/// One that cannot be used is grey, and says why.
fn model_row(model: &ModelState, chosen: bool, width: usize) -> Row {
    let window = model.window.map(|window| format!("{} tokens", crate::words::count(window)));
    let (style, about) = match &model.refused {
        Some(why) => (DIM, format!("refused: {why}")),
        None => (PLAIN, window.unwrap_or_default()),
    };
    list_row(&model.name, &about, if chosen { style.patch(CHOSEN) } else { style }, width)
}

fn choice_rows(choices: &[Choice], chosen: usize, width: usize) -> Vec<Row> {
    if choices.is_empty() {
        return vec![row("There is nothing to choose from.", DIM)];
    }
    let lines = choices.iter().enumerate();
    let style = |at| if at == chosen { CHOSEN } else { PLAIN };
    lines.map(|(at, choice)| list_row(&choice.label, &choice.about, style(at), width)).collect()
}

fn list_row(label: &str, about: &str, style: ratatui_core::style::Style, width: usize) -> Row {
    let label = cut(label, width);
    let room = width.saturating_sub(crate::wrap::columns(&[piece(&label, style)]) + 2);
    Row::from(vec![piece(&label, style), piece("  ", PLAIN), piece(&cut(about, room), DIM)])
}
