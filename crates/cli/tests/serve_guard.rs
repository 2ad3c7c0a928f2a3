//! Who may use the server, how much, and what it shows: the real binary with the real small model.

#[path = "support/server.rs"]
mod server;
mod support;

use serde_json::{Value, json};
use server::Served;
use std::os::unix::fs::PermissionsExt;
use support::{run, stderr, stdout};

fn short(text: &str) -> Value {
    json!({"input": text, "max_output_tokens": 4})
}

#[test]
fn keys_hosts_and_origins() {
    let server = Served::start("", &[]);
    nothing_opens_without_a_key(&server);
    only_its_own_names_are_served(&server);
    errors_have_one_form(&server);
    the_key_is_private(&server);
    a_revoked_key_is_refused(&server);
    keys_do_not_see_one_another(&server);
}

fn nothing_opens_without_a_key(server: &Served) {
    assert_eq!(server.ask("GET /health", &[], "").status, 200);
    // Probes ask by whatever address they have.
    assert_eq!(server.ask("GET /health", &[("Host", "10.0.0.1")], "").status, 200);
    let lines = [
        "GET /v1/models",
        "POST /v1/responses",
        "GET /v1/responses",
        "POST /v1/chat/completions",
        "POST /v1/completions",
        "GET /v1/usage",
        "GET /metrics",
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
        let stream = server.open("GET /v1/responses HTTP/1.1", &headers, "");
        status_of(stream)
    };
    assert_eq!(status(&[]), 401);
    let bearer = format!("Bearer {}", server.key());
    assert_eq!(status(&[("Authorization", &bearer), ("Origin", "http://evil.example")]), 403);
    assert_eq!(status(&[("Authorization", &bearer)]), 101);
}

fn status_of(stream: std::net::TcpStream) -> u16 {
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut line).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

fn only_its_own_names_are_served(server: &Served) {
    let bearer = format!("Bearer {}", server.key());
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

fn errors_have_one_form(server: &Served) {
    let bearer = format!("Bearer {}", server.key());
    let large = format!("{}", (64 << 20) + 1);
    let json_type = ("Content-Type", "application/json");
    let cases: [(&str, Vec<(&str, &str)>, u16, &str); 5] = [
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

fn the_key_is_private(server: &Served) {
    let mode =
        |name: &str| std::fs::metadata(server.home.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("key"), mode("flint.db")), (0o600, 0o600));
    assert!(server.key().starts_with("flint_"));
    let said = server.errors.try_iter().collect::<Vec<_>>().join("\n");
    assert!(said.contains("your key was made, in ") && !said.contains(&server.key()), "{said}");
}

fn a_revoked_key_is_refused(server: &Served) {
    let key = server.add_key("guest");
    assert_eq!(server.get(&key, "/v1/models").status, 200);
    let listed = stdout(&server.flint(&["key", "list"]));
    assert!(listed.contains("guest") && listed.contains("local") && !listed.contains("flint_"), "{listed}");
    assert!(!server.flint(&["key", "add", "guest"]).status.success());
    assert!(server.flint(&["key", "revoke", "guest"]).status.success());
    let since = std::time::Instant::now();
    server::until("the key is refused", || server.get(&key, "/v1/models").status == 401);
    assert!(since.elapsed().as_secs() < 2);
    assert_eq!(server.get(&server.key(), "/v1/models").status, 200);
}

fn keys_do_not_see_one_another(server: &Served) {
    let (ann, ben) = (server.add_key("ann"), server.add_key("ben"));
    let answer = server.post(&ann, "/v1/responses", &short("The key to this is secret."));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let follow = json!({"input": "Go on.", "max_output_tokens": 2, "previous_response_id": id});
    let refused = server.post(&ben, "/v1/responses", &follow);
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["code"], "previous_response_not_found");
    assert_eq!(server.post(&ann, "/v1/responses", &follow).status, 200);
    // The same prompt of another key finds nothing that was computed for the first.
    let same = server.post(&ben, "/v1/responses", &short("The key to this is secret.")).json();
    assert_eq!(same["usage"]["input_tokens_details"]["cached_tokens"], 0);
}

#[test]
fn listening_beyond_this_machine_needs_tls_or_a_word() {
    let home = tempfile::tempdir().unwrap();
    let output = run(server::flint_at(home.path()).args(["serve", "--host", "0.0.0.0", "--port", "0"]), "");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--tls-cert FILE and --tls-key FILE, or --insecure-listen"));
}
