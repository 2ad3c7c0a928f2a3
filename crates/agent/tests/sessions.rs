//! Sessions survive whatever ends the process that writes them.

use flint_agent::sessions::{SessionError, Sessions};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

fn records(count: usize) -> Vec<Value> {
    (0..count)
        .map(|number| json!({"number": number, "text": "zwölf Boxkämpfer\njagen ".repeat(number % 3)}))
        .collect()
}

#[test]
fn what_was_added_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(&folder.path().join("new")).unwrap();
    let all = records(5);
    let mut session = sessions.create("0199a213-81c0").unwrap();
    session.append(&all[0]).unwrap();
    session.append_all(&all[1..3]).unwrap();
    drop(session);
    let (mut session, found) = sessions.resume("0199a213-81c0").unwrap();
    assert_eq!(found, all[..3]);
    session.append_all(&all[3..]).unwrap();
    drop(session);
    assert_eq!(sessions.resume("0199a213-81c0").unwrap().1, all);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let path = folder.path().join("new");
    assert_eq!((mode(&path), mode(&path.join("0199a213-81c0.jsonl"))), (0o700, 0o600));
}

#[test]
fn what_the_disk_has_not_yet_survives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(folder.path()).unwrap();
    let all = records(4);
    let mut session = sessions.create("a").unwrap();
    session.write(&all[..2]).unwrap();
    // Whoever looks now, or after this process has gone, sees it.
    assert_eq!(sessions.look("a").unwrap(), all[..2]);
    session.sync().unwrap();
    session.write(&all[2..3]).unwrap();
    session.append(&all[3]).unwrap();
    assert_eq!(sessions.look("a").unwrap(), all);
}

#[test]
fn a_crash_at_any_byte_costs_the_unfinished_record_alone() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(folder.path()).unwrap();
    let all = records(4);
    let mut ends = vec![0];
    let path = folder.path().join("a.jsonl");
    let mut session = sessions.create("a").unwrap();
    for record in &all {
        session.append(record).unwrap();
        ends.push(fs::metadata(&path).unwrap().len() as usize);
    }
    drop(session);
    let bytes = fs::read(&path).unwrap();
    for cut in 0..=bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let whole = ends.iter().rposition(|end| *end <= cut).unwrap();
        let (mut session, found) = sessions.resume("a").unwrap();
        assert_eq!(found, all[..whole], "cut at {cut}");
        session.append(&json!("after")).unwrap();
        drop(session);
        let found = sessions.resume("a").unwrap().1;
        assert_eq!((found.len(), found.last()), (whole + 1, Some(&json!("after"))));
    }
}

#[test]
fn damage_in_the_middle_is_told_and_nothing_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(folder.path()).unwrap();
    sessions.create("a").unwrap().append_all(&records(3)).unwrap();
    let path = folder.path().join("a.jsonl");
    let mut bytes = fs::read(&path).unwrap();
    let second = 2 + bytes.iter().position(|byte| *byte == b'\n').unwrap();
    bytes[second] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = sessions.resume("a").unwrap_err().to_string();
    assert_eq!(error, "session a: line 2 is damaged; 1 records before it are whole");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn one_process_at_a_time_has_a_session() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(folder.path()).unwrap();
    let mut session = sessions.create("a").unwrap();
    session.append_all(&records(3)).unwrap();
    assert!(matches!(sessions.resume("a"), Err(SessionError::Busy(_))));
    assert!(matches!(sessions.create("a"), Err(SessionError::Exists(_))));
    // But it can be forked.
    let (fork, found) = sessions.fork("a", 2, "b").unwrap();
    assert_eq!((found.as_slice(), fork.id.as_str()), (&records(2)[..], "b"));
    drop((session, fork));
    assert_eq!(sessions.resume("b").unwrap().1, records(2));
    let mut ids: Vec<String> = sessions.list().unwrap().into_iter().map(|listed| listed.id).collect();
    ids.sort();
    assert_eq!(ids, ["a", "b"]);
}

#[test]
fn the_oldest_go_where_there_is_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(folder.path()).unwrap();
    let mut kept_open = None;
    for (age_s, id) in [(50, "open"), (40, "old"), (30, "older-than-new"), (20, "new")] {
        let mut session = sessions.create(id).unwrap();
        session.append(&json!({"text": "x".repeat(1_000)})).unwrap();
        let file =
            std::fs::File::options().append(true).open(folder.path().join(format!("{id}.jsonl"))).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).unwrap();
        kept_open.get_or_insert(session);
    }
    assert_eq!(sessions.keep_within(1 << 20).unwrap(), [""; 0]);
    assert_eq!(sessions.keep_within(3_500).unwrap(), ["old"]);
    // The one that is open stays, however old it is.
    assert_eq!(sessions.keep_within(0).unwrap(), ["older-than-new", "new"]);
    drop(kept_open);
    assert_eq!(sessions.keep_within(0).unwrap(), ["open"]);
}

#[test]
fn names_and_sizes_have_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = Sessions::open(folder.path()).unwrap();
    for id in ["", "../a", "a/b", "a.b", "a\u{1b}", &"a".repeat(65)] {
        assert!(matches!(sessions.create(id), Err(SessionError::BadId(_))), "{id:?}");
    }
    assert!(matches!(sessions.resume("none"), Err(SessionError::Unknown(_))));
    let mut session = sessions.create("a").unwrap();
    assert!(matches!(session.append(&json!("x".repeat(17 << 20))), Err(SessionError::Large(_))));
    session.append(&json!(1)).unwrap();
    drop(session);
    // A stranger's file is not a session, however it ends.
    OpenOptions::new()
        .append(true)
        .open(folder.path().join("a.jsonl"))
        .unwrap()
        .write_all(b"\xff\xfe\n{}\n")
        .unwrap();
    assert!(matches!(sessions.resume("a"), Err(SessionError::Damaged { line: 2, kept: 1, .. })));
}
