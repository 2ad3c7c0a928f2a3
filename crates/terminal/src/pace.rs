//! When the next frame is due: soon for what streams, sooner for a key, and never too many in a second.

use crate::limits::{FRAME_TIME_MAX, FRAME_TIME_MIN, FRAMES_A_SECOND_MAX, KEY_TIME_MIN};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// A frame that is less late than this keeps its place in the row.
const LATE_MAX: Duration = Duration::from_millis(8);

/// Frames of a second that are left for keys, besides as many as the last second had.
const MORE_KEYS: usize = 2;

#[derive(Debug, Default)]
pub struct Pace {
    frames: VecDeque<Frame>, // the last ones
    clock: Option<Instant>,  // from which the time to the next one is counted
    waits: bool,             // a key that is not painted yet
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    at: Instant,
    ahead: bool, // of its time, for a key
}

impl Pace {
    pub fn pressed(&mut self) {
        self.waits = true;
    }

    /// A frame's time is the one that it was due at, though it is painted a moment later. Else each would be later than
    /// the one before it should have been.
    pub fn painted(&mut self, now: Instant) {
        let due = self.streamed();
        let late = |due: &Instant| (*due..*due + LATE_MAX).contains(&now);
        self.clock = Some(due.filter(late).unwrap_or(now));
        self.waits = false;
        self.frames.push_back(Frame { at: now, ahead: due.is_some_and(|due| now < due) });
        if self.frames.len() > FRAMES_A_SECOND_MAX {
            self.frames.pop_front();
        }
    }

    /// When the last frame was painted.
    pub fn last(&self) -> Option<Instant> {
        self.frames.back().map(|frame| frame.at)
    }

    /// When something new is painted.
    pub fn due(&self) -> Option<Instant> {
        let (last, streamed) = (self.last()?, self.streamed()?);
        let next = if self.waits { streamed.min(last + KEY_TIME_MIN) } else { streamed };
        let full = self.frames.front().filter(|_| self.frames.len() == FRAMES_A_SECOND_MAX);
        Some(full.map_or(next, |first| next.max(first.at + SECOND)))
    }

    /// The same for what streams. Who types goes on typing, and is left some frames.
    fn streamed(&self) -> Option<Instant> {
        let last = self.last()?;
        let keys = self.frames.iter().filter(|frame| frame.ahead && last < frame.at + SECOND).count();
        let time = match keys {
            0 => FRAME_TIME_MIN,
            _ => SECOND / FRAMES_A_SECOND_MAX.saturating_sub(keys + MORE_KEYS).max(1) as u32,
        };
        Some(self.clock? + time.min(FRAME_TIME_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long keys wait while text streams without end, and the most frames of any second, when frames are up to `late`
    /// after their time.
    fn type_at(keys_a_second: u32, late: Duration) -> (Duration, usize) {
        let (began, tick) = (Instant::now(), Duration::from_micros(100));
        let gap = SECOND / keys_a_second;
        let (mut pace, mut frames, mut longest) = (Pace::default(), Vec::new(), Duration::ZERO);
        let (mut now, mut next, mut waits) = (began, began + SECOND, None);
        while now < began + 6 * SECOND {
            if now >= next {
                pace.pressed();
                waits.get_or_insert(now);
                next = now + gap;
            }
            let late = late * (frames.len() as u32 * 7 % 5) / 4;
            if pace.due().is_none_or(|due| due + late <= now) {
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
        let late = Duration::from_millis(4);
        for keys_a_second in [1, 4, 8, 12] {
            for late in [Duration::ZERO, late] {
                let (longest, frames) = type_at(keys_a_second, late);
                let rate = format!("{keys_a_second} keys a second, {late:?} late");
                assert!(longest < Duration::from_millis(12) + late, "{rate}: {longest:?}");
                assert!(frames <= FRAMES_A_SECOND_MAX, "{rate}: {frames} frames");
            }
        }
        // A key that is held down is painted with what streams.
        let (longest, frames) = type_at(40, Duration::ZERO);
        assert!(longest <= FRAME_TIME_MAX && frames <= FRAMES_A_SECOND_MAX, "{longest:?} {frames}");
    }

    #[test]
    fn a_late_frame_makes_no_other_late() {
        let (began, late) = (Instant::now(), Duration::from_millis(2));
        let mut pace = Pace::default();
        pace.painted(began);
        for number in 1..=100 {
            let due = pace.due().unwrap();
            assert_eq!(due, began + FRAME_TIME_MIN * number);
            pace.painted(due + late);
        }
        // After a rest the row begins anew.
        let later = began + 100 * SECOND;
        pace.painted(later);
        assert_eq!(pace.due(), Some(later + FRAME_TIME_MIN));
    }
}
