//! One line of log for each request: who asked for what, and how it went. Never what was said, and no key.
//!
//! Several parts of the server know something about a request, and none of them knows when all is known: the
//! answer's head may go out long before the last token, or the turn end before the answer is read. So they
//! share a note, and the line is written when the last of them lets go of it.

use crate::trace::Trace;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use flint_wire::Usage;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Plain,
    Json,
}

#[derive(Debug)]
pub struct Note {
    pub trace: Trace,
    style: Style,
    began: Instant,
    said: Mutex<Said>,
}

/// What is known so far.
#[derive(Debug, Clone, Default)]
struct Said {
    method: String,
    path: String,
    status: u16,
    key: Option<Arc<str>>, // its name
    model: Option<String>,
    usage: Option<Usage>,
}

tokio::task_local! {
    /// The request that a task works for.
    static CURRENT: Arc<Note>;
}

impl Note {
    pub fn new(style: Style, method: &str, path: &str, trace: Trace) -> Arc<Note> {
        let said = Said { method: method.to_owned(), path: path.to_owned(), ..Said::default() };
        Arc::new(Note { trace, style, began: Instant::now(), said: Mutex::new(said) })
    }

    /// The note of the request that the running task works for.
    pub fn current() -> Option<Arc<Note>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// Lets `work` find this note.
    pub async fn during<T>(self: Arc<Note>, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self, work).await
    }

    pub fn status(&self, status: u16) {
        self.lock().status = status;
    }

    pub fn key(&self, name: &Arc<str>) {
        self.lock().key = Some(name.clone());
    }

    pub fn model(&self, name: &str) {
        self.lock().model = Some(name.to_owned());
    }

    /// A steered turn uses more than once.
    pub fn used(&self, usage: Usage) {
        let mut said = self.lock();
        let so_far = said.usage.get_or_insert_default();
        so_far.input += usage.input;
        so_far.cached += usage.cached;
        so_far.output += usage.output;
        so_far.reasoning += usage.reasoning;
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        // Each change is of one field: whoever panics leaves it whole.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let (said, took) = (self.lock().clone(), self.began.elapsed());
        let line = match self.style {
            Style::Plain => said.plain(took, &self.trace),
            Style::Json => said.json(took, &self.trace).to_string(),
        };
        // Nobody is there to be told that nobody reads the log.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}

impl Said {
    fn json(&self, took: Duration, trace: &Trace) -> Value {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        json!({
            "time": (now * 1e3).round() / 1e3,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "ms": milliseconds(took),
            "key": self.key.as_deref(),
            "model": self.model,
            "input_tokens": self.usage.map(|usage| usage.input),
            "cached_tokens": self.usage.map(|usage| usage.cached),
            "output_tokens": self.usage.map(|usage| usage.output),
            "reasoning_tokens": self.usage.map(|usage| usage.reasoning),
            "trace_id": trace.id,
            "span_id": trace.span,
        })
    }

    fn plain(&self, took: Duration, trace: &Trace) -> String {
        let Said { method, path, status, key, model, usage } = self;
        let path = path.escape_debug();
        let mut line = format!("{method} {path} {status} {:.1} ms", milliseconds(took));
        if let Some(key) = key {
            line += &format!(" key={key}");
        }
        if let Some(model) = model {
            line += &format!(" model={model}");
        }
        if let Some(Usage { input, cached, output, .. }) = usage {
            line += &format!(" tokens={input}+{output} cached={cached}");
        }
        line + " trace=" + &trace.id
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Notes every request, and tells the caller which trace it is in.
pub async fn noted(State(style): State<Style>, request: Request, next: Next) -> Response {
    // Probes come every few seconds and say nothing new.
    if request.uri().path() == "/health" {
        return next.run(request).await;
    }
    let parent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
    let trace = Trace::continued(parent);
    let note = Note::new(style, request.method().as_str(), request.uri().path(), trace);
    let mut response = note.clone().during(next.run(request)).await;
    note.status(response.status().as_u16());
    if let Ok(value) = HeaderValue::from_str(&note.trace.header()) {
        response.headers_mut().insert("traceparent", value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_happened_and_nothing_else() {
        let trace = Trace::continued(Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        let said = Said {
            method: "POST".into(),
            path: "/v1/responses\n".into(),
            status: 200,
            key: Some("ann".into()),
            model: Some("m".into()),
            usage: Some(Usage { input: 7, cached: 3, output: 2, reasoning: 1 }),
        };
        let took = Duration::from_micros(1234);
        assert_eq!(
            said.plain(took, &trace),
            "POST /v1/responses\\n 200 1.2 ms key=ann model=m tokens=7+2 cached=3 \
             trace=4bf92f3577b34da6a3ce929d0e0e4736"
        );
        let json = said.json(took, &trace);
        assert_eq!((&json["ms"], &json["cached_tokens"]), (&json!(1.234), &json!(3)));
        assert_eq!(json["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    }
}
