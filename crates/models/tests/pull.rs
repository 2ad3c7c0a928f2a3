//! Pulling from a real server: what arrives is what was served, or a clear error and nothing else.

mod loopback;
mod support;

use flint_models::catalogue::Source;
use flint_models::{ModelName, PullError};
use loopback::{Loopback, Reply, Request};
use std::fs;
use support::{Home, Watch, bytes};

const LEN: usize = 600_000;
const TAG: &str = "\"one\"";

fn url(server: &Loopback) -> ModelName {
    ModelName::parse(&server.url("/m.gguf")).unwrap()
}

fn ranges(requests: &[Request]) -> Vec<Option<usize>> {
    requests.iter().map(Request::from).collect()
}

#[test]
fn a_file_is_pulled_once() {
    let server = Loopback::start(|request| Reply::file(request, &bytes(LEN), TAG));
    let home = Home::new(&server);
    let path = home.pull_whole(&url(&server)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes(LEN));
    assert_eq!(home.pull(&url(&server)).unwrap(), path);
    assert_eq!(ranges(&server.take_requests()), [None], "the second time it is here");
    assert_eq!(home.files(), [path], "nothing else is left");
}

#[test]
fn addresses_that_end_alike_are_different_models() {
    let server = Loopback::start(|request| Reply::whole(request.path.as_bytes()));
    let home = Home::new(&server);
    for path in ["/a/m.gguf", "/b/m.gguf", "/b/m.gguf?x=1"] {
        let name = ModelName::parse(&server.url(path)).unwrap();
        assert_eq!(fs::read_to_string(home.pull(&name).unwrap()).unwrap(), path);
    }
}

#[test]
fn a_stopped_pull_goes_on_where_it_stopped() {
    let server = Loopback::start(|request| Reply::file(request, &bytes(LEN), TAG));
    let home = Home::new(&server);
    let name = url(&server);
    let mut watch = Watch { stop_at: Some(100_000), ..Watch::default() };
    assert!(matches!(home.pull_watched(&name, &mut watch), Err(PullError::Stopped)));
    let have = home.partial(&name).metadata().unwrap().len() as usize;
    assert!((100_000..LEN).contains(&have), "{have}");
    let path = home.pull_whole(&name).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes(LEN));
    let requests = server.take_requests();
    assert_eq!(ranges(&requests), [None, Some(have)]);
    assert_eq!(requests[1].header("if-range"), Some(TAG));
    assert_eq!(home.files(), [path], "neither partial file nor tag is left");
}

#[test]
fn a_broken_connection_is_gone_on_with_at_once() {
    let server = Loopback::start(|request| Reply::file(request, &bytes(LEN), TAG).cut(150_000));
    let home = Home::new(&server);
    let path = home.pull_whole(&url(&server)).unwrap();
    assert_eq!(fs::read(path).unwrap(), bytes(LEN));
    let from = [None, Some(150_000), Some(300_000), Some(450_000)];
    assert_eq!(ranges(&server.take_requests()), from);
}

#[test]
fn a_connection_that_brings_nothing_more_is_an_error_and_the_beginning_is_kept() {
    let server = Loopback::start(|request| {
        let whole = Reply::file(request, &bytes(LEN), TAG);
        match request.nth {
            0 => whole.cut(200_000),
            1 => whole.cut(0),
            _ => whole,
        }
    });
    let home = Home::new(&server);
    let name = url(&server);
    let error = home.pull(&name).unwrap_err().to_string();
    assert!(error.contains("/m.gguf: the connection broke after 200000 bytes"), "{error}");
    assert!(error.ends_with("Run the same command again to go on from there"), "{error}");
    assert!(!home.store.place(&name).exists());
    assert_eq!(fs::read(home.pull_whole(&name).unwrap()).unwrap(), bytes(LEN));
    assert_eq!(ranges(&server.take_requests()), [None, Some(200_000), Some(200_000)]);
}

/// The beginning of another file is here; whatever the server answers, the whole of this one comes.
fn check_resumed(tag: &str, answer: fn(&Request) -> Reply, want: &[Option<usize>]) {
    let server = Loopback::start(answer);
    let home = Home::new(&server);
    let name = url(&server);
    home.begin(&name, &[7; 1000], tag);
    assert_eq!(fs::read(home.pull_whole(&name).unwrap()).unwrap(), bytes(LEN));
    assert_eq!(ranges(&server.take_requests()), want);
}

#[test]
fn a_server_that_cannot_resume_is_asked_for_the_whole() {
    check_resumed(TAG, |_| Reply::whole(&bytes(LEN)), &[Some(1000)]);
}

#[test]
fn a_range_that_was_not_asked_for_is_not_taken() {
    let other = |request: &Request| match request.from() {
        Some(_) => Reply::range(&bytes(LEN), 2000),
        None => Reply::whole(&bytes(LEN)),
    };
    check_resumed(TAG, other, &[Some(1000), None]);
}

#[test]
fn a_file_that_became_shorter_than_its_beginning_is_fetched_anew() {
    let shorter = |request: &Request| match request.from() {
        Some(_) => Reply::status(416).with("Content-Range", "bytes */900"),
        None => Reply::whole(&bytes(LEN)),
    };
    check_resumed(TAG, shorter, &[Some(1000), None]);
}

