//! Frames between the supervisor and its worker: a length (4 bytes, little endian), then a postcard message.
//!
//! One frame carries one `Command`, or all the `Event`s of one step: what a step did is told whole or not at
//! all, so a worker that dies never leaves half a step behind.

use crate::limits::LINK_FRAME_BYTES_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

const PREFIX_BYTES: usize = 4;
const READ_BYTES: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("a frame of {bytes} bytes is on the link, at most {LINK_FRAME_BYTES_MAX} are allowed")]
    TooLarge { bytes: usize },
    #[error("a frame on the link is not a message: {0}")]
    Malformed(postcard::Error),
    #[error("a frame on the link has {0} bytes after its message")]
    Trailing(usize),
    #[error("the link ended within a frame")]
    Truncated,
    #[error("nothing came over the link in time")]
    TimedOut,
    #[error("the link broke: {0}")]
    Io(#[from] io::Error),
}

/// Appends the frame of one message.
pub fn encode_frame<T: Serialize + ?Sized>(message: &T, frames: &mut Vec<u8>) -> Result<(), LinkError> {
    let start = frames.len();
    frames.extend([0; PREFIX_BYTES]);
    postcard::to_io(message, &mut *frames).map_err(LinkError::Malformed)?;
    let bytes = frames.len() - start - PREFIX_BYTES;
    if bytes > LINK_FRAME_BYTES_MAX {
        frames.truncate(start);
        return Err(LinkError::TooLarge { bytes });
    }
    frames[start..start + PREFIX_BYTES].copy_from_slice(&(bytes as u32).to_le_bytes());
    Ok(())
}

/// The message at the beginning of `bytes` and the length of its frame; none when more bytes are needed.
pub fn decode_frame<T: DeserializeOwned>(bytes: &[u8]) -> Result<Option<(T, usize)>, LinkError> {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let len = u32::from_le_bytes(*prefix) as usize;
    if len > LINK_FRAME_BYTES_MAX {
        return Err(LinkError::TooLarge { bytes: len });
    }
    let Some(frame) = rest.get(..len) else { return Ok(None) };
    match postcard::take_from_bytes(frame).map_err(LinkError::Malformed)? {
        (message, []) => Ok(Some((message, PREFIX_BYTES + len))),
        (_, trailing) => Err(LinkError::Trailing(trailing.len())),
    }
}

/// Reads messages; a time-out of the source in the middle of a frame loses nothing.
pub struct FrameReader<S> {
    source: S,
    buffer: Vec<u8>, // what lies outside of the range below has no meaning
    start: usize,    // of what is not decoded yet
    end: usize,
}

impl<S: Read> FrameReader<S> {
    pub fn new(source: S) -> FrameReader<S> {
        FrameReader { source, buffer: Vec::new(), start: 0, end: 0 }
    }

    pub fn source(&self) -> &S {
        &self.source
    }

    /// The next message; none when the other side has closed the link.
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<Option<T>, LinkError> {
        loop {
            if let Some((message, len)) = decode_frame(&self.buffer[self.start..self.end])? {
                self.start += len;
                return Ok(Some(message));
            }
            self.make_room();
            if self.fill()? == 0 {
                return if self.end == 0 { Ok(None) } else { Err(LinkError::Truncated) };
            }
        }
    }

    /// For a read's worth after what is not decoded yet. A buffer that is long enough is not cleared again: that would take
    /// longer than the reading.
    fn make_room(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() < self.end + READ_BYTES {
            self.buffer.resize(self.end + READ_BYTES, 0);
        }
    }

    fn fill(&mut self) -> Result<usize, LinkError> {
        let read = loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.end += *read.as_ref().unwrap_or(&0);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => LinkError::TimedOut,
            io::ErrorKind::ConnectionReset => LinkError::Truncated,
            _ => LinkError::Io(error),
        })
    }
}

/// Writes messages, any number of them at a time with one write.
pub struct FrameWriter<S> {
    sink: S,
    buffer: Vec<u8>,
}

impl<S: Write> FrameWriter<S> {
    pub fn new(sink: S) -> FrameWriter<S> {
        FrameWriter { sink, buffer: Vec::new() }
    }

