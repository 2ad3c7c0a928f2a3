//! When the next frame is due: soon for what streams, sooner for a key, and never too many in a second.

use crate::limits::{FRAME_TIME_MIN, FRAMES_A_SECOND_MAX, KEY_TIME_MIN, TYPING_FRAME_TIME_MIN};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Pace {
    frames: VecDeque<Instant>, // when the last ones were painted
    pressed: Option<Instant>,  // the last key
    waits: bool,               // it is not painted yet
}

impl Pace {
    pub fn pressed(&mut self, now: Instant) {
        (self.pressed, self.waits) = (Some(now), true);
    }

    pub fn painted(&mut self, now: Instant) {
        self.waits = false;
        self.frames.push_back(now);
        if self.frames.len() > FRAMES_A_SECOND_MAX {
            self.frames.pop_front();
        }
    }

    /// When the last frame was painted.
    pub fn last(&self) -> Option<Instant> {
        self.frames.back().copied()
    }

    /// When something new is painted.
    pub fn due(&self) -> Option<Instant> {
        let last = self.last()?;
        // Who types is left some frames of each second.
        let types = self.pressed.is_some_and(|pressed| last < pressed + SECOND);
        let streamed = last + if types { TYPING_FRAME_TIME_MIN } else { FRAME_TIME_MIN };
        let room = self.frames.len() < FRAMES_A_SECOND_MAX;
        let key = match self.frames.front() {
            Some(first) if !room => (*first + SECOND).max(last + KEY_TIME_MIN),
            _ => last + KEY_TIME_MIN,
        };
        Some(if self.waits { key.min(streamed) } else { streamed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long keys wait while text streams without end, and the most frames of any second.
    fn type_at(keys_a_second: u32) -> (Duration, usize) {
        let (began, tick) = (Instant::now(), Duration::from_micros(100));
        let gap = SECOND / keys_a_second;
        let (mut pace, mut frames, mut longest) = (Pace::default(), Vec::new(), Duration::ZERO);
        let (mut now, mut next, mut waits) = (began, began + SECOND, None);
        while now < began + 6 * SECOND {
            if now >= next {
                pace.pressed(now);
                waits.get_or_insert(now);
                next = now + gap;
            }
            if pace.due().is_none_or(|due| due <= now) {
                pace.painted(now);
                frames.push(now);
                longest = longest.max(waits.take().map_or(Duration::ZERO, |since| now - since));
            }
            now += tick;
        }
        let within =
            |first: &Instant| frames.iter().filter(|at| (*first..*first + SECOND).contains(*at)).count();
        (longest, frames.iter().map(within).max().unwrap_or(0))
    }

    #[test]
    fn keys_wait_for_no_stream_and_frames_stay_few() {
        for keys_a_second in [1, 4, 8, 12] {
            let (longest, frames) = type_at(keys_a_second);
            assert!(longest < Duration::from_millis(12), "{keys_a_second} keys a second: {longest:?}");
            assert!(frames <= FRAMES_A_SECOND_MAX, "{keys_a_second} keys a second: {frames} frames");
        }
        // A key that is held down is painted with what streams.
        let (longest, frames) = type_at(40);
        assert!(longest <= TYPING_FRAME_TIME_MIN && frames <= FRAMES_A_SECOND_MAX, "{longest:?} {frames}");
    }
}
