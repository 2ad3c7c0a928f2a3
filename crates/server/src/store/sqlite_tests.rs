//! The store on a real file.

use super::{Append, Ending, Kept, Progress, Record, Sqlite, Store, StoreError, Write};
use crate::database::{self, DatabaseError};
use crate::log::Frame;
use bytes::Bytes;
use flint_engine::message::Tenant;
use flint_wire::Status;
use std::path::PathBuf;
use tempfile::TempDir;

const MINE: Tenant = Tenant(1);
const MIB: u64 = 1 << 20;

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: TempDir::new().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("flint.db")
    }

    fn open(&self, bytes_max: u64) -> Sqlite {
        Sqlite::open(&self.path(), bytes_max).unwrap()
    }

    fn bytes(&self) -> u64 {
        std::fs::metadata(self.path()).unwrap().len()
    }
}

fn record(id: &str) -> Record {
    Record {
        id: id.into(),
        tenant: MINE,
        model: "m".into(),
        weights: "w".into(),
        created_at: 5,
        seed: u64::MAX,
        previous: Some("resp_0".into()),
        history: None,
        input: "[1]".into(),
        request: "{}".into(),
        prompt: vec![1, 2, u32::MAX],
        response: "{\"status\":\"in_progress\"}".into(),
    }
}

fn begin(id: &str) -> Write {
    Write::Begin(Box::new(record(id)))
}

fn frame(number: u64, json: &str, last: bool) -> Frame {
    Frame { number, json: Bytes::copy_from_slice(json.as_bytes()), last, token_at: None }
}

fn append(id: &str, frames: Vec<Frame>, tape: &[u8]) -> Write {
    let last = frames.last().is_some_and(|frame| frame.last);
    let ending = last.then(|| Ending { status: Status::Completed, response: "{\"done\":1}".into() });
    Write::Append(Append { id: id.into(), frames, tape: tape.to_vec(), ending })
}

fn write(store: &Sqlite, writes: &[Write]) -> Result<(), StoreError> {
    store.write(&writes.iter().collect::<Vec<_>>())
}

/// A finished response with an event of this size.
fn finished(store: &Sqlite, id: &str, bytes: usize) -> Result<(), StoreError> {
    write(store, &[begin(id), append(id, vec![frame(0, &"x".repeat(bytes), true)], b"")])
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let place = Place::new();
    let frames = vec![frame(0, "a", false), frame(1, "b", false)];
    let writes = [begin("resp_1"), append("resp_1", frames.clone(), b"12"), append("resp_1", vec![], b"")];
    let store = place.open(MIB);
    write(&store, &writes).unwrap();
    write(&store, &[append("resp_1", vec![frame(2, "c", false)], b"34")]).unwrap();
    // As a killed process leaves it: nothing is closed.
    std::mem::forget(store);
    let store = place.open(MIB);
    assert_eq!(store.unfinished().unwrap(), ["resp_1"]);
    let progress = Progress { next: 3, tape: b"1234".to_vec() };
    assert_eq!(store.record("resp_1").unwrap(), Some((record("resp_1"), progress)));
    assert_eq!(store.events("resp_1", 0).unwrap()[..2], frames);
    assert_eq!(store.events("resp_1", 2).unwrap(), [frame(2, "c", false)]);
    assert_eq!(store.events("resp_1", 3).unwrap(), []);
}

#[test]
fn the_end_of_a_response_is_kept() {
    let store = Place::new().open(MIB);
    finished(&store, "resp_1", 1).unwrap();
    assert_eq!(store.unfinished().unwrap(), [""; 0]);
    let kept = Kept {
        status: Status::Completed,
        previous: Some("resp_0".into()),
        history: None,
        input: "[1]".into(),
        response: "{\"done\":1}".into(),
    };
    assert_eq!(store.kept("resp_1", MINE).unwrap(), Some(kept));
    assert!(store.events("resp_1", 0).unwrap()[0].last);
}

#[test]
fn another_tenant_finds_nothing() {
    let store = Place::new().open(MIB);
    finished(&store, "resp_1", 1).unwrap();
    assert_eq!(store.kept("resp_1", Tenant(2)).unwrap(), None);
}

#[test]
fn a_transaction_is_written_whole_or_not_at_all() {
    let store = Place::new().open(MIB);
    write(&store, &[begin("resp_1"), append("resp_1", vec![frame(0, "a", false)], b"1")]).unwrap();
    let twice = append("resp_1", vec![frame(1, "b", false), frame(0, "again", false)], b"2");
    assert!(matches!(write(&store, &[begin("resp_2"), twice]), Err(StoreError::Failed(_))));
    assert_eq!(store.events("resp_1", 0).unwrap(), [frame(0, "a", false)]);
    assert_eq!(store.kept("resp_2", MINE).unwrap(), None);
}

#[test]
fn a_deleted_response_is_gone_with_its_events() {
    let store = Place::new().open(MIB);
    finished(&store, "resp_1", 1).unwrap();
    write(&store, &[Write::Delete { id: "resp_1".into() }]).unwrap();
    assert_eq!(store.kept("resp_1", MINE).unwrap(), None);
    assert_eq!(store.events("resp_1", 0).unwrap(), []);
    // What is still on its way to it has no place and does no harm.
    write(&store, &[append("resp_1", vec![frame(1, "b", false)], b"")]).unwrap();
}

