//! The line at the bottom, and the rule above the composer.
//!
//! The status says what the server said or what was measured. What is not known is not there.

use crate::limits::SPINNER_STEP_TIME;
use crate::screen::Screen;
use crate::style::{BAD, BOLD, DIM, GOOD, LOUD, PLAIN, WARNING};
use crate::words;
use crate::wrap::{Piece, Row, columns, cut, piece};
use flint_agent::talk::{Connection, Figures, Served};
use ratatui_core::style::Style;

const SPINNER: [&str; 8] = ["⠋", "⠙", "⠸", "⠴", "⠦", "⠇", "⠏", "⠛"];

/// Of the composer. More of them may not all be seen, so they are counted.
const LINES_UNCOUNTED: usize = 3;

/// The most important first; what has no room is left out from the end.
pub fn line(screen: &Screen, width: usize) -> Row {
    let mut parts = vec![model(screen)];
    parts.extend(connection(screen));
    if let Some(figures) = &screen.figures {
        parts.extend(figures_parts(figures));
    }
    parts.extend(limits(screen));
    parts.push(piece(&screen.folder, DIM));
    let mut pieces: Vec<Piece> = Vec::new();
    let mut used = 0;
    for part in parts.into_iter().filter(|part| !part.content.is_empty()) {
        let apart = if pieces.is_empty() { "" } else { " · " };
        let needed = columns(std::slice::from_ref(&part)) + apart.chars().count();
        if used + needed > width && !pieces.is_empty() {
            break;
        }
        used += needed;
        pieces.push(piece(apart, DIM));
        pieces.push(piece(&cut(&part.content, width), part.style));
    }
    Row::from(pieces)
}

/// Who answered last, in red if it was not who was asked. Before any answer: who will be asked.
fn model(screen: &Screen) -> Piece {
    let figures = screen.figures.as_ref().and_then(|figures| figures.served.as_ref());
    let served = figures.or_else(|| screen.probe.as_ref().and_then(|probe| probe.served.as_ref()));
    let asked = screen.model.as_deref();
    match (served, asked) {
        (Some(served), _) if served.asked != served.model => {
            piece(&format!("{} ANSWERED, {} was asked", served.model, served.asked), LOUD)
        }
        (Some(served), Some(asked)) if asked != served.model && asked != served.asked => {
            piece(&format!("{}, next {asked}", with_tier(served)), BOLD)
        }
        (Some(served), _) => piece(&with_tier(served), BOLD),
        (None, Some(asked)) => piece(&format!("{asked} (asked)"), DIM),
        (None, None) => piece("", PLAIN),
    }
}

fn with_tier(served: &Served) -> String {
    match &served.tier {
        Some(tier) => format!("{} ({tier})", served.model),
        None => served.model.clone(),
    }
}

fn connection(screen: &Screen) -> Option<Piece> {
    let (text, style) = match screen.connection.as_ref()? {
        Connection::Connecting => ("connecting".to_owned(), WARNING),
        Connection::Open => ("connected".to_owned(), GOOD),
        Connection::Requests { why } => (format!("by requests: {why}"), WARNING),
        Connection::Lost { why } => (format!("lost: {why}"), BAD),
    };
    Some(piece(&text, style))
}

fn figures_parts(figures: &Figures) -> Vec<Piece> {
    let mut parts = Vec::new();
    let mut add = |text: Option<String>, style: Style| parts.extend(text.map(|text| piece(&text, style)));
    add(figures.first_token.map(|time| format!("first token {}", words::time(time))), DIM);
    let rate = figures.tokens_a_second.filter(|rate| rate.is_finite());
    add(rate.map(|rate| format!("{rate:.0} tok/s")), DIM);
    let cached = words::percent(figures.tokens_cached, figures.tokens_in);
    add(cached.map(|percent| format!("{percent}% cached")), DIM);
    add(figures.queued.map(|time| format!("queued {}", words::time(time))), DIM);
    let context = figures.context;
    let used = context.window.and_then(|window| words::percent(context.tokens, window));
    let style = if used.is_some_and(|percent| percent >= 90) { WARNING } else { DIM };
    add(used.map(|percent| format!("context {percent}%")), style);
    parts
}

/// What is left of each limit that the server told of.
fn limits(screen: &Screen) -> Vec<Piece> {
    let told = screen.figures.as_ref().map(|figures| &figures.limits).filter(|limits| !limits.is_empty());
    let limits = told.or_else(|| screen.probe.as_ref().map(|probe| &probe.limits));
    let limits = limits.map(Vec::as_slice).unwrap_or_default();
    let known = limits.iter().filter(|limit| limit.used_percent.is_finite());
    let left = known.map(|limit| (&limit.name, (100.0 - limit.used_percent).clamp(0.0, 100.0)));
    left.map(|(name, left)| {
        piece(&format!("{name} {left:.0}% left"), if left < 10.0 { WARNING } else { DIM })
    })
    .collect()
}

/// Between transcript and composer: what runs, and which keys do what.
pub fn rule(screen: &Screen, width: usize) -> Row {
    let (text, style) = activity(screen);
    let below = if screen.transcript.at_end() { "" } else { "more below, pgdn · " };
    let lines = match screen.composer.text().split('\n').count() {
        1..=LINES_UNCOUNTED => String::new(),
        lines => format!("{} lines · ", words::count(lines as u64)),
    };
    let text = cut(&format!("── {below}{lines}{text} "), width);
    let used = columns(&[piece(&text, style)]);
    Row::from(vec![piece(&text, style), piece(&"─".repeat(width.saturating_sub(used)), DIM)])
}

fn activity(screen: &Screen) -> (String, Style) {
    if let Some((_, remark)) = &screen.remark {
        return (remark.clone(), WARNING);
    }
    if screen.panel.reason {
        return ("why not? enter says it, esc goes back".to_owned(), WARNING);
    }
    if screen.sent.editing.is_some() {
        let keys = "changing what waits: enter keeps it, ctrl+x withdraws it, esc leaves it";
        return (keys.to_owned(), WARNING);
    }
    let Some(turn) = &screen.turn else {
        return ("enter sends · alt+enter new line · /help".to_owned(), DIM);
    };
    let elapsed = screen.now.saturating_sub(turn.began);
    let step = screen.now.as_millis() / SPINNER_STEP_TIME.as_millis();
    let wheel = SPINNER[(step % SPINNER.len() as u128) as usize];
    let keys = match turn.interrupted {
        true => "interrupting",
        false => "enter steers · tab queues · esc interrupts",
    };
    (format!("{wheel} {} · {keys}", words::time(elapsed)), PLAIN)
}