#[test]
fn the_beginning_of_another_version_is_thrown_away() {
    check_resumed("\"old\"", |request| Reply::file(request, &bytes(LEN), TAG), &[Some(1000)]);
}

#[test]
fn a_beginning_of_nobody_knows_what_is_thrown_away() {
    check_resumed("", |request| Reply::file(request, &bytes(LEN), TAG), &[None]);
}

#[test]
fn a_file_that_is_whole_already_is_only_moved() {
    let server = Loopback::start(|request| Reply::file(request, &bytes(LEN), TAG));
    let home = Home::new(&server);
    home.begin(&url(&server), &bytes(LEN), TAG);
    assert_eq!(fs::read(home.pull(&url(&server)).unwrap()).unwrap(), bytes(LEN));
    assert_eq!(ranges(&server.take_requests()), [Some(LEN)]);
}

#[test]
fn two_pulls_of_one_file_do_not_mix() {
    let server = Loopback::start(|request| Reply::file(request, &bytes(LEN), TAG));
    let home = Home::new(&server);
    let name = url(&server);
    home.begin(&name, b"", "");
    let other = fs::File::open(home.partial(&name)).unwrap();
    other.lock().unwrap();
    let error = home.pull(&name).unwrap_err().to_string();
    assert!(error.ends_with("another process is writing to it; wait for that pull to end"), "{error}");
    drop(other);
    assert_eq!(fs::read(home.pull(&name).unwrap()).unwrap(), bytes(LEN));
}

#[test]
fn a_wrong_length_is_an_error() {
    let long = |_: &Request| Reply::whole(&bytes(LEN)).with("Content-Length", (LEN + 1).to_string());
    let server = Loopback::start(long);
    let home = Home::new(&server);
    let error = home.pull(&url(&server)).unwrap_err().to_string();
    assert!(error.contains("the connection broke after"), "{error}");
    assert!(!home.store.place(&url(&server)).exists());
}

#[test]
fn parts_are_pulled_together_the_asked_one_last() {
    let server = Loopback::start(|request| Reply::file(request, request.path.as_bytes(), TAG));
    let home = Home::new(&server);
    let name = ModelName::parse(&server.url("/m-00001-of-00003.gguf")).unwrap();
    let first = home.pull_whole(&name).unwrap();
    let asked: Vec<String> = server.take_requests().into_iter().map(|request| request.path).collect();
    assert_eq!(asked, ["/m-00002-of-00003.gguf", "/m-00003-of-00003.gguf", "/m-00001-of-00003.gguf"]);
    for part in asked {
        assert_eq!(fs::read_to_string(first.with_file_name(&part[1..])).unwrap(), part);
    }
}

#[test]
fn every_refusal_says_what_to_do() {
    for (status, words) in [
        (401, "access was refused. A private file of the hub is pulled as hf:REPO:FILE with HF_TOKEN set"),
        (403, "access was refused. A private file of the hub is pulled as hf:REPO:FILE with HF_TOKEN set"),
        (404, "there is no such file; check the name"),
        (416, "the server sent something other than the file"),
        (429, "the server wants fewer requests; try again later"),
        (500, "the server failed; try again later"),
    ] {
        let server = Loopback::start(move |_| Reply::status(status));
        let home = Home { hub: "http://hub.invalid".into(), ..Home::new(&server) };
        let error = home.pull(&url(&server)).unwrap_err().to_string();
        assert_eq!(error, format!("{}: {words} (status {status})", server.url("/m.gguf")));
        assert!(!home.store.place(&url(&server)).exists());
    }
}

#[test]
fn no_server_is_an_error() {
    let server = Loopback::start(|_| Reply::status(500));
    let (home, name) = (Home::new(&server), url(&server));
    drop(server);
    let error = home.pull(&name).unwrap_err().to_string();
    assert!(
        error.contains("m.gguf: ") && error.ends_with("is the address right, and the network up?"),
        "{error}"
    );
    assert!(home.files().is_empty(), "nothing is left of what did not begin");
}

#[test]
fn an_entry_that_cannot_be_had_says_what_was_tried() {
    let server = Loopback::start(|_| Reply::status(500));
    let home = Home::new(&server);
    let source = Source::Hub { repository: "own/er".into(), file: "m.gguf".into() };
    let error = home.pull(&support::entry(b"model", vec![source])).unwrap_err().to_string();
    let address = server.url("/own/er/resolve/main/m.gguf");
    assert_eq!(
        error,
        format!(
            "tiny could not be had from any source:\n  {address}: the server failed; try again later (status 500)\n\
             If you have the file, give its path instead of a name"
        )
    );
}

#[test]
fn a_path_is_where_it_is() {
    let server = Loopback::start(|_| Reply::status(500));
    let home = Home::new(&server);
    let path = home.begin(&url(&server), b"a model", "");
    let name = ModelName::parse(path.to_str().unwrap()).unwrap();
    assert_eq!(home.pull(&name).unwrap(), path);
    fs::remove_file(&path).unwrap();
    let error = home.pull(&name).unwrap_err().to_string();
    assert_eq!(error, format!("{} is not there; check the path", path.display()));
    assert!(server.take_requests().is_empty());
}