    pub fn write<T: Serialize>(&mut self, messages: impl IntoIterator<Item = T>) -> Result<(), LinkError> {
        self.buffer.clear();
        messages.into_iter().try_for_each(|message| encode_frame(&message, &mut self.buffer))?;
        Ok(self.sink.write_all(&self.buffer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Command, Event, SequenceId};

    fn events() -> Vec<Event> {
        let token = |token| Event::Token { sequence: SequenceId(7), token, logprob: Some(-0.5), top: vec![] };
        vec![Event::Alive, token(1), token(u32::MAX)]
    }

    /// Gives one byte at a time and then, once, a time-out.
    struct Trickle<'a>(&'a [u8], bool);

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            match self.1 {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => self.0.read(&mut into[..1]),
            }
        }
    }

    #[test]
    fn messages_survive_a_slow_and_interrupted_link() {
        let mut frames = Vec::new();
        encode_frame(&events(), &mut frames).unwrap();
        encode_frame(&events()[..1], &mut frames).unwrap();
        let mut reader = FrameReader::new(Trickle(&frames, false));
        let mut read = Vec::new();
        loop {
            match reader.read::<Vec<Event>>() {
                Ok(Some(events)) => read.push(events),
                Ok(None) => break,
                Err(LinkError::TimedOut) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(read, [events(), vec![Event::Alive]]);
    }

    #[test]
    fn bad_frames_are_clear_errors() {
        let decode = |bytes: &[u8]| decode_frame::<Command>(bytes).map(|found| found.is_some());
        let error = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
        assert!(!decode(&[]).unwrap());
        assert!(!decode(&[5, 0, 0, 0, 1]).unwrap());
        let words = "a frame of 4294967295 bytes is on the link, at most 16777216 are allowed";
        assert_eq!(error(&[255; 9]), words);
        assert!(error(&[1, 0, 0, 0, 99]).starts_with("a frame on the link is not a message"));
        assert!(error(&[0, 0, 0, 0]).starts_with("a frame on the link is not a message"));
        let mut frame = Vec::new();
        encode_frame(&Command::Stats, &mut frame).unwrap();
        frame[0] += 2;
        frame.extend([0, 0]);
        assert_eq!(error(&frame), "a frame on the link has 2 bytes after its message");
    }

    #[test]
    fn a_cut_frame_is_told_apart_from_a_closed_link() {
        let mut frames = Vec::new();
        encode_frame(&events(), &mut frames).unwrap();
        let cut = FrameReader::new(&frames[..frames.len() - 1]).read::<Vec<Event>>();
        assert!(matches!(cut, Err(LinkError::Truncated)));
        assert!(matches!(FrameReader::new(&[][..]).read::<Vec<Event>>(), Ok(None)));
    }

    #[test]
    fn a_lying_count_costs_no_memory() {
        // A list of events that claims 2^32 - 1 entries and has none.
        let frame = [5, 0, 0, 0, 255, 255, 255, 255, 15];
        assert!(matches!(decode_frame::<Vec<Event>>(&frame), Err(LinkError::Malformed(_))));
    }

    #[test]
    fn damaged_frames_never_do_harm() {
        let mut frame = Vec::new();
        encode_frame(&events(), &mut frame).unwrap();
        for place in 0..frame.len() {
            for value in 0..=255 {
                let mut damaged = frame.clone();
                damaged[place] = value;
                // Any answer will do but a panic or a large allocation.
                if let Ok(Some((_, len))) = decode_frame::<Vec<Event>>(&damaged) {
                    assert!(len <= damaged.len());
                }
            }
        }
    }

    #[test]
    fn too_large_a_message_is_not_sent() {
        let steer =
            Command::Steer { sequence: SequenceId(1), tokens: vec![u32::MAX; 4 << 20], max_tokens: 1 };
        let mut frames = vec![1, 2, 3];
        assert!(matches!(encode_frame(&steer, &mut frames), Err(LinkError::TooLarge { .. })));
        assert_eq!(frames, [1, 2, 3]);
    }
}
