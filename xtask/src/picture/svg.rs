//! Rows of a terminal as a picture that moves: each stands in it as often as it changed, and is seen in its time.

use super::rows::{Look, Row, Run, Shown};
use std::fmt::Write;
use std::time::Duration;
use vt100::Color;

/// Pixels of a cell, and around all of them.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
const EDGE: f64 = 12.0;

const PAPER: &str = "#16181d";
const INK: &str = "#d5d8de";

/// How long the end is seen before it begins again.
const END: Duration = Duration::from_secs(4);

/// The sixteen colours that have names.
const NAMED: [&str; 16] = [
    "#3b4048", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d5d8de", "#7f848e",
    "#f08a92", "#b5d99c", "#f0d399", "#8ac6f7", "#d9a0ea", "#7fd0d9", "#ffffff",
];

pub fn draw(shown: &Shown, rows: u16, columns: u16) -> String {
    let (width, height) = (f64::from(columns) * WIDTH + 2.0 * EDGE, f64::from(rows) * HEIGHT + 2.0 * EDGE);
    let all = shown.end + END;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-size=\"14\" \
         font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" fill=\"{INK}\">\n\
         <rect width=\"{width:.0}\" height=\"{height:.0}\" rx=\"8\" fill=\"{PAPER}\"/>\n"
    );
    for (number, versions) in shown.rows.iter().enumerate() {
        let y = EDGE + number as f64 * HEIGHT;
        for (index, (since, row)) in versions.iter().enumerate() {
            let until = versions.get(index + 1).map_or(all, |(next, _)| *next);
            if !row.0.is_empty() {
                version(&mut out, row, y, (*since, until), all);
            }
        }
    }
    out + "</svg>\n"
}

/// One state of a row, for its time.
fn version(out: &mut String, row: &Row, y: f64, (since, until): (Duration, Duration), all: Duration) {
    let at = |time: Duration| time.as_secs_f64() / all.as_secs_f64();
    out.push_str("<g>");
    let (from, to) = (at(since), at(until));
    let times = match (since.is_zero(), until >= all) {
        (true, true) => String::new(),
        (true, false) => format!("values=\"inline;none\" keyTimes=\"0;{to:.4}\""),
        (false, true) => format!("values=\"none;inline\" keyTimes=\"0;{from:.4}\""),
        (false, false) => format!("values=\"none;inline;none\" keyTimes=\"0;{from:.4};{to:.4}\""),
    };
    if !times.is_empty() {
        let seconds = all.as_secs_f64();
        let _ = write!(
            out,
            "<animate attributeName=\"display\" calcMode=\"discrete\" {times} dur=\"{seconds:.2}s\" \
             repeatCount=\"indefinite\"/>"
        );
    }
    row.0.iter().for_each(|run| write_run(out, run, y));
    out.push_str("</g>\n");
}

fn write_run(out: &mut String, run: &Run, y: f64) {
    let (x, width) = (EDGE + f64::from(run.column) * WIDTH, f64::from(run.width) * WIDTH);
    let Look { ink, paper, bold, dim, italic, inverse } = run.look;
    let (mut ink, mut paper) = (colour(ink, INK), colour(paper, PAPER));
    if inverse {
        std::mem::swap(&mut ink, &mut paper);
    }
    if run.look.is_filled() {
        let _ = write!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{paper}\"/>"
        );
    }
    let text = run.text.trim_end();
    let lead = text.chars().take_while(|c| *c == ' ').count();
    if text.trim().is_empty() {
        return;
    }
    let (x, cells) = (x + lead as f64 * WIDTH, run.width as usize - lead - (run.text.len() - text.len()));
    let mut style = String::new();
    for (given, words) in [
        (ink != INK, format!(" fill=\"{ink}\"")),
        (bold, " font-weight=\"bold\"".to_owned()),
        (dim, " opacity=\"0.6\"".to_owned()),
        (italic, " font-style=\"italic\"".to_owned()),
    ] {
        style += if given { &words } else { "" };
    }
    let _ = write!(
        out,
        "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{:.1}\" xml:space=\"preserve\"{style}>{}</text>",
        y + HEIGHT * 0.75,
        cells as f64 * WIDTH,
        escape(&text[lead..])
    );
}

fn colour(colour: Color, default: &str) -> String {
    match colour {
        Color::Default => default.to_owned(),
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
        Color::Idx(index @ 0..16) => NAMED[usize::from(index)].to_owned(),
        // The cube of six steps a colour, then greys.
        Color::Idx(index @ 16..232) => {
            let step = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
            let cube = index - 16;
            format!("#{:02x}{:02x}{:02x}", step(cube / 36), step(cube / 6 % 6), step(cube % 6))
        }
        Color::Idx(index) => {
            let grey = 8 + 10 * (index - 232);
            format!("#{grey:02x}{grey:02x}{grey:02x}")
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
