//! A steer and a death at the same time: whatever was told stays true, and a steer that was accepted has its successor.

mod support;

use serde_json::{Value, json};
use support::children;
use support::server::{Server, Socket, text};

const STEERED: &str = "as you wish, and not a word more than that";
/// Passes a second: every answer is cut in its midst.
const RATE: f64 = 60.0;

fn long() -> String {
    (1..=60).map(|number| format!("line {number}\n")).collect()
}

fn serve() -> Server {
    Server::scripted(&[("go on", &long()), ("stop here", STEERED)], RATE)
}

/// A stored response that runs on a socket, and its events so far.
struct Client {
    socket: Socket,
    events: Vec<Value>,
}

impl Client {
    fn begin(server: &Server) -> Client {
        let mut socket = server.socket();
        socket.send(
            &json!({"type": "response.create", "model": support::MODEL, "input": "go on", "store": true}),
        );
        let mut client = Client { socket, events: Vec::new() };
        client.read_until(|events| text(events).len() > 40);
        client
    }

    fn read_until(&mut self, enough: impl Fn(&[Value]) -> bool) {
        while !enough(&self.events) {
            self.events.push(self.socket.next());
        }
    }

    fn steer(&mut self) {
        let steer =
            json!({"type": "response.steer", "previous_response_id": id(&self.events), "input": "stop here"});
        self.socket.send(&steer);
    }

    /// The events of the first response, and of the one that follows.
    fn parted(&self) -> (&[Value], &[Value]) {
        let end = self.events.iter().position(|event| event["type"] == "response.incomplete");
        self.events.split_at(end.map_or(self.events.len(), |end| end + 1))
    }
}

fn id(events: &[Value]) -> &str {
    events[0]["response"]["id"].as_str().unwrap()
}

fn has(events: &[Value], kind: &str) -> bool {
    events.iter().any(|event| event["type"] == kind)
}

/// What is stored of a response from event number `from` on, to its end.
fn stored(server: &Server, id: &str, from: usize) -> Vec<Value> {
    let after = from.checked_sub(1).map_or(String::new(), |last| format!("&starting_after={last}"));
    let stream = server.stream("GET", &format!("/v1/responses/{id}?stream=true{after}"), None);
    stream.map(|event| serde_json::from_str(&event).unwrap()).collect()
}

/// None lost, none doubled, and the response says what its events have said.
fn check_whole(events: &[Value], kind: &str) {
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    let end = events.last().unwrap();
    assert_eq!((&events[0]["type"], &end["type"]), (&json!("response.created"), &json!(kind)));
    let output = &end["response"]["output"];
    assert_eq!(output[0]["content"][0]["text"], text(events), "{end}");
    assert_eq!(output.as_array().unwrap().len(), 1, "{end}");
}

/// Of a response that was steered, and of its successor.
fn check_steered(first: &[Value], second: &[Value]) {
    check_whole(first, "response.incomplete");
    assert!(has(first, "response.steer.accepted"));
    let response = &first.last().unwrap()["response"];
    assert_eq!(response["incomplete_details"]["reason"], "steered");
    assert!(long().starts_with(&text(first)), "{}", text(first));
    check_whole(second, "response.completed");
    assert_eq!(text(second), STEERED);
    let successor = &second.last().unwrap()["response"];
    assert_eq!(successor["previous_response_id"], response["id"]);
    assert_eq!(response["metadata"]["flint.successor"], successor["id"]);
    // It has read all that the first one has, and wrote.
    let used = |of: &Value, key: &str| of["usage"][key].as_u64().unwrap();
    assert!(used(successor, "input_tokens") > used(response, "total_tokens"), "{successor}");
}

/// Who comes later is told the same, and may go on from it.
fn check_kept(server: &Server, first: &[Value], second: &[Value]) {
    for events in [first, second] {
        assert_eq!(stored(server, id(events), 0), events);
        let kept = server.get(&format!("/v1/responses/{}", id(events))).json();
        assert_eq!(kept, events.last().unwrap()["response"]);
    }
    let follow = json!({"input": "stop here", "previous_response_id": id(second)});
    let follow = server.post("/v1/responses", &follow).json();
    assert_eq!(follow["output"][0]["content"][0]["text"], STEERED, "{follow}");
}

fn kill_worker(server: &Server) {
    let [worker] = children(server.pid())[..] else { panic!("not one worker") };
    // SAFETY: it is a child of our child, which has not waited for it yet.
    assert_eq!(unsafe { libc::kill(worker as i32, libc::SIGKILL) }, 0);
}

/// The worker dies when the client has done `before`, the steer if that has not sent it.
fn check_worker_death(before: impl FnOnce(&mut Client)) {
    let server = serve();
    let mut client = Client::begin(&server);
    let first = id(&client.events).to_owned();
    before(&mut client);
    let steered = has(&client.events, "response.steer.accepted");
    kill_worker(&server);
    if !steered {
        client.steer();
    }
    client.read_until(|events| has(events, "response.completed"));
    let (one, two) = client.parted();
    assert_eq!(id(one), first);
    check_steered(one, two);
    check_kept(&server, one, two);
    let metrics = server.get("/metrics").body;
    let deaths = format!("flint_worker_deaths_total{{model=\"{}\"}} 1", support::MODEL);
    assert!(metrics.lines().any(|line| line == deaths), "{metrics}");
}

#[test]
fn a_steer_just_after_the_worker_died() {
    check_worker_death(|_| {});
}

#[test]
fn a_worker_that_dies_before_the_successors_first_token() {
    check_worker_death(|client| {
        client.steer();
        client.read_until(|events| has(events, "response.incomplete"));
    });
}

/// The server dies when the client has done `before`, and another one goes on.
fn check_server_death(before: impl FnOnce(&mut Client)) {
    let mut server = serve();
    let mut client = Client::begin(&server);
    client.steer();
    before(&mut client);
    let script = server.home.path().join("script.json");
    server.restart(&["--scripted", script.to_str().unwrap()]);
    let (one, two) = client.parted();
    let mut first = one.to_vec();
    first.extend(stored(&server, id(one), one.len()));
    if !has(&first, "response.steer.accepted") {
        // Nobody was told that it would be: it goes on as if there had been no steer.
        check_whole(&first, "response.completed");
        return assert_eq!(text(&first), long());
    }
    let successor = first.last().unwrap()["response"]["metadata"]["flint.successor"].as_str().unwrap();
    let mut second = two.to_vec();
    second.extend(stored(&server, successor, two.len()));
    check_steered(&first, &second);
    check_kept(&server, &first, &second);
}

#[test]
fn a_server_that_dies_with_a_steer_before_it() {
    check_server_death(|_| {});
}

#[test]
fn a_server_that_dies_as_soon_as_a_steer_is_accepted() {
    check_server_death(|client| client.read_until(|events| has(events, "response.steer.accepted")));
    check_server_death(|client| client.read_until(|events| has(events, "response.incomplete")));
}

#[test]
fn a_server_that_dies_while_the_successor_is_made() {
    let begun = |events: &[Value]| events.iter().filter(|event| event["type"] == "response.created").count();
    check_server_death(|client| client.read_until(|events| begun(events) == 2));
    check_server_death(|client| client.read_until(|events| text(events).contains("as you")));
}
