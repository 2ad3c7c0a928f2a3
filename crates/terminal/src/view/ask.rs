//! The panel that asks for a yes: what is to be done, why, and what each answer would mean.

use crate::diff;
use crate::limits::DIFF_LINES_MAX;
use crate::screen::Screen;
use crate::style::{BAD, BOLD, DIM, GOOD, LOUD, PLAIN, WARNING};
use crate::words;
use crate::wrap::{Break, Margin, Row, cut, piece, row, wrap, wrap_text};
use flint_agent::talk::{Asked, FileChange, Question};

/// A row of what is asked about, and one that says how much more there is.
const BODY_ROWS_MIN: usize = 2;

/// There are as many digits.
const RULES_MAX: usize = 9;

/// The panel, and how many of the offered rules it shows: only what is seen can be answered.
#[derive(Debug, Default)]
pub struct Shown {
    pub rows: Vec<Row>,
    pub rules: Option<usize>, // none: there is no room for the question
}

/// At most `rows_max` rows. The answers are always among them; what is asked about can be scrolled.
pub fn panel(screen: &Screen, width: usize, rows_max: usize) -> Shown {
    let Some(question) = screen.panel.question() else { return Shown::default() };
    let title = title(question, screen.panel.waiting());
    let mut rows = wrap_text(&title, WARNING.patch(BOLD), width, &Margin::new("? ", "  ", WARNING));
    let listens = screen.panel.listens(screen.now);
    let room = rows_max.saturating_sub(rows.len());
    let fits = |rules: &usize| answers(question, *rules, width, listens).len() + BODY_ROWS_MIN <= room;
    let Some(rules) = (0..=question.rules.len().min(RULES_MAX)).rev().find(fits) else {
        let text = "A question waits: make the window larger to answer it.";
        return Shown { rows: vec![row(&cut(text, width), LOUD); rows_max.min(1)], rules: None };
    };
    let answers = answers(question, rules, width, listens);
    rows.extend(scrolled(body(question, width), screen.panel.scrolled, room - answers.len(), width));
    rows.extend(answers);
    Shown { rows, rules: Some(rules) }
}

fn title(question: &Question, waiting: usize) -> String {
    let what = match &question.what {
        Asked::Command { unconfined: true, .. } => "Run this command OUTSIDE the sandbox?",
        Asked::Command { unconfined: false, .. } => "Run this command?",
        Asked::Files { .. } => "Make these changes?",
    };
    let what = match &question.who {
        Some(agent) => format!("Agent {agent} asks: {what}"),
        None => what.to_owned(),
    };
    match waiting {
        0 | 1 => what,
        _ => format!("{what} ({} more questions wait)", waiting - 1),
    }
}

fn body(question: &Question, width: usize) -> Vec<Row> {
    let margin = Margin::new("  ", "  ", PLAIN);
    let mut rows = match &question.what {
        Asked::Command { argv, shown, unconfined } => command(argv, shown, *unconfined, width),
        Asked::Files { changes } => changes.iter().flat_map(|change| file(change, width)).collect(),
    };
    if !question.why.trim().is_empty() {
        rows.extend(wrap_text(&format!("because {}", question.why), DIM, width, &margin));
    }
    rows
}

/// As it is shown, and word by word where that is not the same.
fn command(argv: &[String], shown: &str, unconfined: bool, width: usize) -> Vec<Row> {
    let style = if unconfined { LOUD } else { BOLD };
    let mut rows = wrap(&[piece(shown, style)], width, &Margin::new("  $ ", "    ", DIM), Break::Anywhere);
    if argv.join(" ") != shown {
        let words: Vec<String> = argv.iter().map(|word| format!("{word:?}")).collect();
        let margin = Margin::new("  runs ", "       ", DIM);
        rows.extend(wrap(&[piece(&words.join(" "), DIM)], width, &margin, Break::Anywhere));
    }
    rows
}

fn file(change: &FileChange, width: usize) -> Vec<Row> {
    let (plus, minus) = diff::counts(&change.diff);
    let head = [
        piece(&diff::title(change), BOLD),
        piece(&format!(" +{plus}"), GOOD),
        piece(&format!(" -{minus}"), BAD),
    ];
    let mut rows = wrap(&head, width, &Margin::new("  ", "  ", PLAIN), Break::Words);
    rows.extend(diff::rows(&change.diff, width, DIFF_LINES_MAX));
    rows
}

/// What has room, and how much more there is: nobody should say yes to what they have not seen.
fn scrolled(rows: Vec<Row>, from: usize, room: usize, width: usize) -> Vec<Row> {
    if rows.len() <= room {
        return rows;
    }
    let shown = room.saturating_sub(1);
    let from = from.min(rows.len() - shown);
    let more = rows.len() - shown - from;
    let mut seen: Vec<Row> = rows.into_iter().skip(from).take(shown).collect();
    if room > 0 {
        let text = format!("  … {from} above, {more} below: up and down move");
        seen.push(row(&cut(&text, width), WARNING));
    }
    seen
}

fn answers(question: &Question, rules: usize, width: usize, listens: bool) -> Vec<Row> {
    let style = if listens { PLAIN } else { DIM };
    let mut rows = Vec::new();
    let mut answer = |key: &str, text: &str| {
        let margin = Margin::new(&format!("  {key} "), "    ", style.patch(BOLD));
        rows.extend(wrap_text(text, style, width, &margin));
    };
    answer("y", "yes, this once");
    for (at, rule) in question.rules.iter().take(rules).enumerate() {
        let key = (at + 1).to_string();
        let also = if at == 0 { " (or a)" } else { "" };
        answer(&key, &format!("always{also}: {}", words::rule(rule)));
    }
    answer("n", "no · r: no, and say why");
    rows
}
