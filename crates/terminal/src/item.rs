//! Each kind of item as rows.

use crate::clean::settled_output;
use crate::diff;
use crate::limits::{
    DIFF_LINES_MAX, DIFF_LINES_SHORT, LINE_CHARS_MAX, OUTPUT_LINES_MAX, OUTPUT_LINES_SHORT,
    REASONING_BYTES_MAX, REASONING_BYTES_SHORT, REASONING_LINES_SHORT,
};
use crate::style::{BAD, BOLD, DIM, GOOD, ITALIC, LOUD, PERSON, PLAIN, STRUCK, WARNING};
use crate::words;
use crate::wrap::{Break, Margin, Piece, Row, columns, cut, piece, row, wrap, wrap_text};
use flint_agent::talk::{Figures, FileChange, Progress, Step, StepState, What};
use ratatui_core::style::Style;
use std::time::Duration;

/// How wide, and whether all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    pub width: usize,
    pub full: bool,
}

pub fn rows(what: &What, fit: Fit) -> Vec<Row> {
    match what {
        What::Said { text } => said(text, fit),
        // Those that grow are laid out by `flow`; this is the whole at once.
        What::Message { text } => crate::markdown::render(text, fit.width),
        What::Reasoning { text } => reasoning(text, fit),
        What::Command { command, output, code, took, progress } => {
            let mut rows = command_head(command, *progress, fit);
            rows.extend(output_rows(output, fit));
            rows.extend(command_end(*code, *took, *progress));
            rows
        }
        What::Files { changes, progress } => files(changes, *progress, fit),
        What::Look { tool, about, output, progress } => look(tool, about, output, *progress, fit),
        What::Agent { name, task, report, figures, progress } => {
            let mut rows = head(*progress, &format!("agent {name}:"), task, fit);
            rows.extend(output_rows(report, fit));
            rows.extend(agent_end(figures, *progress));
            rows
        }
        What::Plan { steps } => plan(steps, fit.width),
        What::Trouble { message } => trouble(message, fit.width),
    }
}

fn said(text: &str, fit: Fit) -> Vec<Row> {
    wrap(&[piece(text.trim_end(), BOLD)], fit.width, &Margin::new("› ", "  ", PERSON), Break::Words)
}

fn reasoning(text: &str, fit: Fit) -> Vec<Row> {
    let style = DIM.patch(ITALIC);
    let margin = Margin::new("  ", "  ", style);
    let bytes_max = if fit.full { REASONING_BYTES_MAX } else { REASONING_BYTES_SHORT };
    let shown = &text[text.ceil_char_boundary(text.len().saturating_sub(bytes_max))..];
    let mut rows = wrap(&[piece(shown.trim(), style)], fit.width, &margin, Break::Words);
    if !fit.full && rows.len() > REASONING_LINES_SHORT {
        rows.drain(..rows.len() - REASONING_LINES_SHORT);
    }
    rows
}

pub fn trouble(message: &str, width: usize) -> Vec<Row> {
    wrap_text(message, BAD, width, &Margin::new("✗ ", "  ", LOUD))
}

fn mark(progress: Progress) -> (&'static str, Style) {
    match progress {
        Progress::Running => ("◦ ", PLAIN),
        Progress::Done => ("• ", GOOD),
        Progress::Failed => ("✗ ", BAD),
        Progress::Declined => ("⊘ ", WARNING),
    }
}

fn head(progress: Progress, title: &str, about: &str, fit: Fit) -> Vec<Row> {
    let (sign, style) = mark(progress);
    let pieces = [piece(title, BOLD), piece(" ", PLAIN), piece(about, PLAIN)];
    let mut rows = wrap(&pieces, fit.width, &Margin::new(sign, "  ", style), Break::Words);
    shorten(&mut rows, fit, OUTPUT_LINES_SHORT);
    rows
}

fn command_head(command: &str, progress: Progress, fit: Fit) -> Vec<Row> {
    let (sign, style) = mark(progress);
    let pieces = [piece("$ ", DIM), piece(command.trim_end(), BOLD)];
    let mut rows = wrap(&pieces, fit.width, &Margin::new(sign, "    ", style), Break::Anywhere);
    shorten(&mut rows, fit, 2 * OUTPUT_LINES_SHORT);
    rows
}

/// Keeps the first rows and says that there are more.
fn shorten(rows: &mut Vec<Row>, fit: Fit, rows_max: usize) {
    if !fit.full && rows.len() > rows_max {
        let more = rows.len() - rows_max;
        rows.truncate(rows_max);
        rows.push(row(&format!("    … {more} more rows, ctrl+o shows them"), DIM));
    }
}

/// The last lines of a command's output.
fn output_rows(output: &str, fit: Fit) -> Vec<Row> {
    let lines_max = if fit.full { OUTPUT_LINES_MAX } else { OUTPUT_LINES_SHORT };
    let (shown, more) = last_lines(output.trim_end(), lines_max);
    let mut rows = Vec::new();
    if more > 0 {
        let how = if fit.full { "" } else { ", ctrl+o shows more" };
        rows.push(row(&format!("    … {more} lines before{how}"), DIM));
    }
    let margin = Margin::new("    ", "    ", DIM);
    for line in settled_output(shown).lines() {
        let line: String = line.chars().take(LINE_CHARS_MAX).collect();
        match fit.full {
            true => rows.extend(wrap(&[piece(&line, DIM)], fit.width, &margin, Break::Anywhere)),
            false => rows.push(row(&format!("    {}", cut(&line, fit.width.saturating_sub(4))), DIM)),
        }
    }
    rows
}

