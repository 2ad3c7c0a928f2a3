//! Frames of the link: what is understood can be said again, and comes whole however it is cut.

use flint_engine::link::{FrameReader, LinkError, decode_frame, encode_frame};
use flint_engine::message::{Command, Event};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read};

/// The first byte says how the rest is cut into reads.
pub fn link(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let cut = 16 + usize::from(cut);
    check::<Command>(bytes, cut);
    check::<Vec<Event>>(bytes, cut);
}

fn check<T: Serialize + DeserializeOwned>(bytes: &[u8], cut: usize) {
    let whole = frames_at_once::<T>(bytes);
    let read = frames_by_reads::<T>(bytes, cut);
    assert_eq!(whole, read, "other messages when they come {cut} bytes at a time");
    whole.iter().for_each(|frame| check_frame::<T>(frame));
}

/// A frame that this side wrote means the same to the other. Compared as bytes: a NaN equals nothing.
fn check_frame<T: Serialize + DeserializeOwned>(frame: &[u8]) {
    let (message, len) = decode_frame::<T>(frame).unwrap().expect("a whole frame");
    assert_eq!(len, frame.len());
    assert_eq!(encoded(&message), frame);
    assert!(matches!(decode_frame::<T>(&frame[..len - 1]), Ok(None)), "a frame that is cut was understood");
}

fn encoded<T: Serialize>(message: &T) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_frame(message, &mut frame).unwrap();
    frame
}

/// Every message up to the first that is not one, encoded again.
fn frames_at_once<T: Serialize + DeserializeOwned>(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Ok(Some((message, len))) = decode_frame::<T>(bytes) {
        let frame = encoded(&message);
        assert!(frame.len() <= len, "{} bytes for what came in {len}", frame.len());
        frames.push(frame);
        bytes = &bytes[len..];
    }
    frames
}

fn frames_by_reads<T: Serialize + DeserializeOwned>(bytes: &[u8], cut: usize) -> Vec<Vec<u8>> {
    let mut reader = FrameReader::new(Cut { bytes, cut, late: false });
    let mut frames = Vec::new();
    loop {
        match reader.read::<T>() {
            Ok(Some(message)) => frames.push(encoded(&message)),
            Err(LinkError::TimedOut) => {}
            Ok(None) | Err(_) => return frames,
        }
    }
}

/// Gives `cut` bytes at a time, each after a time-out.
struct Cut<'a> {
    bytes: &'a [u8],
    cut: usize,
    late: bool,
}

impl Read for Cut<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.late = !self.late;
        let len = self.cut.min(into.len());
        if self.late { Err(io::ErrorKind::TimedOut.into()) } else { self.bytes.read(&mut into[..len]) }
    }
}
