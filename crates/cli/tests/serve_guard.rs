//! Who may use the server, how much, and what it shows: the real binary with the real small model.

mod support;

use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use support::server::{Answer, Server, Stream, until};
use support::{flint, run, stderr, stdout};

fn start(config: &str, args: &[&str]) -> Server {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    Server::start_in(home, args)
}

fn add_key(server: &Server, name: &str) -> String {
    let output = server.flint(&["key", "add", name]);
    assert!(output.status.success(), "{output:?}");
    stdout(&output).trim().to_owned()
}

fn get(server: &Server, key: &str, path: &str) -> Answer {
    server.ask(&format!("GET {path}"), &[("Authorization", &format!("Bearer {key}"))], "")
}

fn post(server: &Server, key: &str, path: &str, body: &Value) -> Answer {
    let headers = [("Authorization", &*format!("Bearer {key}")), ("Content-Type", "application/json")];
    server.ask(&format!("POST {path}"), &headers, &body.to_string())
}

fn short(text: &str) -> Value {
    json!({"input": text, "max_output_tokens": 4})
}

#[test]
fn keys_hosts_and_origins() {
    let server = start("", &[]);
    nothing_opens_without_a_key(&server);
    only_its_own_names_are_served(&server);
    errors_have_one_form(&server);
    the_key_is_private(&server);
    a_revoked_key_is_refused(&server);
    keys_do_not_see_one_another(&server);
}

