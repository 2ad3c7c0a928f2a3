//! The file of rules: it keeps what was said yes to, and nothing that a repository or a stranger says.

mod support;

use flint_agent::approve::{Book, BookError};
use flint_agent::rules::{Rule, Scope, Word};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};
use support::Place;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn rule(word: &str, until: Option<SystemTime>) -> Rule {
    let argv = vec![Word::Exactly("cargo".into()), Word::Exactly(word.into()), Word::Any];
    Rule { argv, scope: Scope::Project, until, unconfined: true }
}

/// To the second, as the file has it.
fn now() -> SystemTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

#[test]
fn rules_are_kept_for_their_project_until_they_end() {
    let (place, now) = (Place::new(), now());
    let path = place.home.join("data/rules.jsonl");
    let book = Book::new(path.clone());
    let (test, doc) = (rule("test", Some(now + DAY)), rule("doc", None));
    assert_eq!(book.load(&place.work, now).unwrap(), (vec![], vec![]));
    book.save(&place.work, &test, now).unwrap();
    book.save(&place.work, &doc, now).unwrap();
    book.save(&place.outside, &rule("fmt", None), now).unwrap();
    book.save(&place.work, &Rule { scope: Scope::Session, ..rule("run", None) }, now).unwrap();
    assert_eq!(book.load(&place.work, now).unwrap(), (vec![test.clone(), doc.clone()], vec![]));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // By whatever way the folder is reached.
    place.link(&place.work, "link");
    assert_eq!(book.load(&place.work.join("link"), now).unwrap().0.len(), 2);
    assert_eq!(book.load(&place.work, now + DAY).unwrap().0, std::slice::from_ref(&doc));
    // Given anew it holds longer, once.
    let longer = rule("test", Some(now + 2 * DAY));
    book.save(&place.work, &longer, now).unwrap();
    assert_eq!(book.load(&place.work, now).unwrap().0, [doc.clone(), longer.clone()]);
    book.forget(&place.work, &doc, now).unwrap();
    assert_eq!(book.load(&place.work, now).unwrap().0, [longer]);
    // What has ended goes with the next change.
    book.save(&place.work, &doc, now + 3 * DAY).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
}

#[test]
fn lines_that_say_nothing_are_named_and_stay() {
    let (place, now) = (Place::new(), now());
    let path = place.home.join("rules.jsonl");
    let project = place.work.to_str().unwrap();
    let line = |argv: &str, rest: &str| format!("{{\"project\":\"{project}\",\"argv\":{argv},{rest}}}");
    let good = line("[\"make\",\"x\"]", "\"until\":null,\"unconfined\":false");
    let bad = [
        "not json".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        line("[1]", "\"until\":null,\"unconfined\":false"),
        line("[]", "\"until\":null,\"unconfined\":false"),
        line("[null]", "\"until\":null,\"unconfined\":true"),
        line("[\"bash\",null]", "\"until\":null,\"unconfined\":true"),
        line("[\"make\"]", "\"until\":-1,\"unconfined\":false"),
        line("[\"make\"]", "\"until\":18446744073709551615,\"unconfined\":false"),
        line("[\"make\"]", "\"until\":null"),
        line(&format!("[{}\"x\"]", "\"x\",".repeat(100)), "\"until\":null,\"unconfined\":true"),
        "\u{1b}[31m{".to_owned(),
    ];
    fs::write(&path, format!("{}\n\n{good}\n", bad.join("\n"))).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let book = Book::new(path.clone());
    let (rules, faults) = book.load(&place.work, now).unwrap();
    assert_eq!((rules.len(), faults.len()), (1, bad.len()), "{faults:#?}");
    assert!(faults[0].ends_with("rules.jsonl\", line 1: it is not JSON: it is passed over"), "{}", faults[0]);
    assert!(faults[6].contains("the rule would allow nearly everything"));
    book.save(&place.work, &rule("test", None), now).unwrap();
    assert_eq!(book.load(&place.work, now).unwrap().1.len(), bad.len());
}

#[test]
fn strangers_say_nothing() {
    let (place, now) = (Place::new(), now());
    let within = Book::new(place.work.join(".flint/rules.jsonl"));
    assert!(matches!(within.load(&place.work, now), Err(BookError::WithinProject { .. })));
    assert!(matches!(
        within.save(&place.work, &rule("test", None), now),
        Err(BookError::WithinProject { .. })
    ));
    // Nor by a link.
    place.write("rules.jsonl", "");
    let link = place.home.join("link.jsonl");
    std::os::unix::fs::symlink(place.work.join("rules.jsonl"), &link).unwrap();
    assert!(matches!(Book::new(link.clone()).load(&place.work, now), Err(BookError::WithinProject { .. })));
    assert!(matches!(Book::new(link).load(&place.outside, now), Err(BookError::Io { .. })));
    let path = place.home.join("rules.jsonl");
    let book = Book::new(path.clone());
    book.save(&place.work, &rule("test", None), now).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(book.load(&place.work, now), Err(BookError::Writable(_))));
    fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    assert!(matches!(book.load(&place.work, now), Err(BookError::Writable(_))));
    fs::remove_file(&path).unwrap();
    fs::write(&path, " ".repeat(2 << 20)).unwrap();
    assert!(matches!(book.load(&place.work, now), Err(BookError::Full(_))));
    let open = Rule { argv: vec![Word::Exactly("bash".into()), Word::Any], ..rule("x", None) };
    assert!(matches!(book.save(&place.work, &open, now), Err(BookError::Open(_))));
}

#[test]
fn two_who_write_lose_nothing() {
    let (place, now) = (Place::new(), now());
    let book = Book::new(place.home.join("rules.jsonl"));
    std::thread::scope(|scope| {
        for name in 0..8 {
            let (book, place) = (&book, &place);
            scope.spawn(move || book.save(&place.work, &rule(&format!("part-{name}"), None), now).unwrap());
        }
    });
    assert_eq!(book.load(&place.work, now).unwrap().0.len(), 8);
}
