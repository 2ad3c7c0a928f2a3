//! The collector at the other end, and how spans are brought there.

use super::{Record, spans};
use crate::limits::{SPAN_POST_SECONDS_MAX, SPAN_TRIES_MAX, SPAN_TRY_PAUSE_MS};
use serde_json::{Value, json};
use std::time::Duration;
use thiserror::Error;
use ureq::http::{HeaderName, HeaderValue, Uri};

/// Who takes spans, as OpenTelemetry's variables name it.
#[derive(Debug, Clone)]
pub struct Collector {
    url: String,
    headers: Vec<(String, String)>,
    service: String,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum CollectorError {
    #[error("the collector of traces must be an http:// or https:// URL, not `{0}`")]
    Url(String),
    #[error("the headers for the collector of traces must be NAME=VALUE,NAME=VALUE: `{0}` is not")]
    Header(String),
}

impl Collector {
    /// The headers are as in `OTEL_EXPORTER_OTLP_HEADERS`: pairs with percent-encoded values.
    pub fn new(url: &str, headers: &str, service: &str) -> Result<Collector, CollectorError> {
        let valid = |uri: Uri| uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https"));
        if !url.parse().is_ok_and(valid) {
            return Err(CollectorError::Url(url.to_owned()));
        }
        let pairs = headers.split(',').filter(|pair| !pair.trim().is_empty());
        let headers = pairs.map(header).collect::<Result<_, _>>()?;
        Ok(Collector { url: url.to_owned(), headers, service: service.to_owned() })
    }
}

/// Only the name is repeated in an error: the value may be a secret.
fn header(pair: &str) -> Result<(String, String), CollectorError> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let (name, value) = (name.trim().to_owned(), decoded(value.trim()));
    let is_pair = pair.contains('=') && name.parse::<HeaderName>().is_ok();
    match value.filter(|value| is_pair && HeaderValue::from_str(value).is_ok()) {
        Some(value) => Ok((name, value)),
        None => Err(CollectorError::Header(name)),
    }
}

/// `%41` becomes `A`.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// One who carries batches to the collector.
pub struct Post {
    agent: ureq::Agent,
    collector: Collector,
    failing: bool, // the last batch was not taken
}

enum Failed {
    /// It may be taken later.
    ForNow(String),
    ForGood(String),
}

impl Post {
    pub fn new(collector: Collector) -> Post {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(SPAN_POST_SECONDS_MAX)))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("flint/", env!("CARGO_PKG_VERSION")))
            .build();
        Post { agent: config.into(), collector, failing: false }
    }

    /// Whether the batch was taken. The log is told when that changes.
    pub fn send(&mut self, records: &[Record]) -> bool {
        let sent = self.try_often(self.body(records).to_string().as_bytes());
        match &sent {
            Err(problem) if !self.failing => {
                eprintln!("traces cannot be sent to {}, and are dropped: {problem}", self.collector.url);
            }
            Ok(()) if self.failing => eprintln!("traces are sent to {} again", self.collector.url),
            _ => {}
        }
        self.failing = sent.is_err();
        sent.is_ok()
    }

    fn try_often(&self, body: &[u8]) -> Result<(), String> {
        let mut pause = Duration::from_millis(SPAN_TRY_PAUSE_MS);
        for _ in 1..SPAN_TRIES_MAX {
            match self.try_once(body) {
                Ok(()) => return Ok(()),
                Err(Failed::ForGood(problem)) => return Err(problem),
                Err(Failed::ForNow(_)) => std::thread::sleep(pause),
            }
            pause *= 2;
        }
        self.try_once(body).map_err(|(Failed::ForNow(problem) | Failed::ForGood(problem))| problem)
    }

    fn try_once(&self, body: &[u8]) -> Result<(), Failed> {
        let mut request = self.agent.post(&self.collector.url).content_type("application/json");
        for (name, value) in &self.collector.headers {
            request = request.header(name, value);
        }
        let answer = request.send(body).map_err(|error| Failed::ForNow(error.to_string()))?;
        let status = answer.status();
        match status.as_u16() {
            200..=299 => Ok(()),
            // What OTLP says may be tried again.
            429 | 502 | 503 | 504 => Err(Failed::ForNow(format!("it says {status}"))),
            _ => Err(Failed::ForGood(format!("it says {status}"))),
        }
    }

    fn body(&self, records: &[Record]) -> Value {
        let all: Vec<Value> = records.iter().flat_map(spans::of).collect();
        let version = env!("CARGO_PKG_VERSION");
        let resource = [
            ("service.name", spans::text(&self.collector.service)),
            ("service.version", spans::text(version)),
            ("telemetry.sdk.language", spans::text("rust")),
            ("telemetry.sdk.name", spans::text("flint")),
            ("telemetry.sdk.version", spans::text(version)),
        ];
        json!({"resourceSpans": [{
            "resource": {"attributes": spans::attributes(resource)},
            "scopeSpans": [{"scope": {"name": "flint", "version": version}, "spans": all}],
        }]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pairs_with_encoded_values() {
        let headers =
            |text| Collector::new("http://c:4318/v1/traces", text, "s").map(|collector| collector.headers);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(headers(""), Ok(vec![]));
        let two = vec![pair("api-key", "a=b,c"), pair("x", "")];
        assert_eq!(headers("api-key=a%3Db%2Cc, x="), Ok(two));
        for bad in ["secret", "na me=v", "x=%", "x=%zz", "x=%ff", "x=%0a"] {
            let name = bad.split('=').next().unwrap();
            assert_eq!(headers(bad), Err(CollectorError::Header(name.to_owned())), "{bad}");
        }
    }

    #[test]
    fn the_collector_is_an_address_on_the_web() {
        for bad in ["", "localhost:4318", "grpc://c:4317", "/v1/traces", "http://"] {
            assert!(matches!(Collector::new(bad, "", "s"), Err(CollectorError::Url(_))), "{bad}");
        }
    }
}
