//! Replays the fuzzers' conversations with the real server: what was found once stays found.

mod support;

#[path = "../../../fuzz/src/socket.rs"]
mod promises;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

use support::server::Server;

#[test]
fn socket() {
    let home = tempfile::tempdir().unwrap();
    let script = support::served::play(home.path(), &promises::lines(), None);
    let server = Server::start_in(home, &["--scripted", &script]);
    promises::is_at(server.address.clone(), server.key.clone());
    replay::corpus("socket", promises::conversation);
}
