//! Stored responses: what a client can still do with them after the server was killed, and otherwise.

mod support;

use serde_json::{Value, json};
use support::server::{Server, Stream, until};
use support::{MODEL, flint, model_file, stderr};

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

/// Begins a response, and its stream.
fn create(server: &Server, request: &Value) -> Stream {
    server.stream("POST", "/v1/responses", Some(&request.to_string()))
}

fn path(id: &Value) -> String {
    format!("/v1/responses/{}", id.as_str().unwrap())
}

/// What is told of a response after event number `last`.
fn rest(server: &Server, id: &str, last: u64) -> Stream {
    server.stream("GET", &format!("/v1/responses/{id}?stream=true&starting_after={last}"), None)
}

fn post(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    let answer = server.post(path, body);
    (answer.status, answer.json())
}

fn get(server: &Server, path: &str) -> (u16, Value) {
    let answer = server.get(path);
    (answer.status, answer.json())
}

fn delete(server: &Server, path: &str) -> (u16, Value) {
    let answer = server.request("DELETE", path, None);
    (answer.status, answer.json())
}

/// Kills the server whenever this many events have been read, and reads on from the next one.
fn check_cuts(request: &Value, cuts: &[usize]) {
    let mut server = Server::start();
    let mut stream = create(&server, request);
    let mut events: Vec<String> = Vec::new();
    for &cut in cuts {
        events.extend(stream.by_ref().take(cut - events.len()));
        assert_eq!(events.len(), cut, "the answer is too short to be cut there");
        server.restart(&[]);
        stream = rest(&server, &id(&events[0]), number(events.last().unwrap()));
    }
    events.extend(stream);
    check_order(&events);
    let whole: Vec<String> = create(&server, request).collect();
    assert_eq!(said(&id(&events[0]), &events), said(&id(&whole[0]), &whole));
    let path = path(&id(&events[0]).into());
    let again: Vec<String> = server.stream("GET", &format!("{path}?stream=true"), None).collect();
    assert_eq!(again, events, "who comes later is told the same");
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(get(&server, &path), (200, last["response"].clone()));
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
    let mut server = Server::start();
    let request = json!({"input": "Count to twenty.", "background": true, "max_output_tokens": 80});
    let (status, begun) = post(&server, "/v1/responses", &request);
    assert_eq!((status, &begun["status"]), (200, &json!("in_progress")));
    server.restart(&[]);
    let path = path(&begun["id"]);
    let events: Vec<String> = server.stream("GET", &format!("{path}?stream=true"), None).collect();
    check_order(&events);
    let (_, ended) = get(&server, &path);
    assert_ne!(ended["status"], "in_progress");
    assert_eq!(ended["created_at"], begun["created_at"]);
    assert_ne!(ended["output"][0]["content"][0]["text"], "");
}

#[test]
fn a_conversation_goes_on_after_a_restart() {
    let mut server = Server::start();
    let first = json!({"input": "Say hi.", "max_output_tokens": 8});
    let (_, first) = post(&server, "/v1/responses", &first);
    let follow = json!({"input": "Tell a long story.", "stream": true, "max_output_tokens": 100,
        "previous_response_id": first["id"]});
    let mut events: Vec<String> = create(&server, &follow).take(12).collect();
    server.restart(&[]);
    events.extend(rest(&server, &id(&events[0]), 11));
    check_order(&events);
    let third =
        json!({"input": "Thank you.", "max_output_tokens": 4, "previous_response_id": id(&events[0])});
    let (status, third) = post(&server, "/v1/responses", &third);
    assert_eq!(status, 200, "{third}");
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    let told = last["response"]["usage"]["total_tokens"].as_u64();
    assert!(third["usage"]["input_tokens"].as_u64() > told, "it holds all that was said before");
    assert!(
        third["usage"]["input_tokens_details"]["cached_tokens"].as_u64() > Some(100),
        "{}",
        third["usage"]
    );
}