#[test]
fn above_its_size_the_oldest_finished_responses_go() {
    let place = Place::new();
    let store = place.open(MIB);
    write(&store, &[begin("resp_running")]).unwrap();
    for number in 0..40 {
        finished(&store, &format!("resp_{number}"), 64 << 10).unwrap();
        store.trim().unwrap();
    }
    let kept = |id: &str| store.kept(id, MINE).unwrap().is_some();
    assert!(kept("resp_running"), "what runs is older and stays");
    assert!(kept("resp_39") && kept("resp_35") && !kept("resp_0") && !kept("resp_20"));
    let first = (0..40).find(|number| kept(&format!("resp_{number}"))).unwrap();
    assert!((first..40).all(|number| kept(&format!("resp_{number}"))), "the oldest go first");
    assert!(place.bytes() <= MIB + MIB / 4, "{} bytes", place.bytes());
}

#[test]
fn the_file_shrinks_when_its_size_is_lowered() {
    let place = Place::new();
    let store = place.open(8 * MIB);
    (0..60).for_each(|number| finished(&store, &format!("resp_{number}"), 64 << 10).unwrap());
    drop(store);
    let before = place.bytes();
    place.open(MIB).trim().unwrap();
    assert!(before > 3 * MIB && place.bytes() <= MIB, "{before} bytes, then {}", place.bytes());
}

#[test]
fn a_full_store_says_so_and_can_still_be_read() {
    let store = Place::new().open(256 << 10);
    write(&store, &[begin("resp_1")]).unwrap();
    let large = append("resp_1", vec![frame(0, &"x".repeat(1 << 20), false)], b"");
    let error = write(&store, &[large]).unwrap_err();
    assert_eq!(error, StoreError::Full("database or disk is full".into()));
    let refusal = error.refusal();
    assert_eq!((refusal.status, refusal.code), (503, "store_unavailable"));
    assert_eq!(
        refusal.message,
        "the response cannot be stored: there is no room left: database or disk is full. Send \"store\": false, \
         or try again when this is mended"
    );
    assert!(store.kept("resp_1", MINE).unwrap().is_some());
    write(&store, &[append("resp_1", vec![frame(0, "small", false)], b"")]).unwrap();
}

#[test]
fn long_responses_are_read_in_pages() {
    let store = Place::new().open(64 * MIB);
    let frames: Vec<Frame> = (0..20).map(|number| frame(number, &"x".repeat(50_000), false)).collect();
    write(&store, &[begin("resp_1"), append("resp_1", frames, b"")]).unwrap();
    let mut numbers = Vec::new();
    loop {
        let page = store.events("resp_1", numbers.len() as u64).unwrap();
        assert!(page.len() < 8);
        match page.is_empty() {
            true => break,
            false => numbers.extend(page.iter().map(|frame| frame.number)),
        }
    }
    assert_eq!(numbers, (0..20).collect::<Vec<u64>>());
}

#[test]
fn an_empty_file_is_brought_up_to_date() {
    let place = Place::new();
    std::fs::write(place.path(), b"").unwrap();
    finished(&place.open(MIB), "resp_1", 1).unwrap();
    let version: i64 = database::open(&place.path())
        .unwrap()
        .query_row("pragma user_version", [], |row| row.get(0))
        .unwrap();
    assert!(version >= 1);
}

#[test]
fn a_file_of_an_older_flint_keeps_what_is_in_it() {
    let place = Place::new();
    let older = rusqlite::Connection::open(place.path()).unwrap();
    older.execute_batch(include_str!("../migrations/1_responses.sql")).unwrap();
    let insert = "insert into responses values (7, 'resp_old', 1, 'completed', 'm', 'w', 5, 0, null, null, '[1]', \
        '{\"old\":1}', '{}', x'01000000')";
    older.execute_batch(insert).unwrap();
    older.pragma_update(None, "user_version", 1).unwrap();
    drop(older);
    let store = place.open(MIB);
    assert_eq!(store.kept("resp_old", MINE).unwrap().unwrap().response, "{\"old\":1}");
    finished(&store, "resp_new", 1).unwrap();
    drop(store);
    // What came with later versions is there, and nothing is done twice.
    let today = database::open(&place.path()).unwrap();
    let count = |table: &str| -> i64 {
        today.query_row(&format!("select count(*) from {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("responses"), count("keys"), count("usage")), (2, 0, 0));
}

#[test]
fn a_file_of_a_newer_flint_is_left_alone() {
    let place = Place::new();
    drop(place.open(MIB));
    let newer = rusqlite::Connection::open(place.path()).unwrap();
    newer.pragma_update(None, "user_version", 999).unwrap();
    let error = Sqlite::open(&place.path(), MIB).unwrap_err();
    assert!(matches!(error, DatabaseError::Newer { found: 999, .. }));
    assert!(error.to_string().ends_with("update Flint"), "{error}");
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let place = Place::new();
    std::fs::write(place.path(), "no database, but long enough to be looked at ".repeat(100)).unwrap();
    assert!(matches!(Sqlite::open(&place.path(), MIB), Err(DatabaseError::Sqlite { .. })));
}
