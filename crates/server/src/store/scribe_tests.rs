//! The store's thread and its readers, over a store that fails when told to.

use super::queue::{Entry, Queue, Then};
use super::scribe::Scribe;
use super::{Append, Ending, Kept, Progress, Record, Store, StoreError, Write};
use crate::limits::RING_BYTES_MAX;
use crate::log::{Frame, Read};
use crate::registry::Registry;
use crate::turn::Running;
use bytes::Bytes;
use flint_engine::message::Tenant;
use flint_wire::Status;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Keeps everything in memory; refuses what names one of `broken`.
#[derive(Debug, Default)]
struct Shelf {
    written: Mutex<Vec<Write>>,
    broken: Mutex<Vec<&'static str>>,
}

impl Shelf {
    fn written(&self) -> Vec<Write> {
        self.written.lock().unwrap().clone()
    }

    fn refuse(&self, ids: &[&'static str]) {
        *self.broken.lock().unwrap() = ids.to_vec();
    }
}

fn id(write: &Write) -> &str {
    match write {
        Write::Begin(record) => &record.id,
        Write::Append(append) => &append.id,
        Write::Delete { id } => id,
    }
}

impl Store for Shelf {
    fn write(&self, writes: &[&Write]) -> Result<(), StoreError> {
        let broken = self.broken.lock().unwrap();
        if writes.iter().any(|write| broken.contains(&id(write))) {
            return Err(StoreError::Full("test".into()));
        }
        self.written.lock().unwrap().extend(writes.iter().map(|write| (*write).clone()));
        Ok(())
    }

