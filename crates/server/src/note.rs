//! What is told of each request: a line of log, and spans if they are collected. Who asked for what, and how it
//! went; never what was said, and no key.
//!
//! Several parts of the server know something about a request, and none of them knows when all is known: the
//! answer's head may go out long before the last token, or the turn end before the answer is read. So they
//! share a note, and the line is written when the last of them lets go of it.

use crate::admit::Standing;
use crate::otlp::{Outbox, Record};
use crate::trace::Trace;
use crate::truth::Timing;
use flint_wire::Usage;
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Plain,
    Json,
}

/// Where notes go when they are whole.
#[derive(Debug, Default)]
pub struct Journal {
    style: Style,
    outbox: Option<Outbox>, // for spans
    address: OnceLock<SocketAddr>,
}

#[derive(Debug)]
pub struct Note {
    pub trace: Trace,
    journal: Arc<Journal>,
    began: Instant,
    said: Mutex<Said>,
}

/// What is known so far.
#[derive(Debug, Clone, Default)]
pub struct Said {
    pub method: String,
    pub path: String,
    pub route: Option<String>, // the path's form, such as `/v1/responses/{id}`
    pub status: u16,
    pub key: Option<Arc<str>>, // its name
    pub model: Option<Models>,
    pub standing: Option<Standing>,
    pub error: Option<&'static str>, // of a response that failed
    pub answers: Vec<Answered>,
}

/// The same, or the request fails: nothing is rerouted.
#[derive(Debug, Clone)]
pub struct Models {
    pub asked: String,
    pub served: String,
}

/// A response that has ended; a steered turn has several.
#[derive(Debug, Clone)]
pub struct Answered {
    pub response: String, // its id
    pub usage: Usage,
    pub timing: Timing,
}

tokio::task_local! {
    /// The request that a task works for.
    static CURRENT: Arc<Note>;
}

impl Journal {
    pub fn new(style: Style, outbox: Option<Outbox>) -> Journal {
        Journal { style, outbox, address: OnceLock::new() }
    }

    /// Where the server is reached, once that is known.
    pub fn serves_at(&self, address: SocketAddr) {
        self.address.get_or_init(|| address);
    }

    pub fn outbox(&self) -> Option<&Outbox> {
        self.outbox.as_ref()
    }

    /// The trace of a request, by what its caller says.
    pub fn trace(&self, traceparent: Option<&str>) -> Trace {
        Trace::continued(traceparent, self.outbox.is_some())
    }

    fn enter(&self, trace: &Trace, began: Instant, said: Said) {
        let took = began.elapsed();
        let line = match self.style {
            Style::Plain => said.plain(took, trace),
            Style::Json => said.json(took, trace).to_string(),
        };
        // Nobody is there to be told that nobody reads the log. One write: standard error has no buffer.
        let _ = std::io::stderr().lock().write_all((line + "\n").as_bytes());
        if let Some(outbox) = self.outbox.as_ref().filter(|_| trace.is_sampled()) {
            let address = self.address.get().copied();
            outbox.put(Record {
                trace: trace.clone(),
                began,
                took,
                ended_at: SystemTime::now(),
                address,
                said,
            });
        }
    }
}

impl Note {
    pub fn new(journal: Arc<Journal>, method: &str, path: &str, trace: Trace) -> Arc<Note> {
        let said = Said { method: method.to_owned(), path: path.to_owned(), ..Said::default() };
        Arc::new(Note { trace, journal, began: Instant::now(), said: Mutex::new(said) })
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

    pub fn route(&self, route: &str) {
        self.lock().route = Some(route.to_owned());
    }

    pub fn key(&self, name: &Arc<str>) {
        self.lock().key = Some(name.clone());
    }

    pub fn models(&self, asked: &str, served: &str) {
        self.lock().model = Some(Models { asked: asked.to_owned(), served: served.to_owned() });
    }

    pub fn standing(&self, standing: Standing) {
        self.lock().standing = Some(standing);
    }

    /// How the caller stood when the request was let in or refused.
    pub fn stands(&self) -> Option<Standing> {
        self.lock().standing
    }

    /// What is known so far, and since when.
    pub fn so_far(&self) -> (Said, Duration) {
        (self.lock().clone(), self.began.elapsed())
    }

    pub fn answered(&self, answered: Answered) {
        self.lock().answers.push(answered);
    }

    pub fn failed(&self, code: &'static str) {
        self.lock().error = Some(code);
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        // Each change is of one field: whoever panics leaves it whole.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let said = std::mem::take(&mut *self.lock());
        self.journal.enter(&self.trace, self.began, said);
    }
}

impl Said {
    /// The models of a request that was for a turn, and not only about one.
    pub fn turned_to(&self) -> Option<&Models> {
        self.model.as_ref().filter(|_| self.standing.is_some())
    }

    /// What all responses have used.
    pub fn usage(&self) -> Option<Usage> {
        self.answers.iter().map(|answered| answered.usage).reduce(|sum, more| Usage {
            input: sum.input + more.input,
            cached: sum.cached + more.cached,
            output: sum.output + more.output,
            reasoning: sum.reasoning + more.reasoning,
        })
    }

    fn json(&self, took: Duration, trace: &Trace) -> Value {
        let usage = self.usage();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        json!({
            "time": (now * 1e3).round() / 1e3,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "ms": milliseconds(took),
            "key": self.key.as_deref(),
            "model": self.model.as_ref().map(|model| &model.served),
            "input_tokens": usage.map(|usage| usage.input),
            "cached_tokens": usage.map(|usage| usage.cached),
            "output_tokens": usage.map(|usage| usage.output),
            "reasoning_tokens": usage.map(|usage| usage.reasoning),
            "trace_id": trace.id,
            "span_id": trace.span,
        })
    }

    fn plain(&self, took: Duration, trace: &Trace) -> String {
        let Said { method, path, status, key, model, .. } = self;
        let path = path.escape_debug();
        let mut line = format!("{method} {path} {status} {:.1} ms", milliseconds(took));
        if let Some(key) = key {
            line += &format!(" key={key}");
        }
        if let Some(Models { served, .. }) = model {
            line += &format!(" model={served}");
        }
        if let Some(Usage { input, cached, output, .. }) = self.usage() {
            line += &format!(" tokens={input}+{output} cached={cached}");
        }
        line + " trace=" + &trace.id
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_happened_and_nothing_else() {
        let trace = Trace::continued(Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), false);
        let answered = |input, output| Answered {
            response: "resp_1".into(),
            usage: Usage { input, cached: 1, output, reasoning: 0 },
            timing: Timing::default(),
        };
        let said = Said {
            method: "POST".into(),
            path: "/v1/responses\n".into(),
            status: 200,
            key: Some("ann".into()),
            model: Some(Models { asked: "m".into(), served: "m".into() }),
            answers: vec![answered(4, 2), answered(3, 0)],
            ..Said::default()
        };
        let took = Duration::from_micros(1234);
        assert_eq!(
            said.plain(took, &trace),
            "POST /v1/responses\\n 200 1.2 ms key=ann model=m tokens=7+2 cached=2 \
             trace=4bf92f3577b34da6a3ce929d0e0e4736"
        );
        let json = said.json(took, &trace);
        assert_eq!((&json["ms"], &json["cached_tokens"]), (&json!(1.234), &json!(2)));
        assert_eq!(json["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    }
}