#[test]
fn a_response_whose_model_is_gone_fails_in_words() {
    let mut server = Server::start();
    let request = json!({"input": "Tell a long story.", "stream": true, "max_output_tokens": 400});
    let events: Vec<String> = create(&server, &request).take(6).collect();
    let other = server.home.path().join("other.gguf");
    std::os::unix::fs::symlink(model_file(), &other).unwrap();
    server.restart(&["-m", other.to_str().unwrap()]);
    let last = rest(&server, &id(&events[0]), 5).last().unwrap();
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
    let server = Server::start();
    let input =
        json!([{"role": "user", "content": "My name is Ada."}, {"role": "user", "content": "Say hi."}]);
    let request = json!({"input": input, "max_output_tokens": 8});
    let (_, first) = post(&server, "/v1/responses", &request);
    let path = path(&first["id"]);
    assert_eq!(get(&server, &path), (200, first.clone()));

    let (_, list) = get(&server, &format!("{path}/input_items?limit=1&order=asc"));
    assert_eq!(list["data"][0]["content"], "My name is Ada.");
    assert_eq!(list["has_more"], true);
    let next = format!("{path}/input_items?order=asc&after={}", list["last_id"].as_str().unwrap());
    assert_eq!(get(&server, &next).1["data"][0]["content"], "Say hi.");

    let follow = json!({"input": "And now?", "max_output_tokens": 4, "previous_response_id": first["id"]});
    let (status, count) = post(&server, "/v1/responses/input_tokens", &follow);
    assert_eq!((status, &count["object"]), (200, &json!("response.input_tokens")));
    let (status, second) = post(&server, "/v1/responses", &follow);
    assert_eq!((status, &second["previous_response_id"]), (200, &first["id"]));
    assert!(second["usage"]["input_tokens"].as_u64() > first["usage"]["input_tokens"].as_u64());
    assert!(count["input_tokens"].as_u64() > first["usage"]["input_tokens"].as_u64());

    assert_eq!(delete(&server, &path).1["deleted"], true);
    let items = get(&server, &format!("{path}/input_items"));
    for (status, error) in [get(&server, &path), delete(&server, &path), items] {
        assert_eq!((status, &error["error"]["code"]), (404, &json!("response_not_found")));
    }
    let (status, error) = post(&server, "/v1/responses", &follow);
    assert_eq!((status, &error["error"]["code"]), (400, &json!("previous_response_not_found")));
}

#[test]
fn what_is_not_to_be_stored_is_not() {
    let server = Server::start();
    let request = json!({"input": "Hi.", "max_output_tokens": 2, "store": false});
    let (_, unstored) = post(&server, "/v1/responses", &request);
    assert_eq!(get(&server, &path(&unstored["id"])).0, 404);
}

#[test]
fn a_running_response_can_be_cancelled_and_keeps_what_it_said() {
    let server = Server::start();
    let request = json!({"input": "Tell a long story.", "background": true, "stream": true});
    let mut stream = create(&server, &request);
    let events: Vec<String> = stream.by_ref().take(8).collect();
    let cancel = format!("/v1/responses/{}/cancel", id(&events[0]));
    let (status, cancelled) = post(&server, &cancel, &json!({}));
    assert_eq!((status, &cancelled["status"]), (200, &json!("cancelled")));
    assert_ne!(cancelled["output"][0]["content"][0]["text"], "");
    assert!(stream.last().unwrap().contains("response.cancelled"));
    assert_eq!(post(&server, &cancel, &json!({})), (200, cancelled));
    assert_eq!(post(&server, "/v1/responses/resp_unknown/cancel", &json!({})).0, 404);
}

