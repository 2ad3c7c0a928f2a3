//! `cargo xtask plot REPORT... OUT.svg`: a picture of what `flint bench --peer llama.cpp --json` and `cargo xtask bench edits
//! --json` printed.
//!
//! One bar for each measurement, as long as Flint is faster than its peer, and beside it the share of what the machine
//! allows; below, what is measured beside Flint itself.

use crate::Outcome;
use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;

const USAGE: &str = "usage: cargo xtask plot REPORT.json... OUT.svg";

/// Pixels.
const ROW: usize = 26;
const LABEL: usize = 380;
const BARS: usize = 330;
const SHARES: usize = 190;
const TOP: usize = 48;
const FOOT: usize = 24;
const GAP: usize = 70; // between the two columns of bars, for the words after a bar

/// What either program printed.
#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    model: String,
    #[serde(default)]
    results: Vec<Row>,
    #[serde(default)]
    groups: Vec<Edits>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    value: f64,
    unit: String,
    ratio: Option<f64>,
    share: Option<f64>,
}

#[derive(Deserialize)]
struct Edits {
    name: String,
    model: String,
    guessed_tokens_per_s: f64,
    ratio: f64,
}

/// Bars of one kind.
struct Panel {
    title: &'static str,
    one: &'static str, // what a ratio of 1 is
    bars: Vec<Bar>,
}

/// One line of the picture.
struct Bar {
    label: String,
    words: String,
    ratio: f64,
    share: Option<f64>, // of the floor
}

pub fn plot(args: &[String]) -> Outcome {
    let Some((out, reports)) = args.split_last().filter(|(_, reports)| !reports.is_empty()) else {
        return Err(USAGE.into());
    };
    let mut panels = panels();
    for report in reports {
        let json = std::fs::read(report).map_err(|error| format!("{report}: {error}"))?;
        let report: Report = serde_json::from_slice(&json).map_err(|error| format!("{report}: {error}"))?;
        add(report, &mut panels);
    }
    if panels.iter().all(|panel| panel.bars.is_empty()) {
        return Err(
            "nothing is measured beside anything: run flint bench with --peer llama.cpp --json".into()
        );
    }
    std::fs::write(Path::new(out), picture(&panels)).map_err(|error| format!("{out}: {error}").into())
}

fn panels() -> [Panel; 3] {
    let panel = |title, one| Panel { title, one, bars: Vec::new() };
    [
        panel("times llama.cpp on the same file", "llama.cpp"),
        panel("times its own decoding without guesses", "without"),
        panel("times the time of one", "one"),
    ]
}

fn add(report: Report, [beside_peer, beside_plain, beside_one]: &mut [Panel; 3]) {
    let Report { model, results, groups } = report;
    for Row { name, value, unit, ratio, share } in results {
        let Some(ratio) = ratio else { continue };
        let rate = format!("{ratio:.2}x  {value:.0}/s");
        match (unit.as_str(), beside(&name)) {
            ("tok/s", _) => {
                let label = format!("{model}, {}", name.replace("_d", " at ").replace('_', " "));
                beside_peer.bars.push(Bar { label, words: rate, ratio, share });
            }
            (_, Some(what)) => {
                let (label, words) = (format!("{model}, {what}"), format!("{ratio:.2}x  {value:.1} ms"));
                beside_one.bars.push(Bar { label, words, ratio, share: None });
            }
            _ => {}
        }
    }
    beside_plain.bars.extend(groups.into_iter().map(|Edits { name, model, guessed_tokens_per_s, ratio }| {
        Bar {
            label: format!("{model}, {name}"),
            words: format!("{ratio:.2}x  {guessed_tokens_per_s:.0}/s"),
            ratio,
            share: None,
        }
    }));
}

/// What a row in milliseconds stands beside.
fn beside(name: &str) -> Option<&'static str> {
    Some(match name {
        "rows_16_d2048" => "16 rows beside a row",
        "variants_5" => "five variants beside a variant",
        "json_masked" => "JSON beside free text",
        "json_masked_sampled" => "sampled JSON beside free text",
        "json_forced" => "JSON, forced tokens guessed",
        "free_guessed" => "free text, guesses allowed",
        _ => return None,
    })
}

