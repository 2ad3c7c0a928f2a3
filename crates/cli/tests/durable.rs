//! Stored responses: what a client can still do with them after the server was killed, and otherwise.

mod support;

use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use support::serve::{Server, serve};
use support::{MODEL, model_file, stderr};
use tempfile::TempDir;

fn id(event: &str) -> String {
    let event: Value = serde_json::from_str(event).unwrap();
    event["response"]["id"].as_str().unwrap().to_owned()
}

fn number(event: &str) -> u64 {
    let event: Value = serde_json::from_str(event).unwrap();
    event["sequence_number"].as_u64().unwrap()
}

/// What an event says, without names, times and signs of life: the same for two runs of one request.
fn said(id: &str, events: &[String]) -> Vec<Value> {
    let unique = id.strip_prefix("resp_").unwrap();
    let parse = |event: &String| serde_json::from_str::<Value>(&event.replace(unique, "")).unwrap();
    let beats = |event: &Value| event["type"] == "response.in_progress" && event["sequence_number"] != 1;
    let mut events: Vec<Value> = events.iter().map(parse).filter(|event| !beats(event)).collect();
    for event in &mut events {
        event["sequence_number"].take();
        if let Some(response) = event["response"].as_object_mut() {
            for key in ["created_at", "completed_at", "metadata"] {
                response.remove(key);
            }
            // Of the same prompt, the second run finds more in the cache.
            response["usage"]["input_tokens_details"].take();
        }
    }
    events
}

fn check_order(events: &[String]) {
    let numbers: Vec<u64> = events.iter().map(|event| number(event)).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>(), "none lost, none doubled");
}

/// Kills the server whenever this many events have been read, and reads on from the next one.
fn check_cuts(request: &Value, cuts: &[usize]) {
    let data = TempDir::new().unwrap();
    let mut server = Server::with_data(data.path());
    let mut stream = server.stream("/responses", Some(request));
    let mut events: Vec<String> = Vec::new();
    for &cut in cuts {
        events.extend(stream.by_ref().take(cut - events.len()));
        assert_eq!(events.len(), cut, "the answer is too short to be cut there");
        server.kill();
        server = Server::with_data(data.path());
        let last = number(events.last().unwrap());
        let path = format!("/responses/{}?stream=true&starting_after={last}", id(&events[0]));
        stream = server.stream(&path, None);
    }
    events.extend(stream);
    check_order(&events);
    let whole: Vec<String> = server.stream("/responses", Some(request)).collect();
    assert_eq!(said(&id(&events[0]), &events), said(&id(&whole[0]), &whole));
    let path = format!("/responses/{}", id(&events[0]));
    let again: Vec<String> = server.stream(&format!("{path}?stream=true"), None).collect();
    assert_eq!(again, events, "who comes later is told the same");
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(server.get(&path), (200, last["response"].clone()));
    check_went_on(&last["response"]);
}

/// That it was still running when the server was killed: its first tokens became a part of the prompt.
fn check_went_on(response: &Value) {
    let prefilled = response["metadata"]["flint.tokens_prefilled"].as_str().unwrap();
    let prefilled: u64 = prefilled.parse().unwrap();
    assert!(
        Some(prefilled) > response["usage"]["input_tokens"].as_u64(),
        "{prefilled} tokens were prefilled"
    );
}

#[test]
fn a_response_goes_on_where_a_killed_server_left_it() {
    let request = json!({"input": "Explain how a tree grows.", "stream": true, "max_output_tokens": 150});
    check_cuts(&request, &[1, 2, 9, 40, 100]);
}

#[test]
fn what_was_drawn_and_its_probabilities_survive_too() {
    let request = json!({"input": "Name ten animals.", "stream": true, "max_output_tokens": 60, "top_logprobs": 2,
        "temperature": 0.9, "seed": 11});
    check_cuts(&request, &[20]);
}

#[test]
fn a_background_response_needs_no_reader() {
    let data = TempDir::new().unwrap();
    let server = Server::with_data(data.path());
    let request = json!({"input": "Count to twenty.", "background": true, "max_output_tokens": 80});
    let (status, begun) = server.post("/responses", &request);
    assert_eq!((status, &begun["status"]), (200, &json!("in_progress")));
    server.kill();
    let server = Server::with_data(data.path());
    let path = format!("/responses/{}", begun["id"].as_str().unwrap());
    let events: Vec<String> = server.stream(&format!("{path}?stream=true"), None).collect();
    check_order(&events);
    let (_, ended) = server.get(&path);
    assert_ne!(ended["status"], "in_progress");
    assert_eq!(ended["created_at"], begun["created_at"]);
    assert_ne!(ended["output"][0]["content"][0]["text"], "");
}