fn nothing_opens_without_a_key(server: &Server) {
    assert_eq!(server.ask("GET /health", &[], "").status, 200);
    // Probes ask by whatever address they have.
    assert_eq!(server.ask("GET /health", &[("Host", "10.0.0.1")], "").status, 200);
    let lines = [
        "GET /v1/models",
        "POST /v1/responses",
        "GET /v1/responses",
        "POST /v1/chat/completions",
        "POST /v1/completions",
        "POST /v1/responses/input_tokens",
        "GET /v1/responses/resp_1",
        "DELETE /v1/responses/resp_1",
        "POST /v1/responses/resp_1/cancel",
        "GET /v1/responses/resp_1/input_items",
        "GET /v1/usage",
        "GET /metrics",
        "GET /openapi.json",
        "GET /version",
        "GET /nothing",
        "OPTIONS /v1/responses",
    ];
    let wrong = format!("Bearer flint_{}", "0".repeat(64));
    for line in lines {
        for given in [None, Some("Bearer "), Some("Basic YTpi"), Some(wrong.as_str())] {
            let headers: Vec<_> = given.iter().map(|given| ("Authorization", *given)).collect();
            let answer = server.ask(line, &headers, "{}");
            assert_eq!(answer.status, 401, "{line} {given:?}");
            let error = &answer.json()["error"];
            assert_eq!(error["type"], "authentication_error");
            assert!(error["message"].as_str().unwrap().contains("flint key add"), "{error}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    let upgrade = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let status = |more: &[(&str, &str)]| {
        let headers = [&upgrade[..], more].concat();
        let stream = server.open("GET /v1/responses", &headers, "");
        status_of(stream)
    };
    assert_eq!(status(&[]), 401);
    let bearer = format!("Bearer {}", server.key.clone());
    assert_eq!(status(&[("Authorization", &bearer), ("Origin", "http://evil.example")]), 403);
    assert_eq!(status(&[("Authorization", &bearer)]), 101);
}

fn status_of(stream: std::net::TcpStream) -> u16 {
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut line).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

fn only_its_own_names_are_served(server: &Server) {
    let bearer = format!("Bearer {}", server.key.clone());
    let port = server.address.split(':').next_back().unwrap();
    let status = |more: &[(&str, &str)]| {
        server.ask("GET /v1/models", &[&[("Authorization", bearer.as_str())], more].concat(), "").status
    };
    assert_eq!(status(&[]), 200);
    assert_eq!(status(&[("Host", &format!("localhost:{port}"))]), 200);
    assert_eq!(status(&[("Origin", &format!("http://{}", server.address))]), 200);
    for host in ["evil.example", "localhost:1", &format!("evil.example:{port}")] {
        assert_eq!(status(&[("Host", host)]), 403, "{host}");
    }
    for origin in ["http://evil.example", "null", &format!("https://{}", server.address)] {
        assert_eq!(status(&[("Origin", origin)]), 403, "{origin}");
    }
}

fn errors_have_one_form(server: &Server) {
    let bearer = format!("Bearer {}", server.key.clone());
    let large = format!("{}", (64 << 20) + 1);
    let json_type = ("Content-Type", "application/json");
    let cases = [
        ("GET /nothing", vec![], 404, "not_found"),
        ("DELETE /v1/models", vec![], 405, "method_not_allowed"),
        ("GET /v1/responses", vec![], 426, "upgrade_required"),
        ("POST /v1/responses", vec![("Content-Type", "text/plain")], 415, "unsupported_media_type"),
        ("POST /v1/responses", vec![json_type, ("Content-Length", &large)], 413, "request_too_large"),
    ];
    for (line, more, status, code) in cases {
        let mut headers = vec![("Authorization", bearer.as_str())];
        headers.extend(more);
        let answer = server.ask(line, &headers, "");
        assert_eq!(answer.status, status, "{line}");
        assert_eq!(answer.json()["error"]["code"], code, "{line}");
    }
}

fn the_key_is_private(server: &Server) {
    let mode =
        |name: &str| std::fs::metadata(server.home.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("key"), mode("flint.db")), (0o600, 0o600));
    assert!(server.key.clone().starts_with("flint_"));
    let said = server.said();
    assert!(said.contains("your key was made, in ") && !said.contains(&server.key), "{said}");
}

fn a_revoked_key_is_refused(server: &Server) {
    let key = add_key(server, "guest");
    assert_eq!(get(server, &key, "/v1/models").status, 200);
    let listed = stdout(&server.flint(&["key", "list"]));
    assert!(listed.contains("guest") && listed.contains("local") && !listed.contains("flint_"), "{listed}");
    assert!(!server.flint(&["key", "add", "guest"]).status.success());
    assert!(server.flint(&["key", "revoke", "guest"]).status.success());
    let since = std::time::Instant::now();
    until("the key is refused", || get(server, &key, "/v1/models").status == 401);
    assert!(since.elapsed().as_secs() < 2);
    assert_eq!(get(server, &server.key, "/v1/models").status, 200);
}

fn keys_do_not_see_one_another(server: &Server) {
    let (ann, ben) = (add_key(server, "ann"), add_key(server, "ben"));
    let answer = post(server, &ann, "/v1/responses", &short("The key to this is secret."));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let follow = json!({"input": "Go on.", "max_output_tokens": 2, "previous_response_id": id});
    let refused = post(server, &ben, "/v1/responses", &follow);
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["code"], "previous_response_not_found");
    assert_eq!(post(server, &ann, "/v1/responses", &follow).status, 200);
    for line in ["GET /v1/responses/", "DELETE /v1/responses/", "GET /v1/responses/"] {
        let bearer = format!("Bearer {ben}");
        assert_eq!(server.ask(&format!("{line}{id}"), &[("Authorization", &bearer)], "").status, 404);
    }
    assert_eq!(post(server, &ben, &format!("/v1/responses/{id}/cancel"), &json!({})).status, 404);
    assert_eq!(get(server, &ben, &format!("/v1/responses/{id}/input_items")).status, 404);
    assert_eq!(get(server, &ann, &format!("/v1/responses/{id}")).status, 200);
    // The same prompt of another key finds nothing that was computed for the first.
    let same = post(server, &ben, "/v1/responses", &short("The key to this is secret.")).json();
    assert_eq!(same["usage"]["input_tokens_details"]["cached_tokens"], 0);
}

#[test]
fn listening_beyond_this_machine_needs_tls_or_a_word() {
    let home = tempfile::tempdir().unwrap();
    let output =
        run(flint().env("FLINT_HOME", home.path()).args(["serve", "--host", "0.0.0.0", "--port", "0"]), "");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--tls-cert FILE and --tls-key FILE, or --insecure-listen"));
}

fn begin(server: &Server, body: &Value) -> Stream {
    server.stream("POST", "/v1/responses", Some(&body.to_string()))
}

