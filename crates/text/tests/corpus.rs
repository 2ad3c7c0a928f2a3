//! Replays the corpora of the fuzzers, with the fuzzers' own assertions: what was found once stays found.

#[path = "../../../fuzz/src/text/mod.rs"]
mod promises;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn tokenizer() {
    replay::corpus("tokenizer", promises::tokenizer);
}

#[test]
fn template() {
    replay::corpus("template", promises::template);
}

#[test]
fn detokenizer() {
    replay::corpus("detokenizer", promises::detokenizer);
}

#[test]
fn stop() {
    replay::corpus("stop", promises::stop);
}

#[test]
fn parser() {
    replay::corpus("parser", promises::parser);
}
