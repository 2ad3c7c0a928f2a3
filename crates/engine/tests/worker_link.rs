//! The worker's end of the link, byte by byte.

mod common;

use common::{options, request, tokens_of};
use flint_engine::device::scripted::{Script, Scripted};
use flint_engine::link::{FrameReader, encode_frame};
use flint_engine::message::{Base, Command, Event};
use flint_engine::step::Engine;
use flint_engine::worker::{self, WorkerError};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

struct Client {
    stream: UnixStream,
    reader: FrameReader<UnixStream>,
    worker: JoinHandle<Result<(), WorkerError>>,
}

impl Client {
    fn new() -> Client {
        let (stream, theirs) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let reader = FrameReader::new(stream.try_clone().unwrap());
        let script = Script::Cycle(vec![10, 20, 30]);
        let make = || Ok(Engine::new(Box::new(Scripted::new(options(script))?)));
        let worker = thread::spawn(move || worker::run(theirs, make));
        let mut client = Client { stream, reader, worker };
        assert!(matches!(client.read()[..], [Event::Ready(_)]));
        client
    }

    fn read(&mut self) -> Vec<Event> {
        self.reader.read().unwrap().expect("the worker is there")
    }

    fn send(&mut self, commands: &[Command]) {
        let mut frames = Vec::new();
        commands.iter().for_each(|command| encode_frame(command, &mut frames).unwrap());
        self.stream.write_all(&frames).unwrap();
    }
}

#[test]
fn a_generation_runs_over_the_link_and_a_step_is_one_frame() {
    let mut client = Client::new();
    let generate = |id| Command::Generate(request(id, Base::New, &[10], 4));
    client.send(&[generate(1), generate(2)]);
    let mut events = Vec::new();
    while events.iter().filter(|event| matches!(event, Event::Finished { .. })).count() < 2 {
        let frame = client.read();
        assert!(tokens_of(&frame, 1).len() <= 1, "one frame tells one step: {frame:?}");
        events.extend(frame);
    }
    assert_eq!(tokens_of(&events, 1), [20, 30, 10, 20]);
    assert_eq!(tokens_of(&events, 2), [20, 30, 10, 20]);
    client.send(&[Command::Shutdown]);
    client.worker.join().unwrap().unwrap();
}

#[test]
fn a_long_prompt_shows_signs_of_life() {
    let mut client = Client::new();
    client.send(&[Command::Generate(request(1, Base::New, &[10; 1500], 1))]);
    assert!(matches!(client.read()[..], [Event::Started { .. }]));
    assert!(matches!(client.read()[..], [Event::Alive]));
    assert!(matches!(client.read()[..], [Event::Token { .. }, Event::Finished { .. }]));
}

#[test]
fn a_closed_link_ends_the_worker_even_in_mid_generation() {
    let mut client = Client::new();
    client.send(&[Command::Generate(request(1, Base::New, &[10], 2000))]);
    client.read();
    client.stream.shutdown(Shutdown::Write).unwrap();
    while client.reader.read::<Vec<Event>>().unwrap().is_some() {}
    client.worker.join().unwrap().unwrap();
}

#[test]
fn a_bad_frame_ends_the_worker_with_clear_last_words() {
    let mut client = Client::new();
    client.stream.write_all(&[3, 0, 0, 0, 99, 99, 99]).unwrap();
    let [Event::Fatal { message }] = &client.read()[..] else { panic!("expected last words") };
    assert!(message.starts_with("a frame on the link is not a message"), "{message}");
    assert!(client.worker.join().unwrap().is_err());
}