/// Goes on until it has all its tokens: the tokens that would end it are made impossible.
fn long(tokens: u32) -> Value {
    let bias = json!({"0": -100, "2": -100});
    json!({"input": "Count.", "max_output_tokens": tokens, "stream": true, "logit_bias": bias})
}

const LIMITS: &str = r#"
[limits]
turns_running = 1
turns_waiting = 1

[[limits.rule]]
key = "few"
requests_a_minute = 2

[[limits.rule]]
key = "little"
tokens_a_minute = 200

[prices.smollm2-135m]
input = 1.0
cached = 0.5
output = 2.0
"#;

#[test]
fn limits_queue_usage_and_metrics() {
    let server = start(LIMITS, &["--log-json"]);
    a_key_has_its_limits(&server);
    the_queue_can_be_seen(&server);
    usage_adds_up(&server);
    warm_ups_are_used_too(&server);
    metrics_can_be_read(&server);
    requests_are_traced_and_logged(&server);
}

fn refused(answer: &Answer, code: &str) {
    assert_eq!(answer.status, 429, "{}", answer.body);
    let error = &answer.json()["error"];
    assert_eq!((&error["type"], &error["code"]), (&json!("rate_limit_error"), &json!(code)));
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=120).contains(&wait), "{wait}");
}

fn a_key_has_its_limits(server: &Server) {
    let few = add_key(server, "few");
    for _ in 0..2 {
        assert_eq!(post(server, &few, "/v1/responses", &short("Hi")).status, 200);
    }
    refused(&post(server, &few, "/v1/responses", &short("Hi")), "rate_limit_exceeded");
    refused(
        &post(
            server,
            &few,
            "/v1/chat/completions",
            &json!({"messages": [{"role": "user", "content": "Hi"}]}),
        ),
        "rate_limit_exceeded",
    );
    let mut socket = server.socket_with(&[("authorization", &format!("Bearer {few}"))]);
    socket.send(&json!({"type": "response.create", "input": "Hi", "max_output_tokens": 2}));
    assert_eq!(socket.next()["status"], 429);
    // Others are not concerned.
    assert_eq!(post(server, &server.key, "/v1/responses", &short("Hi")).status, 200);
    let little = add_key(server, "little");
    let most = json!({"input": "word ".repeat(160), "max_output_tokens": 2});
    assert_eq!(post(server, &little, "/v1/responses", &most).status, 200);
    refused(&post(server, &little, "/v1/responses", &most), "rate_limit_exceeded");
    // A key that is revoked ends on connections that are open, too.
    server.flint(&["key", "revoke", "few"]);
    until("the socket's turns are refused", || {
        socket.send(&json!({"type": "response.create", "input": "Hi"}));
        socket.next()["status"] == 401
    });
}

fn the_queue_can_be_seen(server: &Server) {
    let key = server.key.clone();
    let mut running = begin(server, &long(6000));
    running.event("response.output_text.delta");
    let mut waiting = begin(server, &long(8));
    let created = waiting.event("response.created");
    assert_eq!(created["response"]["status"], "queued");
    assert_eq!(created["response"]["metadata"]["flint.queue_position"], "1");
    let queued = waiting.event("response.queued");
    assert_eq!(queued["response"]["metadata"]["flint.queue_position"], "1");
    refused(&post(server, &key, "/v1/responses", &short("Hi")), "queue_full");
    // What nobody waits for has a queue of its own, behind the others.
    let background = json!({"input": "Hi", "background": true, "max_output_tokens": 2});
    let later = post(server, &key, "/v1/responses", &background).json();
    let path = format!("/v1/responses/{}", later["id"].as_str().unwrap());
    let (polled, cancel) = (get(server, &key, &path).json(), format!("{path}/cancel"));
    for response in [&later, &polled] {
        assert_eq!(
            (&response["status"], &response["metadata"]["flint.queue_position"]),
            (&json!("queued"), &json!("2"))
        );
    }
    assert_eq!(post(server, &key, &cancel, &json!({})).json()["status"], "cancelled");
    assert_eq!(get(server, &key, &path).json()["status"], "cancelled");
    let depth = || value_of(server, "flint_queue_depth", "class=\"interactive\"");
    assert_eq!((depth(), value_of(server, "flint_turns_running", "")), (1.0, 1.0));
    // Who goes away does not wait any longer.
    drop(waiting);
    until("the queue is empty", || depth() == 0.0);
    let mut next = begin(server, &long(8));
    next.event("response.queued");
    drop(running);
    let progress = next.event("response.in_progress");
    assert_eq!(progress["response"]["metadata"].get("flint.queue_position"), None);
    let end = next.event("response.incomplete");
    let queue_ms: f64 = end["response"]["metadata"]["flint.queue_ms"].as_str().unwrap().parse().unwrap();
    assert!(queue_ms > 0.0);
}