    fn trim(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn kept(&self, _: &str, _: Tenant) -> Result<Option<Kept>, StoreError> {
        Ok(None)
    }

    fn events(&self, wanted: &str, from: u64) -> Result<Vec<Frame>, StoreError> {
        let frames =
            self.written().into_iter().filter(|write| id(write) == wanted).flat_map(|write| match write {
                Write::Append(append) => append.frames,
                Write::Begin(_) | Write::Delete { .. } => Vec::new(),
            });
        Ok(frames.filter(|frame| frame.number >= from).take(3).collect())
    }

    fn unfinished(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    fn record(&self, _: &str) -> Result<Option<(Record, Progress)>, StoreError> {
        Ok(None)
    }
}

struct Bench {
    shelf: Arc<Shelf>,
    registry: Arc<Registry>,
    scribe: Scribe,
}

impl Bench {
    fn new() -> Bench {
        let (shelf, registry) = (Arc::new(Shelf::default()), Arc::new(Registry::default()));
        let scribe = Scribe::new(shelf.clone(), Arc::new(Queue::default()), registry.clone());
        Bench { shelf, registry, scribe }
    }

    fn response(&self, id: &str) -> Arc<Running> {
        let (running, _) = Running::again(id.into(), Tenant(1), self.shelf.clone(), 0);
        self.registry.started(&running);
        running
    }

    fn runs(&self, id: &str) -> bool {
        self.registry.find(id, Tenant(1)).is_some()
    }
}

fn frame(number: u64, last: bool) -> Frame {
    let json = format!("{{\"type\":\"x\",\"response\":{{\"metadata\":{{}}}},\"sequence_number\":{number}}}");
    Frame { number, json: Bytes::from(json), last, token_at: None }
}

fn append(running: &Arc<Running>, frame: Frame) -> Entry {
    let ending = frame.last.then(|| Ending { status: Status::Completed, response: "{}".into() });
    let append = Append { id: running.id.clone(), frames: vec![frame], tape: Vec::new(), ending };
    Entry { write: Write::Append(append), then: Then::Publish(running.clone()) }
}

fn begin(id: &str) -> (Entry, oneshot::Receiver<Result<(), StoreError>>) {
    let record = Record {
        id: id.into(),
        tenant: Tenant(1),
        model: String::new(),
        weights: String::new(),
        created_at: 0,
        seed: 0,
        previous: None,
        history: None,
        input: String::new(),
        request: String::new(),
        prompt: Vec::new(),
        response: String::new(),
    };
    let (answer, receiver) = oneshot::channel();
    (Entry { write: Write::Begin(Box::new(record)), then: Then::Answer(answer) }, receiver)
}

async fn read_all(running: &Running) -> Vec<String> {
    let mut reader = running.log.read(0);
    let mut read = Vec::new();
    while let Read::Frame(frame) = reader.next().await {
        read.push(String::from_utf8(frame.json.to_vec()).unwrap());
    }
    read
}

#[tokio::test]
async fn events_are_told_once_they_are_stored() {
    let mut bench = Bench::new();
    let running = bench.response("a");
    bench.scribe.round(vec![append(&running, frame(0, false)), append(&running, frame(1, true))]);
    assert_eq!(bench.shelf.written().len(), 2);
    assert_eq!(read_all(&running).await.len(), 2);
    assert!(!bench.runs("a"), "the store has the whole response");
}

#[tokio::test]
async fn a_response_that_cannot_be_stored_is_refused_and_harms_no_other() {
    let mut bench = Bench::new();
    bench.shelf.refuse(&["full"]);
    let ((full, refused), (good, taken)) = (begin("full"), begin("good"));
    bench.scribe.round(vec![full, good]);
    assert_eq!(refused.await.unwrap(), Err(StoreError::Full("test".into())));
    assert_eq!(taken.await.unwrap(), Ok(()));
    assert_eq!(bench.shelf.written().iter().map(id).collect::<Vec<_>>(), ["good"]);
}

#[tokio::test]
async fn a_running_response_goes_on_without_the_store_and_says_so() {
    let mut bench = Bench::new();
    let (running, other) = (bench.response("a"), bench.response("b"));
    bench.scribe.round(vec![append(&running, frame(0, false))]);
    bench.shelf.refuse(&["a"]);
    bench.scribe.round(vec![append(&running, frame(1, false)), append(&other, frame(0, true))]);
    bench.shelf.refuse(&[]);
    // The store works again, but what it has of this response has a hole: nothing is added to it.
    bench.scribe.round(vec![append(&running, frame(2, true))]);
    let read = read_all(&running).await;
    assert_eq!(read.len(), 3, "its readers miss nothing");
    assert!(read[2].contains("\"flint.stored\":\"no: there is no room left: test\""), "{}", read[2]);
    assert!(!read[1].contains("flint.stored") && !read_all(&other).await[0].contains("flint.stored"));
    let (_good, _) = begin("c");
    bench.scribe.round(vec![_good]);
    let written = bench.shelf.written();
    let of_a: Vec<&Write> = written.iter().filter(|write| id(write) == "a").collect();
    assert!(matches!(of_a[..], [Write::Append(_), Write::Delete { .. }]), "{of_a:?}");
}

#[tokio::test]
async fn a_slow_reader_of_a_stored_response_loses_nothing() {
    let mut bench = Bench::new();
    let running = bench.response("a");
    let mut tail = running.read(0);
    let large = "x".repeat(RING_BYTES_MAX / 4);
    for number in 0..20 {
        let json = Bytes::from(format!("{number} {large}"));
        bench
            .scribe
            .round(vec![append(&running, Frame { number, json, last: number == 19, token_at: None })]);
    }
    let mut numbers = Vec::new();
    while numbers.last() != Some(&19) {
        let Read::Frame(frame) = tail.next().await else { panic!("lost after {numbers:?}") };
        numbers.push(frame.number);
    }
    assert_eq!(numbers, (0..20).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_reader_who_comes_after_a_restart_gets_what_was_before_at_once() {
    let mut bench = Bench::new();
    let before = bench.response("a");
    bench.scribe.round((0..5).map(|number| append(&before, frame(number, false))).collect());
    let (running, _) = Running::again("a".into(), Tenant(1), bench.shelf.clone(), 5);
    let mut tail = running.read(3);
    assert_eq!(tail.next().await, Read::Frame(frame(3, false)));
    assert_eq!(tail.next().await, Read::Frame(frame(4, false)));
    bench.scribe.round(vec![append(&running, frame(5, true))]);
    assert_eq!(tail.next().await, Read::Frame(frame(5, true)));
    assert_eq!(tail.next().await, Read::End);
}
