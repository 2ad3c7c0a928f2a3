//! What the heads of answers say: which model, which request, and what is left of a limit; and the event that says
//! the last on a WebSocket.

mod support;

use serde_json::{Value, json};
use support::server::{Answer, Server};

const LIMITS: &str = "[[limits.rule]]\nkey = \"local\"\nrequests_a_minute = 12\ntokens_a_minute = 60_000\n";

fn start(config: &str, args: &[&str]) -> Server {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    Server::scripted_in(home, &[("hi", "one two three")], 2000.0, args, &[])
}

fn says_the_model(answer: &Answer) {
    for name in ["openai-model", "x-flint-model-asked", "x-flint-model-served"] {
        assert_eq!(answer.header(name), Some(support::MODEL), "{name} in {}", answer.head);
    }
}

#[test]
fn every_answer_says_which_model_and_which_request() {
    let server = start("", &[]);
    let chat =
        json!({"messages": [{"role": "user", "content": "hi"}], "model": support::MODEL, "stream": true});
    let made = server.post("/v1/responses", &json!({"input": "hi"}));
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let answers = [
        made,
        server.post("/v1/responses", &json!({"input": "hi", "stream": true})),
        server.post("/v1/chat/completions", &chat),
        server.post("/v1/completions", &json!({"prompt": "hi", "max_tokens": 2})),
        server.get(&format!("/v1/responses/{id}?stream=true")),
        server.request("HEAD", &format!("/v1/responses/{id}"), None),
    ];
    for answer in &answers {
        assert_eq!(answer.status, 200, "{}", answer.head);
        says_the_model(answer);
        let request = answer.header("x-request-id").unwrap();
        assert!(answer.header("traceparent").unwrap().contains(request), "the log has it under this name");
        assert!(answer.header("openai-processing-ms").unwrap().parse::<u64>().unwrap() < 60_000);
        assert_eq!(answer.header("x-ratelimit-limit-requests"), None, "nobody has set a limit");
    }
    assert_eq!(answers[5].body, "", "the answer to HEAD has nothing but its head");
    let refused = server.post("/v1/responses", &json!({"input": "hi", "model": "gpt-5"}));
    assert_eq!((refused.status, refused.header("x-flint-model-served")), (404, None));
    assert!(refused.header("x-request-id").is_some());
}

fn number(answer: &Answer, name: &str) -> u64 {
    answer.header(name).unwrap_or_else(|| panic!("no {name} in {}", answer.head)).parse().unwrap()
}

#[test]
fn what_is_left_of_a_limit_is_said() {
    let server = start(LIMITS, &[]);
    let body = json!({"input": "hi", "max_output_tokens": 100});
    let answers: Vec<Answer> = (0..2).map(|_| server.post("/v1/responses", &body)).collect();
    for (answer, left) in answers.iter().zip([11, 10]) {
        assert_eq!(number(answer, "x-ratelimit-limit-requests"), 12);
        assert_eq!(number(answer, "x-ratelimit-remaining-requests"), left);
        assert_eq!(number(answer, "x-ratelimit-limit-tokens"), 60_000);
        // A turn is charged what it may use when it is let in.
        let tokens = number(answer, "x-ratelimit-remaining-tokens");
        assert!((59_000..=59_900).contains(&tokens), "{tokens}");
        assert!(answer.header("x-ratelimit-reset-tokens").unwrap().ends_with("ms"), "{}", answer.head);
    }
    let used = answers[1].header("x-codex-secondary-used-percent").unwrap();
    assert!((10.0..=17.0).contains(&used.parse::<f64>().unwrap()), "two of twelve: {used}");
    assert_eq!(answers[1].header("x-codex-primary-window-minutes"), Some("1"));
    // Each request is earned back in five seconds.
    let reset = |answer: &Answer| -> f64 {
        let reset = answer.header("x-ratelimit-reset-requests").unwrap();
        reset.strip_suffix('s').unwrap().parse().unwrap()
    };
    assert!((reset(&answers[0]) - 5.0).abs() < 0.01, "{}", answers[0].head);
    assert!((5.0..=10.0).contains(&reset(&answers[1])), "{}", answers[1].head);
    let refused = (0..20).map(|_| server.post("/v1/responses", &body)).find(|answer| answer.status == 429);
    assert_eq!(number(&refused.unwrap(), "x-ratelimit-remaining-requests"), 0);
}

/// The first frame that answers a turn, for a client that sends these headers.
fn first_frame(server: &Server, headers: &[(&'static str, &str)]) -> Value {
    let mut socket = server.socket_with(headers);
    socket.send(&json!({"type": "response.create", "input": "hi", "store": false}));
    socket.next()
}

#[test]
fn codex_is_told_what_is_left_and_others_are_not() {
    let server = start(LIMITS, &[]);
    assert_eq!(first_frame(&server, &[])["type"], "response.created");
    let codex = [("x-codex-window-id", "thread:0")];
    let event = first_frame(&server, &codex);
    assert_eq!(event["type"], "codex.rate_limits");
    let (tokens, requests) = (&event["rate_limits"]["primary"], &event["rate_limits"]["secondary"]);
    let used = |window: &Value| window["used_percent"].as_f64().unwrap();
    assert!((10.0..=17.0).contains(&used(requests)), "two of twelve: {event}");
    assert!((0.5..=5.0).contains(&used(tokens)), "{event}");
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!((now..=now + 11).contains(&requests["reset_at"].as_u64().unwrap()), "{event} at {now}");
    assert_eq!(requests["window_minutes"], 1);
    let unlimited = start("", &[]);
    assert_eq!(first_frame(&unlimited, &codex)["type"], "response.created", "nobody has set a limit");
}

#[test]
fn without_websockets_the_upgrade_is_refused_in_words() {
    let server = start("", &["--no-websocket"]);
    let bearer = format!("Bearer {}", server.key);
    let upgrade = [
        ("Authorization", bearer.as_str()),
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let mut line = String::new();
    let stream = server.open("GET /v1/responses", &upgrade, "");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 426 "), "{line}");
    let answer = server.get("/v1/responses");
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (426, &json!("websockets_off")));
    assert_eq!(server.post("/v1/responses", &json!({"input": "hi"})).status, 200);
}