fn usage_adds_up(server: &Server) {
    let key = add_key(server, "spender");
    let mut sums = [0; 3];
    let mut price = 0.0;
    for (text, tier) in [("One.", "default"), ("Two.", "default"), ("Two.", "priority")] {
        let mut body = short(text);
        body["service_tier"] = tier.into();
        let usage = post(server, &key, "/v1/responses", &body).json()["usage"].clone();
        let number = |value: &Value| value.as_u64().unwrap();
        let input = number(&usage["input_tokens"]);
        let cached = number(&usage["input_tokens_details"]["cached_tokens"]);
        let output = number(&usage["output_tokens"]);
        sums = [sums[0] + input, sums[1] + cached, sums[2] + output];
        let cost = (input - cached) as f64 * 1.0 + cached as f64 * 0.5 + output as f64 * 2.0;
        price += if tier == "priority" { 2.0 } else { 1.0 } * cost / 1e6;
    }
    let check = |row: &Value| {
        assert_eq!(row["requests"], 3);
        assert_eq!(
            [&row["input_tokens"], &row["cached_tokens"], &row["output_tokens"]],
            sums.each_ref().map(|sum| sum)
        );
        assert!((row["price"].as_f64().unwrap() - price).abs() < 1e-12, "{row} {price}");
    };
    let own = get(server, &key, "/v1/usage").json();
    check(&own["total"]);
    assert_eq!(own["data"].as_array().unwrap().len(), 1, "only its own: {own}");
    check(&own["data"][0]);
    let all: Value = serde_json::from_str(&stdout(&server.flint(&["usage", "--json"]))).unwrap();
    check(all.as_array().unwrap().iter().find(|row| row["key"] == "spender").unwrap());
    assert!(stdout(&server.flint(&["usage"])).contains("spender"));
}

fn warm_ups_are_used_too(server: &Server) {
    let key = add_key(server, "warm");
    let before = value_of(server, "gen_ai_client_token_usage_sum", "gen_ai_token_type=\"input\"");
    let mut socket = server.socket_with(&[("authorization", &format!("Bearer {key}"))]);
    let warm =
        json!({"type": "response.create", "input": "Warm this for me.", "generate": false, "store": false});
    socket.send(&warm);
    let warm = socket.until("response.completed").pop().unwrap()["response"].clone();
    let tokens = warm["usage"]["input_tokens"].as_u64().unwrap();
    assert!(tokens > 10, "{warm}");
    assert_eq!(warm["metadata"]["flint.tokens_prefilled"], tokens.to_string());
    let next = json!({"type": "response.create", "input": [], "previous_response_id": warm["id"],
        "max_output_tokens": 2, "store": false});
    socket.send(&next);
    let next = socket.until("response.incomplete").pop().unwrap()["response"]["usage"].clone();
    assert!(next["input_tokens_details"]["cached_tokens"].as_u64().unwrap() > 10, "it was of use: {next}");
    let sum = tokens + next["input_tokens"].as_u64().unwrap();
    until("both are in the books", || get(server, &key, "/v1/usage").json()["total"]["requests"] == 2);
    assert_eq!(get(server, &key, "/v1/usage").json()["total"]["input_tokens"], sum);
    let after = value_of(server, "gen_ai_client_token_usage_sum", "gen_ai_token_type=\"input\"");
    assert_eq!(after - before, sum as f64);
}

