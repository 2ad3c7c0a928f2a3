//! Numbers about the turns of each model, for Prometheus, under the names of OpenTelemetry's GenAI conventions.
//!
//! Prometheus writes `_` for `.` and ends a name with its unit: `gen_ai.server.time_to_first_token` becomes
//! `gen_ai_server_time_to_first_token_seconds`. Keys are not labels: every key may read this page.

use crate::truth::Timing;
use flint_wire::Usage;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct Metrics {
    models: Vec<Model>,
}

#[derive(Debug)]
struct Model {
    name: String,
    first_token: Histogram, // seconds
    per_token: Histogram,
    duration: Histogram,
    queue: Histogram,
    input: Histogram, // tokens of a turn
    output: Histogram,
    cached: AtomicU64, // tokens
}

/// How often a value was at most each bound.
#[derive(Debug)]
struct Histogram {
    bounds: &'static [f64],
    counts: Vec<AtomicU64>, // one more than bounds: what is above all
    sum: AtomicU64,         // the bits of an f64
}

// The bounds that the conventions advise.
const FIRST_TOKEN_S: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const PER_TOKEN_S: [f64; 13] = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
const DURATION_S: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const TOKENS: [f64; 14] = [
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0,
    16777216.0, 67108864.0,
];

impl Metrics {
    pub fn new<'a>(models: impl IntoIterator<Item = &'a str>) -> Metrics {
        Metrics { models: models.into_iter().map(Model::new).collect() }
    }

    /// A turn that has ended.
    pub fn turn(&self, model: &str, timing: &Timing, usage: Usage) {
        let Some(model) = self.models.iter().find(|known| known.name == model) else { return };
        let seconds = |time: Duration| time.as_secs_f64();
        let since = |moment: Option<Instant>| Some(seconds(moment?.duration_since(timing.arrived?)));
        since(timing.first_token).into_iter().for_each(|time| model.first_token.add(time));
        let per_token = timing.rate(usage.output).map(|rate| 1.0 / rate);
        per_token.into_iter().for_each(|time| model.per_token.add(time));
        since(timing.ended).into_iter().for_each(|time| model.duration.add(time));
        model.queue.add(seconds(timing.queued));
        model.input.add(f64::from(usage.input));
        model.output.add(f64::from(usage.output));
        model.cached.fetch_add(u64::from(usage.cached), Ordering::Relaxed);
    }

    pub fn write(&self, page: &mut Page) {
        self.histograms(
            page,
            "gen_ai_server_time_to_first_token_seconds",
            "From a request to its first token.",
            |m| &m.first_token,
        );
        self.histograms(
            page,
            "gen_ai_server_time_per_output_token_seconds",
            "For each token after the first.",
            |m| &m.per_token,
        );
        self.histograms(
            page,
            "gen_ai_server_request_duration_seconds",
            "From a request to the end of its response.",
            |m| &m.duration,
        );
        page.family("gen_ai_client_token_usage", "histogram", "Tokens of a request.");
        for model in &self.models {
            for (kind, histogram) in [("input", &model.input), ("output", &model.output)] {
                let labels = format!("{},gen_ai_token_type=\"{kind}\"", model.labels());
                page.histogram("gen_ai_client_token_usage", &labels, histogram);
            }
        }
        self.histograms(page, "flint_queue_seconds", "Time that a turn waited in the queue.", |m| &m.queue);
        page.family("flint_tokens_cached_total", "counter", "Prompt tokens whose KV was there already.");
        for model in &self.models {
            let cached = model.cached.load(Ordering::Relaxed);
            page.sample("flint_tokens_cached_total", &label("model", &model.name), cached);
        }
    }

    fn histograms(&self, page: &mut Page, name: &str, help: &str, of: impl Fn(&Model) -> &Histogram) {
        page.family(name, "histogram", help);
        for model in &self.models {
            page.histogram(name, &model.labels(), of(model));
        }
    }
}

impl Model {
    fn new(name: &str) -> Model {
        Model {
            name: name.to_owned(),
            first_token: Histogram::new(&FIRST_TOKEN_S),
            per_token: Histogram::new(&PER_TOKEN_S),
            duration: Histogram::new(&DURATION_S),
            queue: Histogram::new(&DURATION_S),
            input: Histogram::new(&TOKENS),
            output: Histogram::new(&TOKENS),
            cached: AtomicU64::new(0),
        }
    }

    fn labels(&self) -> String {
        let name = label("gen_ai_request_model", &self.name);
        format!("gen_ai_operation_name=\"chat\",gen_ai_provider_name=\"flint\",{name}")
    }
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    fn add(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let more = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // It cannot fail: there is always another value to try.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

/// `name="value"`, whatever the value is.
pub fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

/// A page in Prometheus' text form.
#[derive(Debug, Default)]
pub struct Page(pub String);

impl Page {
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    pub fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        self.line(format_args!("{name}{{{labels}}} {value}"));
    }

    fn histogram(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        let mut so_far = 0;
        let bounds = histogram.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&histogram.counts) {
            so_far += count.load(Ordering::Relaxed);
            self.line(format_args!("{name}_bucket{{{labels},le=\"{bound}\"}} {so_far}"));
        }
        let sum = f64::from_bits(histogram.sum.load(Ordering::Relaxed));
        self.line(format_args!("{name}_sum{{{labels}}} {sum}"));
        self.line(format_args!("{name}_count{{{labels}}} {so_far}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_sums_add_up() {
        let histogram = Histogram::new(&PER_TOKEN_S);
        for value in [0.01, 0.02, 0.3, 9.0] {
            histogram.add(value);
        }
        let mut page = Page::default();
        page.histogram("h", "a=\"b\"", &histogram);
        for line in [
            "h_bucket{a=\"b\",le=\"0.01\"} 1",
            "h_bucket{a=\"b\",le=\"0.025\"} 2",
            "h_bucket{a=\"b\",le=\"0.3\"} 3",
            "h_bucket{a=\"b\",le=\"2.5\"} 3",
            "h_bucket{a=\"b\",le=\"+Inf\"} 4",
            "h_sum{a=\"b\"} 9.33",
            "h_count{a=\"b\"} 4",
        ] {
            assert!(page.0.lines().any(|own| own == line), "{line} in {}", page.0);
        }
    }

    #[test]
    fn a_turn_is_in_every_family_of_its_model() {
        let metrics = Metrics::new(["a\"b"]);
        let arrived = Instant::now();
        let later = |ms| Some(arrived + Duration::from_millis(ms));
        let timing =
            Timing { arrived: later(0), first_token: later(30), ended: later(130), ..Timing::default() };
        metrics.turn("a\"b", &timing, Usage { input: 9, cached: 5, output: 3, reasoning: 0 });
        metrics.turn("unknown", &timing, Usage::default());
        let mut page = Page::default();
        metrics.write(&mut page);
        let labels =
            "gen_ai_operation_name=\"chat\",gen_ai_provider_name=\"flint\",gen_ai_request_model=\"a\\\"b\"";
        for line in [
            format!("gen_ai_server_time_to_first_token_seconds_sum{{{labels}}} 0.03"),
            format!("gen_ai_server_time_per_output_token_seconds_sum{{{labels}}} 0.05"),
            format!("gen_ai_server_request_duration_seconds_sum{{{labels}}} 0.13"),
            format!("gen_ai_client_token_usage_sum{{{labels},gen_ai_token_type=\"input\"}} 9"),
            "flint_tokens_cached_total{model=\"a\\\"b\"} 5".to_owned(),
        ] {
            assert!(page.0.contains(&line), "{line} in {}", page.0);
        }
    }
}
