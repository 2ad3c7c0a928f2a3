//! Lanes of one WebSocket, and what is wanted of the turns in them. What is sent and what comes has the types of async-openai
//! where it has any.

mod support;

use async_openai::types::responses::websocket::{
    ResponseSteerEvent, ResponseSteerInput, ResponsesClientEvent, ResponsesClientEventResponseCreate,
    ResponsesServerEvent,
};
use async_openai::types::responses::{CreateResponse, InputParam};
use serde_json::{Value, json};
use std::collections::HashMap;
use support::MODEL;
use support::server::{Server, Socket, text};

fn create(input: &str) -> Value {
    json!({"type": "response.create", "model": MODEL, "input": input, "store": false})
}

fn in_lane(lane: &str, mut frame: Value) -> Value {
    frame["stream_id"] = lane.into();
    frame
}

fn id(events: &[Value]) -> String {
    events[0]["response"]["id"].as_str().unwrap().to_owned()
}

fn has_ended(event: &Value) -> bool {
    let ends = ["completed", "incomplete", "failed", "cancelled"].map(|end| format!("response.{end}"));
    event["type"] == "error" || ends.iter().any(|end| event["type"] == end.as_str())
}

/// Events up to one that is the last of a response, or an error.
fn to_an_end(socket: &mut Socket) -> Vec<Value> {
    let mut events = vec![socket.next()];
    while !events.last().is_some_and(has_ended) {
        events.push(socket.next());
    }
    events
}

fn until_it_says(socket: &mut Socket, bytes: usize) -> Vec<Value> {
    let mut events = vec![socket.next()];
    while text(&events).len() < bytes {
        events.push(socket.next());
    }
    events
}

const LONG: &str = "and another word and another word and another word and another word and another word and another \
    word and another word and another word and another word and another word and another word and another word";

/// A client made of async-openai's types: two conversations at once, one of which is steered.
#[test]
fn one_of_two_lanes_is_steered() {
    let lines = [("go on", LONG), ("stop here", "as you wish"), ("count", LONG)];
    let server = Server::scripted(&lines, 40.0);
    let mut socket = server.socket();
    let mut send = |event: &ResponsesClientEvent| socket.send(&serde_json::to_value(event).unwrap());
    for (lane, said) in [("a", "go on"), ("b", "count")] {
        let response = CreateResponse {
            model: Some(MODEL.to_owned()),
            input: InputParam::Text(said.to_owned()),
            store: Some(false),
            ..CreateResponse::default()
        };
        let stream_id = Some(lane.to_owned());
        let create = ResponsesClientEventResponseCreate { stream_id, response, generate: None };
        send(&ResponsesClientEvent::Create(Box::new(create)));
    }
    let mut lanes: HashMap<String, Vec<Value>> = HashMap::new();
    let mut steered = false;
    let ends = |events: &Vec<Value>| events.iter().filter(|event| has_ended(event)).count();
    while lanes.values().map(ends).sum::<usize>() < 3 {
        let event = socket.next();
        serde_json::from_value::<ResponsesServerEvent>(event.clone())
            .unwrap_or_else(|error| panic!("{error}: {event:#}"));
        lanes.entry(event["stream_id"].as_str().unwrap().to_owned()).or_default().push(event);
        let both = lanes.len() == 2 && lanes.values().all(|events| text(events).len() > 20);
        if both && !std::mem::replace(&mut steered, true) {
            let previous_response_id = id(&lanes["a"]);
            let input = ResponseSteerInput::Text("stop here".to_owned());
            let steer = ResponsesClientEvent::Steer(ResponseSteerEvent { previous_response_id, input });
            // The type has no lane: the response says which it is.
            socket.send(&serde_json::to_value(&steer).unwrap());
        }
    }
    let end = lanes["a"].iter().position(has_ended).unwrap();
    let (first, successor) = lanes["a"].split_at(end + 1);
    assert!(first.iter().any(|event| event["type"] == "response.steer.accepted"));
    assert_eq!(first.last().unwrap()["response"]["incomplete_details"]["reason"], "steered");
    assert!(LONG.starts_with(&text(first)) && text(first) != LONG);
    assert_eq!(successor[0]["response"]["previous_response_id"], id(first).as_str());
    assert_eq!(text(successor), "as you wish");
    assert_eq!(text(&lanes["b"]), LONG, "the other lane has noticed nothing");
}