/// A sample of the metrics, by its name and part of its labels.
fn value_of(server: &Server, name: &str, label: &str) -> f64 {
    let page = get(server, &server.key, "/metrics").body;
    let wanted = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
    let line = page.lines().find(wanted).unwrap_or_else(|| panic!("no {name} in {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn metrics_can_be_read(server: &Server) {
    let answer = get(server, &server.key, "/metrics");
    assert!(answer.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let mut families = Vec::new();
    for line in answer.body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            families.push(rest.split(' ').next().unwrap());
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        assert!(value.parse::<f64>().is_ok() && series.ends_with('}'), "{line}");
        assert!(name.starts_with(families.last().unwrap()), "{line} is not in {:?}", families.last());
    }
    for name in [
        "gen_ai_server_time_to_first_token_seconds",
        "gen_ai_server_time_per_output_token_seconds",
        "gen_ai_server_request_duration_seconds",
        "gen_ai_client_token_usage",
        "flint_queue_depth",
        "flint_turns_running",
        "flint_tokens_cached_total",
        "flint_kv_blocks",
        "flint_sequences",
        "flint_steps_total",
        "flint_rows_total",
        "flint_worker_deaths_total",
    ] {
        assert!(families.contains(&name), "{name}");
    }
    assert!(value_of(server, "gen_ai_server_time_to_first_token_seconds_count", "") >= 7.0);
    assert_eq!(value_of(server, "flint_worker_deaths_total", ""), 0.0);
    assert!(value_of(server, "flint_kv_blocks", "state=\"free\"") > 0.0);
    assert!(value_of(server, "flint_rows_total", "kind=\"decode\"") > 0.0);
    let document = get(server, &server.key, "/openapi.json").json();
    assert!(document["paths"]["/responses"]["post"].is_object(), "{document}");
    let version = get(server, &server.key, "/version").json();
    assert_eq!((&version["name"], &version["models"]), (&json!("flint"), &json!([support::MODEL])));
}

fn requests_are_traced_and_logged(server: &Server) {
    let (key, trace) = (server.key.clone(), "4bf92f3577b34da6a3ce929d0e0e4736");
    let bearer = format!("Bearer {key}");
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let headers = [("Authorization", bearer.as_str()), ("traceparent", parent.as_str())];
    let body = short("Nobody may read this in a log.").to_string();
    let answer = server.ask("POST /v1/responses", &headers, &body);
    assert_eq!(answer.status, 200);
    assert!(answer.header("traceparent").unwrap().starts_with(&format!("00-{trace}-")));
    until("the line is written", || server.said().contains(trace));
    let all = server.said();
    let line = all.lines().find(|line| line.contains(trace)).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (&line["method"], &line["path"], &line["status"]),
        (&json!("POST"), &json!("/v1/responses"), &json!(200))
    );
    assert_eq!((&line["key"], &line["model"]), (&json!("local"), &json!(support::MODEL)));
    assert_eq!(line["output_tokens"], answer.json()["usage"]["output_tokens"]);
    assert!(!all.contains(&key) && !all.contains("Nobody"), "{all}");
}

#[test]
fn sigterm_lets_running_responses_finish() {
    let mut server = start("", &["--drain-seconds", "600"]);
    let mut socket = server.socket();
    socket.send(&with_type(long(400)));
    socket.until("response.output_text.delta");
    let mut idle = server.socket();
    let mut stream = begin(&server, &long(400));
    stream.event("response.output_text.delta");
    server.terminate();
    until("nobody new is let in", || std::net::TcpStream::connect(&server.address).is_err());
    assert!(idle.is_closed(), "a connection without work is closed");
    socket.send(&json!({"type": "response.create", "input": "Hi", "stream_id": "other"}));
    let refused = socket.until("error").pop().unwrap();
    assert_eq!((&refused["status"], &refused["stream_id"]), (&json!(503), &json!("other")));
    for end in [stream.event("response.incomplete"), socket.until("response.incomplete").pop().unwrap()] {
        assert_eq!(end["response"]["usage"]["output_tokens"], 400);
    }
    assert_eq!(server.wait().code(), Some(0));
}

fn with_type(mut body: Value) -> Value {
    body["type"] = "response.create".into();
    body
}

#[test]
fn the_wait_for_running_responses_is_bounded() {
    let mut server = start("", &["--drain-seconds", "0"]);
    let mut stream = begin(&server, &long(6000));
    stream.event("response.output_text.delta");
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
}
