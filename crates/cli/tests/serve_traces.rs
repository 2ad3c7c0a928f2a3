//! Traces by OTLP: what a real collector's socket is told of the requests of the real binary.

mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use support::PATIENCE;
use support::server::{Answer, Server, until};

/// Takes what is posted to it. Its first answer is that it is busy.
struct Collector {
    address: String,
    batches: Receiver<Batch>,
}

struct Batch {
    head: String,
    body: Value,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, batches) = sync_channel(1024);
        std::thread::spawn(move || {
            let mut busy = true;
            for stream in listener.incoming() {
                let mut lines = BufReader::new(stream.unwrap());
                while let Some(batch) = read(&mut lines) {
                    let status = if busy { "503 Service Unavailable" } else { "200 OK" };
                    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}");
                    lines.get_mut().write_all(answer.as_bytes()).unwrap();
                    if !std::mem::take(&mut busy) && sender.send(batch).is_err() {
                        return;
                    }
                }
            }
        });
        Collector { address, batches }
    }

    /// All that it gets until whoever posts has ended.
    fn all(&self) -> Vec<Batch> {
        let first = self.batches.recv_timeout(PATIENCE).expect("something is posted");
        std::iter::once(first).chain(self.batches.try_iter()).collect()
    }
}

/// The next request of a connection.
fn read(lines: &mut BufReader<TcpStream>) -> Option<Batch> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    lines.read_exact(&mut body).ok()?;
    Some(Batch { head, body: serde_json::from_slice(&body).unwrap() })
}

fn spans(batches: &[Batch]) -> Vec<&Value> {
    let of_batch = |batch| -> &Vec<Value> {
        let batch: &Batch = batch;
        batch.body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap()
    };
    batches.iter().flat_map(of_batch).collect()
}

/// An attribute, whatever its type.
fn attribute<'a>(owner: &'a Value, key: &str) -> Option<&'a str> {
    let found = owner["attributes"].as_array()?.iter().find(|pair| pair["key"] == key)?;
    found["value"].as_object()?.values().next()?.as_str()
}

fn time(span: &Value, key: &str) -> u128 {
    span[key].as_str().unwrap().parse().unwrap()
}

const CALLER: &str = "00f067aa0ba902b7";

fn parent(trace: &str, flags: &str) -> String {
    format!("00-{trace}-{CALLER}-{flags}")
}

