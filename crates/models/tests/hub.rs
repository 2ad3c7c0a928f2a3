//! Pulling from something that speaks as the Hugging Face hub does.

mod loopback;
mod support;

use flint_models::catalogue::{Entry, Listed, default_entry};
use flint_models::{ModelName, PullError};
use loopback::{Loopback, Reply, Request};
use std::fs;
use std::path::Path;
use support::{Home, Watch, bytes, sha256};

const LEN: usize = 300_000;
const REPOSITORY: &str = "own/er";
const TOKEN: &str = "hf_secret";

type Files = Vec<(&'static str, Vec<u8>)>;

/// The listing and the files of one repository; large files have a digest, as the hub has it.
fn hub(request: &Request, files: &Files) -> Reply {
    if request.path == format!("/api/models/{REPOSITORY}/tree/main?recursive=true") {
        let items: Vec<String> = files.iter().map(|(name, bytes)| item(name, bytes)).collect();
        return Reply::whole(format!("[{}]", items.join(",")).as_bytes());
    }
    let wanted = request.path.strip_prefix(&format!("/{REPOSITORY}/resolve/main/"));
    let found = files.iter().find(|(name, _)| wanted == Some(&name.replace(' ', "%20")));
    found.map_or(Reply::status(404), |(_, bytes)| Reply::file(request, bytes, "\"tag\""))
}

fn item(name: &str, bytes: &[u8]) -> String {
    let size = bytes.len();
    match name.ends_with(".json") {
        true => format!(r#"{{"type":"file","path":"{name}","size":{size},"oid":"x"}}"#),
        false => format!(
            r#"{{"type":"file","path":"{name}","size":{size},"oid":"x","lfs":{{"oid":"{}","size":{size}}}}}"#,
            sha256(bytes)
        ),
    }
}

fn name(file: &str) -> ModelName {
    ModelName::parse(&format!("hf:{REPOSITORY}{file}")).unwrap()
}

fn files_asked(server: &Loopback) -> Vec<String> {
    let paths = server.take_requests().into_iter().map(|request| request.path);
    paths.filter_map(|path| Some(path.split_once("/resolve/main/")?.1.to_string())).collect()
}

#[test]
fn a_file_of_a_repository() {
    let files = || vec![("q 4/m.gguf", bytes(LEN)), ("n.gguf", bytes(9))];
    let server = Loopback::start(move |request| hub(request, &files()));
    let home = Home { hub: server.url("/"), ..Home::new(&server) };
    let path = home.pull_whole(&name(":q 4/m.gguf")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes(LEN));
    assert_eq!(home.files(), [path]);
    assert_eq!(files_asked(&server), ["q%204/m.gguf"]);
}

/// A name of the catalogue may stand for a repository.
#[test]
fn a_name_for_a_repository() {
    let files =
        || vec![("config.json", b"{}".to_vec()), ("model.safetensors", bytes(LEN)), ("README.md", bytes(9))];
    let server = Loopback::start(move |request| hub(request, &files()));
    let home = Home::new(&server);
    let listed = Some(Listed { repository: REPOSITORY.into(), file: None });
    let sha256 = String::new();
    let entry = Entry { name: "big".into(), sha256, listed, sources: Vec::new(), ..default_entry().clone() };
    let known = ModelName::Known(Box::leak(Box::new(entry)));
    let path = home.pull(&known).unwrap();
    assert_eq!(path, home.pull(&name("")).unwrap());
    assert_eq!(fs::read(path.join("model.safetensors")).unwrap(), bytes(LEN));
    assert!(!path.join("README.md").exists());
    assert_eq!(files_asked(&server), ["config.json", "model.safetensors"]);
}

#[test]
fn a_wrong_digest_is_refused_and_nothing_is_left() {
    let files = || vec![("m.gguf", bytes(LEN))];
    let server = Loopback::start(move |request| match request.path.ends_with("/m.gguf") {
        true => Reply::whole(&bytes(LEN - 1)),
        false => hub(request, &files()),
    });
    let home = Home::new(&server);
    let error = home.pull_whole(&name(":m.gguf")).unwrap_err();
    let (found, expected) = (sha256(&bytes(LEN - 1)), sha256(&bytes(LEN)));
    let partial = home.partial(&name(":m.gguf"));
    let words = format!(
        "{}: the SHA-256 is {found}, but {expected} was expected. The file was removed; \
         pull it again, and if it happens again do not trust the source",
        partial.display()
    );
    assert_eq!(error.to_string(), words);
    assert_eq!(home.files(), [] as [&Path; 0]);
}

#[test]
fn a_beginning_is_gone_on_with_since_the_digest_will_tell() {
    let server = Loopback::start(|request| hub(request, &vec![("m.gguf", bytes(LEN))]));
    let home = Home::new(&server);
    home.begin(&name(":m.gguf"), &bytes(LEN)[..7], "");
    assert_eq!(fs::read(home.pull(&name(":m.gguf")).unwrap()).unwrap(), bytes(LEN));
    assert_eq!(server.take_requests()[1].from(), Some(7));
    let damaged = Home::new(&server);
    damaged.begin(&name(":m.gguf"), b"damaged", "");
    assert!(matches!(damaged.pull(&name(":m.gguf")), Err(PullError::Digest { .. })));
    assert_eq!(damaged.files(), [] as [&Path; 0]);
    assert_eq!(fs::read(damaged.pull(&name(":m.gguf")).unwrap()).unwrap(), bytes(LEN));
}

#[test]
fn parts_are_pulled_together_and_half_of_them_are_no_model() {
    let parts = || vec![("m-00001-of-00002.gguf", bytes(LEN)), ("m-00002-of-00002.gguf", bytes(LEN + 9))];
    let server = Loopback::start(move |request| hub(request, &parts()));
    for name in [name(""), name(":m-00001-of-00002.gguf")] {
        let home = Home::new(&server);
        // Stopped at the first part, which is fetched last.
        let mut watch = Watch { stop_in: Some("m-00001"), ..Watch::default() };
        assert!(matches!(home.pull_watched(&name, &mut watch), Err(PullError::Stopped)));
        assert!(home.models("hub/own/er/m-00002-of-00002.gguf").exists());
        assert_eq!(home.store.find(&name), None);
        files_asked(&server);
        let path = home.pull(&name).unwrap();
        assert_eq!(files_asked(&server), ["m-00001-of-00002.gguf"], "the other part is here");
        assert_eq!(fs::read(&path).unwrap(), bytes(LEN));
        assert_eq!(home.store.find(&name), Some(path));
    }
}

#[test]
fn a_folder_is_there_when_all_of_it_is() {
    let files = || vec![("config.json", b"{}".to_vec()), ("a.safetensors", bytes(LEN)), ("a.py", bytes(9))];
    let server = Loopback::start(move |request| hub(request, &files()));
    let home = Home::new(&server);
    let mut watch = Watch { stop_in: Some("a.safetensors"), ..Watch::default() };
    assert!(matches!(home.pull_watched(&name(""), &mut watch), Err(PullError::Stopped)));
    assert_eq!(home.store.find(&name("")), None, "half a folder is no model");
    let folder = home.pull(&name("")).unwrap();
    assert_eq!(fs::read(folder.join("config.json")).unwrap(), b"{}");
    assert_eq!(fs::read(folder.join("a.safetensors")).unwrap(), bytes(LEN));
    assert!(!folder.join("a.py").exists(), "code is not pulled");
}

#[test]
fn one_file_of_a_repository_is_not_the_repository() {
    let files = || vec![("a.Q4_K_M.gguf", bytes(5)), ("a.Q8_0.gguf", bytes(6))];
    let server = Loopback::start(move |request| hub(request, &files()));
    let home = Home::new(&server);
    home.pull(&name(":a.Q8_0.gguf")).unwrap();
    assert_eq!(home.store.find(&name("")), None);
    assert_eq!(fs::read(home.pull(&name("")).unwrap()).unwrap(), bytes(5));
}

#[test]
fn a_small_file_must_have_the_listed_size() {
    let files = || vec![("config.json", b"{\"a\": 1}".to_vec()), ("a.safetensors", bytes(9))];
    let server = Loopback::start(move |request| match request.path.ends_with("config.json") {
        true => Reply::whole(b"{}"),
        false => hub(request, &files()),
    });
    let home = Home::new(&server);
    let error = home.pull(&name("")).unwrap_err().to_string();
    assert!(
        error.ends_with("2 bytes came, but the hub lists 8. The file was removed; pull it again"),
        "{error}"
    );
    assert_eq!(home.files(), [] as [&Path; 0]);
}

fn private(request: &Request, files: &Files) -> Reply {
    match request.header("authorization") {
        Some(token) if token == format!("Bearer {TOKEN}") => hub(request, files),
        _ => Reply::status(401),
    }
}

#[test]
fn a_private_repository_needs_a_token_and_says_so() {
    let server = Loopback::start(|request| private(request, &vec![("m.gguf", bytes(LEN))]));
    let home = Home::new(&server);
    let error = home.pull(&name(":m.gguf")).unwrap_err().to_string();
    let listing = server.url("/api/models/own/er/tree/main?recursive=true");
    let words = "access was refused: the repository is private, gated or not there. \
                 Set HF_TOKEN to a token that may read it (status 401)";
    assert_eq!(error, format!("{listing}: {words}"));
    let wrong = Home { token: Some("other".into()), ..Home::new(&server) };
    let error = wrong.pull(&name(":m.gguf")).unwrap_err().to_string();
    assert!(error.contains("access was refused to the token in HF_TOKEN: let it read"), "{error}");
    let right = Home { token: Some(TOKEN.into()), ..Home::new(&server) };
    assert_eq!(fs::read(right.pull(&name(":m.gguf")).unwrap()).unwrap(), bytes(LEN));
    let address = ModelName::parse(&server.url("/own/er/resolve/main/m.gguf")).unwrap();
    assert_eq!(fs::read(right.pull(&address).unwrap()).unwrap(), bytes(LEN), "an address of the hub");
}

#[test]
fn the_token_is_for_the_hub_alone() {
    let store = Loopback::start(|request| Reply::file(request, &bytes(LEN), "\"tag\""));
    let elsewhere = store.url("/blob").replace("127.0.0.1", "localhost");
    let server = Loopback::start(move |request| match request.path.ends_with("/m.gguf") {
        true => Reply::redirect(elsewhere.clone()),
        false => private(request, &vec![("m.gguf", bytes(LEN))]),
    });
    let home = Home { token: Some(TOKEN.into()), ..Home::new(&server) };
    assert_eq!(fs::read(home.pull(&name(":m.gguf")).unwrap()).unwrap(), bytes(LEN));
    home.pull(&ModelName::parse(&store.url("/m.gguf")).unwrap()).unwrap();
    let asked = store.take_requests();
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|request| request.header("authorization").is_none()), "{asked:?}");
}