/// The end of a text, and how many lines stand before it.
fn last_lines(text: &str, lines: usize) -> (&str, usize) {
    let breaks = text.bytes().enumerate().rev().filter(|(_, byte)| *byte == b'\n');
    match breaks.map(|(at, _)| at).nth(lines.saturating_sub(1)) {
        Some(at) => (&text[at + 1..], text[..=at].bytes().filter(|byte| *byte == b'\n').count()),
        None => (text, 0),
    }
}

fn command_end(code: Option<i32>, took: Duration, progress: Progress) -> Option<Row> {
    let took = words::time(took);
    let (text, style) = match (progress, code) {
        (Progress::Running, _) => return None,
        (Progress::Declined, _) => ("declined".to_owned(), WARNING),
        (Progress::Done | Progress::Failed, Some(0)) => (format!("done in {took}"), DIM),
        (Progress::Done | Progress::Failed, Some(code)) => (format!("exit code {code} after {took}"), BAD),
        (Progress::Done, None) => (format!("ended after {took}"), DIM),
        (Progress::Failed, None) => (format!("ended without an exit code after {took}"), BAD),
    };
    Some(Row::from(vec![piece("    ", PLAIN), piece(&text, style)]))
}

fn files(changes: &[FileChange], progress: Progress, fit: Fit) -> Vec<Row> {
    let mut rows = Vec::new();
    for change in changes {
        rows.extend(change_rows(change, progress, fit));
    }
    if changes.is_empty() {
        rows.extend(head(progress, "files", "no changes", fit));
    }
    rows
}

/// One changed file: its name, how many lines came and went, and the diff.
pub fn change_rows(change: &FileChange, progress: Progress, fit: Fit) -> Vec<Row> {
    let (sign, style) = mark(progress);
    let (plus, minus) = diff::counts(&change.diff);
    let verb = match progress {
        Progress::Running => "",
        Progress::Done => "",
        Progress::Failed => " (failed)",
        Progress::Declined => " (declined)",
    };
    let pieces = [
        piece(&diff::title(change), BOLD),
        piece(verb, style),
        piece(&format!(" +{plus}"), GOOD),
        piece(&format!(" -{minus}"), BAD),
    ];
    let mut rows = wrap(&pieces, fit.width, &Margin::new(sign, "  ", style), Break::Words);
    let lines_max = if fit.full { DIFF_LINES_MAX } else { DIFF_LINES_SHORT };
    rows.extend(diff::rows(&change.diff, fit.width, lines_max));
    rows
}

/// One line: what was looked at, and how much was found.
fn look(tool: &str, about: &str, output: &str, progress: Progress, fit: Fit) -> Vec<Row> {
    let (sign, style) = mark(progress);
    let found = match (progress, output.lines().count()) {
        (Progress::Running, _) => String::new(),
        (Progress::Declined, _) => " · declined".to_owned(),
        (Progress::Failed, _) => format!(" · {}", output.lines().next().unwrap_or("failed")),
        (Progress::Done, 1) => " · 1 line".to_owned(),
        (Progress::Done, lines) => format!(" · {lines} lines"),
    };
    let before = [piece(sign, style), piece(tool, PLAIN), piece(" ", PLAIN)];
    let room = fit.width.saturating_sub(columns(&before));
    let mut pieces: Vec<Piece> = before.into();
    pieces.push(piece(&cut(&format!("{about}{found}"), room), DIM));
    let mut rows = vec![Row::from(pieces)];
    if fit.full {
        rows.extend(output_rows(output, fit));
    }
    rows
}

fn agent_end(figures: &Figures, progress: Progress) -> Option<Row> {
    if progress == Progress::Running || *figures == Figures::default() {
        return None;
    }
    let (mut served, mut style) = (String::new(), DIM);
    if let Some(who) = &figures.served {
        served = format!("{} · ", who.model);
        if who.asked != who.model {
            (served, style) = (format!("{} ANSWERED, {} was asked · ", who.model, who.asked), LOUD);
        }
    }
    let tokens = figures.tokens_in.saturating_add(figures.tokens_out);
    let text = format!("{served}{} tokens · {}", words::count(tokens), words::time(figures.took));
    Some(Row::from(vec![piece("    ", PLAIN), piece(&text, style)]))
}

pub fn plan(steps: &[Step], width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for step in steps {
        let (sign, style) = match step.state {
            StepState::Open => ("☐ ", PLAIN),
            StepState::Running => ("▶ ", BOLD),
            StepState::Done => ("☑ ", DIM.patch(STRUCK)),
        };
        rows.extend(wrap_text(&step.text, style, width, &Margin::new(sign, "  ", PLAIN)));
    }
    rows
}