fn post(server: &Server, traceparent: Option<&str>) -> Answer {
    let bearer = format!("Bearer {}", server.key);
    let mut headers = vec![("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    headers.extend(traceparent.map(|parent| ("traceparent", parent)));
    let answer = server.ask("POST /v1/responses", &headers, &json!({"input": "hi"}).to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer
}

#[test]
fn each_request_is_a_trace_of_its_phases() {
    let collector = Collector::start();
    let endpoint = format!("http://{}/", collector.address);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-token=a%20b"),
        ("OTEL_SERVICE_NAME", "the-service"),
    ];
    let mut server =
        Server::scripted_in(tempfile::tempdir().unwrap(), &[("hi", "one two three")], 500.0, &[], &variables);
    let (sampled, unsampled, lane) = ("a".repeat(32), "b".repeat(32), "c".repeat(32));
    let answer = post(&server, Some(&parent(&sampled, "01"))).json();
    post(&server, Some(&parent(&unsampled, "00")));
    let stored = format!("/v1/responses/{}", answer["id"].as_str().unwrap());
    assert_eq!((server.get(&stored).status, server.get("/v1/responses/resp_0").status), (200, 404));
    let mut socket = server.socket_with(&[("traceparent", &parent(&lane, "01"))]);
    let own = json!({"ws_request_header_traceparent": parent(&"d".repeat(32), "01")});
    for metadata in [json!({}), own] {
        socket.send(&json!({"type": "response.create", "input": "hi", "client_metadata": metadata}));
        socket.until("response.completed");
    }
    drop(socket);
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "the end sends what is left");
    let batches = collector.all();
    let spans = spans(&batches);
    of_one_service(&batches);
    a_turn_has_its_phases(&spans, &sampled, &answer);
    a_socket_has_its_turns(&spans, &lane);
    let plain = spans.iter().filter(|span| span["name"] == "GET /v1/responses/{id}");
    let status = |span: &&Value| {
        assert!(span["parentSpanId"].is_null() && span["status"].is_null(), "{span}");
        assert_eq!(attribute(span, "gen_ai.operation.name"), None, "no model was asked");
        attribute(span, "http.response.status_code").unwrap().to_owned()
    };
    assert_eq!(plain.map(status).collect::<Vec<_>>(), ["200", "404"]);
    assert!(!spans.iter().any(|span| span["traceId"] == unsampled.as_str()), "the caller did not want it");
}

fn of_one_service(batches: &[Batch]) {
    for batch in batches {
        assert!(batch.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", batch.head);
        let head = batch.head.to_ascii_lowercase();
        assert!(head.contains("content-type: application/json") && head.contains("x-token: a b"), "{head}");
        let resource = &batch.body["resourceSpans"][0]["resource"];
        assert_eq!(attribute(resource, "service.name"), Some("the-service"));
    }
}

fn a_turn_has_its_phases(spans: &[&Value], trace: &str, answer: &Value) {
    let mine: Vec<_> = spans.iter().filter(|span| span["traceId"] == trace).collect();
    let (server, phases) = mine.split_first().unwrap();
    assert_eq!((&server["kind"], &server["parentSpanId"]), (&json!(2), &json!(CALLER)));
    assert_eq!(server["name"], format!("chat {}", support::MODEL));
    let usage = &answer["usage"];
    for (key, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "flint"),
        ("gen_ai.request.model", support::MODEL),
        ("gen_ai.response.model", support::MODEL),
        ("gen_ai.response.id", answer["id"].as_str().unwrap()),
        ("gen_ai.usage.input_tokens", &usage["input_tokens"].to_string()),
        ("gen_ai.usage.output_tokens", &usage["output_tokens"].to_string()),
        ("http.request.method", "POST"),
        ("http.route", "/v1/responses"),
        ("http.response.status_code", "200"),
        ("server.address", "127.0.0.1"),
        ("flint.key", "local"),
    ] {
        assert_eq!(attribute(server, key), Some(value), "{key}");
    }
    let names: Vec<_> = phases.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["render", "queue", "prefill", "decode"]);
    let mut before = time(server, "startTimeUnixNano");
    for phase in phases {
        assert_eq!(phase["parentSpanId"], server["spanId"]);
        assert_eq!(attribute(phase, "gen_ai.response.id"), answer["id"].as_str());
        let (from, to) = (time(phase, "startTimeUnixNano"), time(phase, "endTimeUnixNano"));
        assert!(before <= from && from <= to, "one after the other: {phase}");
        before = to;
    }
    assert!(before <= time(server, "endTimeUnixNano"));
    // Three words at 500 a second: two gaps of 2 ms.
    let decode = phases.last().unwrap();
    assert!(time(decode, "endTimeUnixNano") - time(decode, "startTimeUnixNano") >= 3_000_000, "{decode}");
}

fn a_socket_has_its_turns(spans: &[&Value], trace: &str) {
    let of_trace =
        |id: &str| spans.iter().filter(|span| span["traceId"] == id && span["kind"] == 2).collect::<Vec<_>>();
    let upgrade_and_turn = of_trace(trace);
    let upgrade = upgrade_and_turn.iter().find(|span| span["name"] == "GET /v1/responses").unwrap();
    let turn = upgrade_and_turn.iter().find(|span| span["name"] != "GET /v1/responses").unwrap();
    assert_eq!(upgrade["parentSpanId"], CALLER);
    assert_eq!(turn["parentSpanId"], upgrade["spanId"]);
    assert_eq!(attribute(turn, "network.protocol.name"), Some("websocket"));
    let [own] = of_trace(&"d".repeat(32))[..] else { panic!("one turn has a trace of its own") };
    assert_eq!(own["parentSpanId"], CALLER);
}

fn dropped(server: &Server) -> u64 {
    let page = server.get("/metrics").body;
    let counts = page.lines().filter(|line| line.starts_with("flint_traces_dropped_total{"));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn requests_do_not_need_a_collector() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = Server::scripted_in(
        tempfile::tempdir().unwrap(),
        &[("hi", "so")],
        500.0,
        &["--otlp", &format!("http://{nobody}")],
        &[],
    );
    (0..3).for_each(|_| drop(post(&server, None)));
    until("spans are given up, and counted", || dropped(&server) >= 3);
    assert!(server.said().contains("traces cannot be sent to"), "{}", server.said());
    // One that takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let mut server = Server::scripted_in(
        tempfile::tempdir().unwrap(),
        &[("hi", "so")],
        500.0,
        &["--otlp", &endpoint],
        &[],
    );
    (0..3).for_each(|_| drop(post(&server, None)));
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_collector_that_is_none_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut command = support::flint();
    command.env("FLINT_HOME", home.path()).args(["serve", "--port", "0", "--otlp", "localhost:4318"]);
    let output = support::run(&mut command, "");
    assert_eq!(output.status.code(), Some(2));
    let problem = "must be an http:// or https:// URL, not `localhost:4318/v1/traces`";
    assert!(support::stderr(&output).contains(problem), "{}", support::stderr(&output));
}