#[test]
fn a_response_whose_model_is_gone_fails_in_words() {
    let data = TempDir::new().unwrap();
    let server = Server::with_data(data.path());
    let request = json!({"input": "Tell a long story.", "stream": true, "max_output_tokens": 400});
    let events: Vec<String> = server.stream("/responses", Some(&request)).take(6).collect();
    server.kill();
    let other = data.path().join("other.gguf");
    std::os::unix::fs::symlink(model_file(), &other).unwrap();
    let server = Server::start(serve(data.path()).arg("-m").arg(&other));
    let path = format!("/responses/{}?stream=true&starting_after=5", id(&events[0]));
    let last = server.stream(&path, None).last().unwrap();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["type"], "response.failed");
    let message = last["response"]["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("the server was restarted and cannot go on with this response: "),
        "{message}"
    );
    assert!(message.contains("is not served here"), "{message}");
}

#[test]
fn stored_responses_can_be_read_listed_continued_and_deleted() {
    let data = TempDir::new().unwrap();
    let server = Server::with_data(&data.path().join("new"));
    let input =
        json!([{"role": "user", "content": "My name is Ada."}, {"role": "user", "content": "Say hi."}]);
    let request = json!({"input": input, "max_output_tokens": 8});
    let (_, first) = server.post("/responses", &request);
    let path = format!("/responses/{}", first["id"].as_str().unwrap());
    assert_eq!(server.get(&path), (200, first.clone()));

    let (_, list) = server.get(&format!("{path}/input_items?limit=1&order=asc"));
    assert_eq!(list["data"][0]["content"], "My name is Ada.");
    assert_eq!(list["has_more"], true);
    let rest = format!("{path}/input_items?order=asc&after={}", list["last_id"].as_str().unwrap());
    assert_eq!(server.get(&rest).1["data"][0]["content"], "Say hi.");

    let follow = json!({"input": "And now?", "max_output_tokens": 4, "previous_response_id": first["id"]});
    let (status, count) = server.post("/responses/input_tokens", &follow);
    assert_eq!((status, &count["object"]), (200, &json!("response.input_tokens")));
    let (status, second) = server.post("/responses", &follow);
    assert_eq!((status, &second["previous_response_id"]), (200, &first["id"]));
    assert!(second["usage"]["input_tokens"].as_u64() > first["usage"]["input_tokens"].as_u64());
    assert!(count["input_tokens"].as_u64() > first["usage"]["input_tokens"].as_u64());

    assert_eq!(server.delete(&path).1["deleted"], true);
    for (status, error) in
        [server.get(&path), server.delete(&path), server.get(&format!("{path}/input_items"))]
    {
        assert_eq!((status, &error["error"]["code"]), (404, &json!("response_not_found")));
    }
    let (status, error) = server.post("/responses", &follow);
    assert_eq!((status, &error["error"]["code"]), (400, &json!("previous_response_not_found")));

    let unstored = json!({"input": "Hi.", "max_output_tokens": 2, "store": false});
    let (_, unstored) = server.post("/responses", &unstored);
    assert_eq!(server.get(&format!("/responses/{}", unstored["id"].as_str().unwrap())).0, 404);
    let mode = std::fs::metadata(data.path().join("new")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_running_response_can_be_cancelled_and_keeps_what_it_said() {
    let data = TempDir::new().unwrap();
    let server = Server::with_data(data.path());
    let request = json!({"input": "Tell a long story.", "background": true, "stream": true});
    let mut stream = server.stream("/responses", Some(&request));
    let events: Vec<String> = stream.by_ref().take(8).collect();
    let path = format!("/responses/{}", id(&events[0]));
    let (status, cancelled) = server.post(&format!("{path}/cancel"), &json!({}));
    assert_eq!((status, &cancelled["status"]), (200, &json!("cancelled")));
    assert_ne!(cancelled["output"][0]["content"][0]["text"], "");
    assert!(stream.last().unwrap().contains("response.cancelled"));
    assert_eq!(server.post(&format!("{path}/cancel"), &json!({})), (200, cancelled));
    assert_eq!(server.post("/responses/resp_unknown/cancel", &json!({})).0, 404);
}

#[test]
fn what_does_not_fit_into_the_store_is_refused_and_nothing_else() {
    let data = TempDir::new().unwrap();
    let server = Server::start(serve(data.path()).args(["-m", MODEL, "--data-mib", "1"]));
    let large =
        json!({"input": "Hi.", "max_output_tokens": 2, "client_metadata": {"x": "y".repeat(2 << 20)}});
    let (status, error) = server.post("/responses", &large);
    assert_eq!((status, &error["error"]["code"]), (503, &json!("store_unavailable")));
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("no room left") && message.contains("Send \"store\": false"), "{message}");
    let mut unstored = large;
    unstored["store"] = false.into();
    assert_eq!(server.post("/responses", &unstored).0, 200);
    assert_eq!(server.post("/responses", &json!({"input": "Hi.", "max_output_tokens": 2})).0, 200);
}

#[test]
fn a_data_directory_has_one_server() {
    let data = TempDir::new().unwrap();
    let _server = Server::with_data(data.path());
    let second = serve(data.path()).args(["-m", MODEL]).output().unwrap();
    assert!(!second.status.success());
    assert!(stderr(&second).contains("is in use by another flint serve"), "{}", stderr(&second));
}
