//! `cargo xtask plot REPORT... OUT.svg`: a picture of what `flint bench --peer llama.cpp --json` printed.
//!
//! One bar for each measurement, as long as Flint is faster than its peer; beside it the share of what the machine
//! allows.

use crate::Outcome;
use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;

const USAGE: &str = "usage: cargo xtask plot REPORT.json... OUT.svg";

/// Pixels.
const ROW: usize = 26;
const LABEL: usize = 250;
const BARS: usize = 330;
const SHARES: usize = 190;
const TOP: usize = 48;
const GAP: usize = 70; // between the two columns of bars, for the words after a bar

#[derive(Deserialize)]
struct Report {
    model: String,
    results: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    value: f64,
    unit: String,
    ratio: Option<f64>,
    share: Option<f64>,
}

/// One line of the picture.
struct Bar {
    label: String,
    rate: f64,  // tokens a second
    ratio: f64, // of the peer's
    share: f64, // of the floor
}

pub fn plot(args: &[String]) -> Outcome {
    let Some((out, reports)) = args.split_last().filter(|(_, reports)| !reports.is_empty()) else {
        return Err(USAGE.into());
    };
    let mut bars = Vec::new();
    for report in reports {
        let json = std::fs::read(report).map_err(|error| format!("{report}: {error}"))?;
        let report: Report = serde_json::from_slice(&json).map_err(|error| format!("{report}: {error}"))?;
        bars.extend(bars_of(report));
    }
    if bars.is_empty() {
        return Err("no measurement has a peer: run flint bench with --peer llama.cpp --json".into());
    }
    std::fs::write(Path::new(out), picture(&bars)).map_err(|error| format!("{out}: {error}").into())
}

fn bars_of(report: Report) -> Vec<Bar> {
    let Report { model, results } = report;
    let bar = |row: Row| {
        let (ratio, share) = (row.ratio?, row.share?);
        let label = format!("{model}, {}", row.name.replace("_d", " at ").replace('_', " "));
        (row.unit == "tok/s").then_some(Bar { label, rate: row.value, ratio, share })
    };
    results.into_iter().filter_map(bar).collect()
}

fn picture(bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.ratio).fold(1.0, f64::max);
    let (width, height) = (LABEL + BARS + GAP + SHARES + GAP, TOP + bars.len() * ROW + 24);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let shares = LABEL + BARS + GAP;
    text(&mut svg, LABEL, 22, "start", "#222", "times llama.cpp on the same file");
    text(&mut svg, shares, 22, "start", "#222", "share of the machine's bound");
    for (i, bar) in bars.iter().enumerate() {
        let y = TOP + i * ROW;
        text(&mut svg, LABEL - 10, y + 14, "end", "#222", &bar.label);
        let length = bar.ratio / longest * BARS as f64;
        rect(&mut svg, LABEL, y, length, "#d9480f");
        let words = format!("{:.2}x  {:.0}/s", bar.ratio, bar.rate);
        let inside = length > 110.0;
        let (x, anchor, colour) = match inside {
            true => (LABEL as f64 + length - 6.0, "end", "#fff"),
            false => (LABEL as f64 + length + 6.0, "start", "#222"),
        };
        text(&mut svg, x as usize, y + 14, anchor, colour, &words);
        rect(&mut svg, shares, y, SHARES as f64, "#eee");
        rect(&mut svg, shares, y, bar.share.min(1.0) * SHARES as f64, "#5c7cfa");
        let share = format!("{:.0}%", 100.0 * bar.share);
        text(&mut svg, shares + SHARES + 6, y + 14, "start", "#222", &share);
    }
    line_at_one(&mut svg, longest, height);
    svg + "</svg>\n"
}

/// Where the peer is.
fn line_at_one(svg: &mut String, longest: f64, height: usize) {
    let x = LABEL as f64 + BARS as f64 / longest;
    let (top, bottom) = (TOP - 8, height - 18);
    _ = writeln!(
        svg,
        "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#222\" stroke-dasharray=\"3 3\" fill=\"none\"/>"
    );
    text(svg, x as usize, height - 5, "middle", "#222", "llama.cpp");
}

fn rect(svg: &mut String, x: usize, y: usize, width: f64, colour: &str) {
    let height = ROW - 6;
    _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\" rx=\"2\" fill=\"{colour}\"/>"
    );
}

fn text(svg: &mut String, x: usize, y: usize, anchor: &str, colour: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"{colour}\" xml:space=\"preserve\">{words}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_a_peer_and_a_floor_become_bars() {
        let report = serde_json::json!({"model": "a<b", "results": [
            {"name": "decode_d512", "value": 30.0, "unit": "tok/s", "ratio": 3.0, "share": 0.5},
            {"name": "rows_16_d2048", "value": 3.0, "unit": "ms", "ratio": 3.0, "share": null}]});
        let bars = bars_of(serde_json::from_value(report).unwrap());
        assert_eq!(bars.len(), 1);
        let svg = picture(&bars);
        assert!(svg.contains("a&lt;b, decode at 512") && svg.contains("3.00x  30/s") && svg.contains("50%"));
        assert!(svg.contains(&format!("width=\"{BARS}.0\"")), "the longest bar fills its column");
    }
}