impl Panel {
    fn height(&self) -> usize {
        if self.bars.is_empty() { 0 } else { TOP + self.bars.len() * ROW + FOOT }
    }

    fn draw(&self, svg: &mut String, top: usize) {
        let longest = self.bars.iter().map(|bar| bar.ratio).fold(1.0, f64::max);
        let shares = LABEL + BARS + GAP;
        text(svg, LABEL, top + 22, "start", "#222", self.title);
        if self.bars.iter().any(|bar| bar.share.is_some()) {
            text(svg, shares, top + 22, "start", "#222", "share of the machine's bound");
        }
        let bottom = top + self.height();
        line_at_one(svg, LABEL as f64 + BARS as f64 / longest, top + TOP - 8, bottom, self.one);
        for (i, bar) in self.bars.iter().enumerate() {
            bar.draw(svg, top + TOP + i * ROW, bar.ratio / longest * BARS as f64, shares);
        }
    }
}

impl Bar {
    fn draw(&self, svg: &mut String, y: usize, length: f64, shares: usize) {
        text(svg, LABEL - 10, y + 14, "end", "#222", &self.label);
        rect(svg, LABEL, y, length, "#d9480f");
        let (x, anchor, colour) = match length > 110.0 {
            true => (LABEL as f64 + length - 6.0, "end", "#fff"),
            false => (LABEL as f64 + length + 6.0, "start", "#222"),
        };
        text(svg, x as usize, y + 14, anchor, colour, &self.words);
        if let Some(share) = self.share {
            rect(svg, shares, y, SHARES as f64, "#eee");
            rect(svg, shares, y, share.min(1.0) * SHARES as f64, "#5c7cfa");
            text(svg, shares + SHARES + 6, y + 14, "start", "#222", &format!("{:.0}%", 100.0 * share));
        }
    }
}

fn picture(panels: &[Panel]) -> String {
    let (width, height) =
        (LABEL + BARS + GAP + SHARES + GAP, panels.iter().map(Panel::height).sum::<usize>());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let mut top = 0;
    for panel in panels.iter().filter(|panel| !panel.bars.is_empty()) {
        panel.draw(&mut svg, top);
        top += panel.height();
    }
    svg + "</svg>\n"
}

fn line_at_one(svg: &mut String, x: f64, top: usize, bottom: usize, words: &str) {
    let end = bottom - 18;
    _ = writeln!(
        svg,
        "<path d=\"M{x:.1} {top}V{end}\" stroke=\"#222\" stroke-dasharray=\"3 3\" fill=\"none\"/>"
    );
    text(svg, x as usize, bottom - 5, "middle", "#222", words);
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
    fn what_stands_beside_something_becomes_a_bar() {
        let bench = serde_json::json!({"model": "a<b", "results": [
            {"name": "decode_d512", "value": 30.0, "unit": "tok/s", "ratio": 3.0, "share": 0.5},
            {"name": "decode_d0", "value": 30.0, "unit": "tok/s", "ratio": null, "share": 0.5},
            {"name": "rows_16_d2048", "value": 7.5, "unit": "ms", "ratio": 2.5, "share": null}]});
        let edits = serde_json::json!({"threads": 2, "groups": [
            {"name": "copies, told", "model": "m", "guessed_tokens_per_s": 400.0, "ratio": 8.0}]});
        let mut panels = panels();
        for report in [bench, edits] {
            add(serde_json::from_value(report).unwrap(), &mut panels);
        }
        assert_eq!(panels.each_ref().map(|panel| panel.bars.len()), [1, 1, 1]);
        let svg = picture(&panels);
        for words in [
            "a&lt;b, decode at 512",
            "3.00x  30/s",
            "50%",
            "2.50x  7.5 ms",
            "m, copies, told",
            "8.00x  400/s",
        ] {
            assert!(svg.contains(words), "{words}");
        }
        let whole = format!("width=\"{BARS}.0\"");
        assert_eq!(svg.matches(&whole).count(), 3, "the longest bar fills its column");
    }
}