/// The end of a response says all of it four times, at once, which may be more than is kept for a reader.
#[test]
fn a_long_answer_that_is_not_stored_comes_to_its_end() {
    let long = "a_very_long_name_of_something ".repeat(2200);
    // One that may say so much.
    let model = "qwen2.5-coder-1.5b";
    let home = tempfile::tempdir().unwrap();
    let server = Server::scripted_in(home, &[("go on", &long)], 10_000.0, &["-m", model], &[]);
    let mut socket = server.socket();
    socket.send(
        &json!({"type": "response.create", "input": "go on", "store": false, "max_output_tokens": 30_000}),
    );
    let events = to_an_end(&mut socket);
    let end = &events.last().unwrap()["response"];
    assert_eq!(
        end["output"][0]["content"][0]["text"].as_str().map(str::len),
        Some(text(&events).len()),
        "{end}"
    );
    assert_eq!(text(&events).len(), long.len());
}

#[test]
fn a_cancel_keeps_what_was_written() {
    let server = Server::scripted(&[("go on", LONG), ("hi", "hello")], 40.0);
    let mut socket = server.socket();
    socket.send(&create("go on"));
    let mut events = until_it_says(&mut socket, 20);
    // What is not running is not concerned.
    socket.send(&json!({"type": "response.cancel", "response_id": "resp_0"}));
    socket.send(&json!({"type": "response.cancel", "response_id": id(&events)}));
    events.extend(to_an_end(&mut socket));
    let end = events.last().unwrap();
    assert_eq!(
        (&end["type"], &end["response"]["status"]),
        (&json!("response.cancelled"), &json!("cancelled"))
    );
    let kept = end["response"]["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(kept == text(&events) && LONG.starts_with(kept) && kept != LONG, "{kept}");
    let mut next = create("hi");
    next["previous_response_id"] = id(&events).into();
    socket.send(&next);
    let next = to_an_end(&mut socket);
    assert_eq!(text(&next), "hello");
    let cached = next.last().unwrap()["response"]["metadata"]["flint.tokens_cached"].as_str().unwrap();
    let total = end["response"]["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(cached.parse::<u64>().unwrap(), total, "all of it stays warm");
}

/// A response that is steered and then stopped before its next token has no successor: nobody may wait for one.
#[test]
fn who_is_steered_and_cancelled_at_once_holds_up_nobody() {
    let server = Server::scripted(&[("go on", LONG), ("stop here", "as you wish"), ("hi", "hello")], 2.0);
    for stop in ["response.cancel", "response.interrupt"] {
        let mut socket = server.socket();
        socket.send(&create("go on"));
        let mut events = until_it_says(&mut socket, 1);
        let first = id(&events);
        socket.send(&json!({"type": "response.steer", "previous_response_id": first, "input": "stop here"}));
        socket.send(&json!({"type": stop, "response_id": first}));
        let mut next = create("hi");
        next["previous_response_id"] = first.into();
        socket.send(&next);
        events.extend(to_an_end(&mut socket));
        let end = events.last().unwrap()["response"].clone();
        if end["incomplete_details"]["reason"] == "steered" {
            // It was stopped too late.
            assert_eq!(text(&to_an_end(&mut socket)), "as you wish");
        } else {
            assert!(end["metadata"]["flint.successor"].is_null(), "{end}");
        }
        assert_eq!(text(&to_an_end(&mut socket)), "hello", "{stop}");
    }
}

/// A steer that has to wait for the output of a call, which the server has promised to keep.
struct Pending {
    socket: Socket,
    call_id: Value,
    previous: String,
    tools: Value,
}

impl Pending {
    fn new(server: &Server) -> Pending {
        let mut socket = server.socket();
        let parameters =
            json!({"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]});
        let tools =
            json!([{"type": "function", "name": "look", "description": "", "parameters": parameters}]);
        let mut frame = create("go");
        frame["tools"] = tools.clone();
        frame["max_output_tokens"] = 120.into();
        socket.send(&frame);
        let events = socket.until("response.function_call_arguments.done");
        let previous = id(&events);
        let steer =
            json!({"type": "response.steer", "previous_response_id": previous, "input": "and be brief"});
        socket.send(&steer);
        let rest = socket.until("response.incomplete");
        let pending = rest.iter().find(|event| event["type"] == "response.steer.pending").unwrap();
        let call_id = pending["required_input"][0]["call_id"].clone();
        Pending { socket, call_id, previous, tools }
    }

    fn follow(&self, input: Value) -> Value {
        json!({"type": "response.create", "model": MODEL, "input": input, "store": false, "tools": self.tools,
            "previous_response_id": self.previous})
    }

    fn output(&self) -> Value {
        json!([{"type": "function_call_output", "call_id": self.call_id, "output": "nothing"}])
    }

    fn answer(&mut self, frame: &Value) -> String {
        self.socket.send(frame);
        text(&to_an_end(&mut self.socket))
    }
}

fn with_a_call() -> Server {
    let call = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"it\"}}\n</tool_call>";
    let padded = format!("{call}{}", " and so on".repeat(200));
    let lines = [
        ("go", padded.as_str()),
        ("and be brief", "as you wish"),
        ("hi", "hello"),
        ("nothing", "all is said"),
    ];
    Server::scripted(&lines, 200.0)
}

#[test]
fn a_steer_that_waits_outlives_turns_of_other_lanes() {
    let server = with_a_call();
    let mut pending = Pending::new(&server);
    for lane in ["x", "y"] {
        assert_eq!(pending.answer(&in_lane(lane, create("hi"))), "hello");
    }
    let output = pending.follow(pending.output());
    assert_eq!(pending.answer(&output), "as you wish");
}

#[test]
fn a_steer_that_waits_outlives_a_turn_that_is_refused() {
    let server = with_a_call();
    let mut pending = Pending::new(&server);
    let mut wrong = pending.follow(pending.output());
    wrong["temperature"] = 7.into();
    assert_eq!(pending.answer(&wrong), "");
    let output = pending.follow(pending.output());
    assert_eq!(pending.answer(&output), "as you wish");
    // Once only.
    let again = pending.follow(pending.output());
    assert_ne!(pending.answer(&again), "as you wish");
}

#[test]
fn a_steer_that_waits_follows_plain_text_too() {
    let server = with_a_call();
    let mut pending = Pending::new(&server);
    let plain = pending.follow(json!("never mind"));
    assert_eq!(pending.answer(&plain), "as you wish");
}

#[test]
fn a_connection_has_so_many_lanes_and_a_lane_so_many_turns() {
    use flint_server::limits::{LANE_TURNS_WAITING_MAX, LANES_MAX};
    let server = Server::scripted(&[("hi", "one two three four five")], 5.0);
    let mut socket = server.socket();
    for lane in 0..LANES_MAX + 3 {
        socket.send(&in_lane(&lane.to_string(), create("hi")));
    }
    let ends = |socket: &mut Socket, count: usize| -> Vec<Value> {
        let all = std::iter::repeat_with(|| socket.next());
        all.filter(has_ended).take(count).collect()
    };
    let (refused, answered) = ends(&mut socket, LANES_MAX + 3).into_iter().partition::<Vec<_>, _>(is_refused);
    assert_eq!((refused.len(), answered.len()), (3, LANES_MAX));
    // Lanes without work make room.
    socket.send(&in_lane("another", create("hi")));
    assert_eq!(ends(&mut socket, 1)[0]["type"], "response.completed");
    let turns = LANE_TURNS_WAITING_MAX + 5;
    let short = |mut frame: Value| {
        frame["max_output_tokens"] = 1.into();
        in_lane("full", frame)
    };
    socket.send(&in_lane("full", create("hi")));
    assert_eq!(socket.next()["type"], "response.created");
    (0..turns).for_each(|_| socket.send(&short(create("hi"))));
    let (refused, answered) = ends(&mut socket, turns + 1).into_iter().partition::<Vec<_>, _>(is_refused);
    assert_eq!((refused.len(), answered.len()), (5, LANE_TURNS_WAITING_MAX + 1));
    assert!(refused.iter().all(|error| error["stream_id"] == "full"));
}

fn is_refused(event: &Value) -> bool {
    let refused = event["type"] == "error";
    assert!(!refused || event["status"] == 429 && event["headers"]["retry-after"].is_string(), "{event}");
    refused
}
