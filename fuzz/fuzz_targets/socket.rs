//! A server in this process, so that what is tried follows what of it was reached. Its worker is the program `FLINT_BIN`, with the
//! vocabulary `FLINT_MODEL`.
#![no_main]

#[path = "../../crates/cli/tests/support/served.rs"]
mod served;

use flint_server::Pace;
use served::{Play, Served, play};
use std::path::PathBuf;
use std::sync::OnceLock;

static SERVED: OnceLock<Served> = OnceLock::new();

fn start() -> Served {
    let path = |name: &str| {
        PathBuf::from(std::env::var_os(name).expect("cargo xtask fuzz sets FLINT_BIN and FLINT_MODEL"))
    };
    let home = tempfile::tempdir().expect("a folder");
    let script = play(home.path(), &flint_fuzz::socket::lines(), None);
    let play = Play { program: path("FLINT_BIN"), model: path("FLINT_MODEL"), script };
    let served = Served::start(Pace::default(), home, &play);
    flint_fuzz::socket::is_at(served.address.clone(), served.key.clone());
    served
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    SERVED.get_or_init(start);
    flint_fuzz::socket::conversation(bytes);
});