#[test]
fn a_redirect_within_the_hub_keeps_the_token() {
    let server = Loopback::start(|request| match request.path.ends_with("/main/m.gguf") {
        true => Reply::redirect("/own/er/resolve/main/n.gguf".into()),
        false => private(request, &vec![("m.gguf", bytes(LEN)), ("n.gguf", bytes(LEN))]),
    });
    let home = Home { token: Some(TOKEN.into()), ..Home::new(&server) };
    assert_eq!(fs::read(home.pull(&name(":m.gguf")).unwrap()).unwrap(), bytes(LEN));
}

#[test]
fn a_file_that_is_not_there_is_named_with_what_is() {
    let server = Loopback::start(|request| hub(request, &vec![("m.gguf", bytes(5))]));
    let home = Home::new(&server);
    let error = home.pull(&name(":n.gguf")).unwrap_err().to_string();
    assert_eq!(error, "own/er has no model that can be pulled as 'n.gguf'. It holds m.gguf");
    let empty = Loopback::start(|request| hub(request, &vec![("README.md", bytes(5))]));
    let error = Home::new(&empty).pull(&name("")).unwrap_err().to_string();
    let words = "It holds neither GGUF nor safetensors files; try another repository";
    assert_eq!(error, format!("own/er has no model that can be pulled. {words}"));
}

#[test]
fn something_that_is_no_hub_is_named() {
    let server = Loopback::start(|_| Reply::whole(b"<html>"));
    let error = Home::new(&server).pull(&name("")).unwrap_err().to_string();
    assert!(error.contains("the listing cannot be read: "), "{error}");
    assert!(error.ends_with(&format!("Is {} a hub (HF_ENDPOINT)?", server.url(""))), "{error}");
}
