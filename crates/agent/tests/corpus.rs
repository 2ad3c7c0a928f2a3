//! Replays the corpora of the fuzzers, with the fuzzers' own assertions: what was found once stays found.

#[path = "../../../fuzz/src/kept.rs"]
mod kept;
#[path = "../../../fuzz/src/agent.rs"]
mod promises;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn patch() {
    replay::corpus("patch", promises::patch);
}

#[test]
fn approve() {
    replay::corpus("approve", promises::approve);
}

#[test]
fn config() {
    replay::corpus("config", kept::config);
}

#[test]
fn sessions() {
    replay::corpus("sessions", kept::sessions);
}
