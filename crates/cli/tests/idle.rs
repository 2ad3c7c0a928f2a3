//! A server that has nothing to do uses nothing, with a real model in memory and a client that stays connected.

mod support;

use serde_json::json;
use std::sync::mpsc;
use std::time::Duration;
use support::server::{Server, text};
use support::{children, processor_time};

const IDLE: Duration = Duration::from_secs(6);

#[test]
fn an_idle_server_uses_no_processor_time() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.send(&json!({"type": "response.create", "model": support::MODEL, "max_output_tokens": 100, "temperature": 0,
        "input": "Tell me a long story about a river."}));
    let events = socket.until("response.incomplete");
    assert!(text(&events).len() > 100, "{:?}", events.last());
    let workers = children(server.pid());
    assert_eq!(workers.len(), 1, "the server has one worker");
    let pids = [server.pid(), workers[0]];
    let before = pids.map(processor_time);
    let (_keep, nothing) = mpsc::channel::<()>();
    nothing.recv_timeout(IDLE).unwrap_err();
    let used: Vec<Duration> =
        pids.into_iter().zip(before).map(|(pid, before)| processor_time(pid) - before).collect();
    let all: Duration = used.iter().sum();
    assert!(all * 100 < IDLE, "server and worker used {used:?} of {IDLE:?}");
}