#[test]
fn what_does_not_fit_into_the_store_is_refused_and_nothing_else() {
    let server = Server::start_in(tempfile::tempdir().unwrap(), &["--data-mib", "1"]);
    let large =
        json!({"input": "Hi.", "max_output_tokens": 2, "client_metadata": {"x": "y".repeat(2 << 20)}});
    let (status, error) = post(&server, "/v1/responses", &large);
    assert_eq!((status, &error["error"]["code"]), (503, &json!("store_unavailable")));
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("no room left") && message.contains("Send \"store\": false"), "{message}");
    let mut unstored = large;
    unstored["store"] = false.into();
    assert_eq!(post(&server, "/v1/responses", &unstored).0, 200);
    assert_eq!(post(&server, "/v1/responses", &json!({"input": "Hi.", "max_output_tokens": 2})).0, 200);
}

/// Its readers miss nothing, and its last event says that nobody can come back to it.
fn check_told_but_not_stored(server: &Server, events: &[String], words: &str) {
    check_order(events);
    let end: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(
        (&end["type"], &end["response"]["output"][0]["content"][0]["text"]),
        (&json!("response.completed"), &json!(words))
    );
    let stored = end["response"]["metadata"]["flint.stored"].as_str().unwrap_or_else(|| panic!("{end}"));
    assert!(stored.starts_with("no: "), "{stored}");
    // What the store has of it is half: it is deleted as soon as that works.
    until("it is gone", || get(server, &path(&end["response"]["id"])).0 == 404);
}

#[test]
fn a_response_that_outgrows_the_store_is_told_to_its_end() {
    let home = tempfile::tempdir().unwrap();
    let words = "and another word ".repeat(250);
    let lines = [("go on", words.as_str()), ("hi", "hello")];
    let server = Server::scripted_in(home, &lines, 250.0, &["--data-mib", "1"], &[]);
    // Each word is told with twenty others that it might have been.
    let request = json!({"input": "go on", "stream": true, "top_logprobs": 20});
    let events: Vec<String> = create(&server, &request).collect();
    assert!(events.iter().map(String::len).sum::<usize>() > 3 << 19, "more than there is room for");
    check_told_but_not_stored(&server, &events, &words);
    let (status, kept) = post(&server, "/v1/responses", &json!({"input": "hi"}));
    assert_eq!(status, 200, "there is room for others: {kept}");
    assert_eq!(get(&server, &path(&kept["id"])), (200, kept));
}

#[test]
fn a_disk_that_fails_costs_stored_responses_only() {
    let words = "and another word ".repeat(60);
    let server = Server::scripted_with_a_weak_disk(&[("go on", &words), ("hi", "hello")], 60.0);
    let (_, before) = post(&server, "/v1/responses", &json!({"input": "hi"}));
    let mut stream = create(&server, &json!({"input": "go on", "stream": true}));
    let mut events: Vec<String> = stream.by_ref().take(12).collect();
    server.limit_files(Some(0));
    let (status, error) = post(&server, "/v1/responses", &json!({"input": "hi"}));
    assert_eq!((status, &error["error"]["code"]), (503, &json!("store_unavailable")), "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("Send \"store\": false"), "{message}");
    let unstored = json!({"input": "hi", "store": false});
    assert_eq!(post(&server, "/v1/responses", &unstored).0, 200);
    assert_eq!(get(&server, &path(&before["id"])), (200, before.clone()), "what is stored can be read");
    events.extend(stream);
    server.limit_files(None);
    let (status, after) = post(&server, "/v1/responses", &json!({"input": "hi"}));
    assert_eq!(status, 200, "it is mended: {after}");
    check_told_but_not_stored(&server, &events, &words);
    assert_eq!(get(&server, &path(&before["id"])), (200, before));
}

#[test]
fn a_data_directory_has_one_server() {
    let server = Server::start();
    let mut second = flint();
    let second = second.args(["serve", "-m", MODEL, "--port", "0", "--data"]).arg(server.home.path());
    let second = second.output().unwrap();
    assert!(!second.status.success());
    assert!(stderr(&second).contains("is in use by another flint serve"), "{}", stderr(&second));
}
