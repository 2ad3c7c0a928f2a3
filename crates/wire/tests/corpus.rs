//! Replays the corpora of the fuzzers, with the fuzzers' own assertions: what was found once stays found.

#[path = "../../../fuzz/src/wire.rs"]
mod promises;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn request() {
    replay::corpus("request", promises::request);
}

#[test]
fn frames() {
    replay::corpus("frames", promises::frames);
}
