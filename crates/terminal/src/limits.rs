//! Bounds, each with its unit in its name.

use std::time::Duration;

/// The time between two frames of what streams, and the longest that it becomes while a person types.
pub const FRAME_TIME_MIN: Duration = Duration::from_micros(16_800);
pub const FRAME_TIME_MAX: Duration = Duration::from_millis(20);

/// Between a frame and one for a key.
pub const KEY_TIME_MIN: Duration = Duration::from_millis(4);

pub const FRAMES_A_SECOND_MAX: usize = 60;

/// How often the wheel turns while a turn runs.
pub const SPINNER_STEP_TIME: Duration = Duration::from_millis(120);

/// Events that are folded before the next look at the keys.
pub const EVENTS_A_BATCH_MAX: usize = 512;

/// Keys and pastes that wait to be handled.
pub const INPUTS_WAITING_MAX: usize = 256;

/// Orders that wait until the agent takes them. What comes after is refused, visibly.
pub const ORDERS_WAITING_MAX: usize = 256;

/// Items of the transcript; the oldest go.
pub const ENTRIES_MAX: usize = 50_000;

/// Entries whose lines are kept ready. More than are seen at once: each has a row at least.
pub const ENTRIES_LAID_OUT_MAX: usize = 1_024;

/// Text of one item. Of more the beginning goes.
pub const ITEM_BYTES_MAX: usize = 4 << 20;

/// Markdown that is laid out anew while it grows; a longer block is cut in two.
pub const GROWING_BYTES_MAX: usize = 16 << 10;

/// Of a line of a command's output or of a diff; the rest is not shown.
pub const LINE_CHARS_MAX: usize = 2_000;

/// Lines of a command's output, shortened and in full.
pub const OUTPUT_LINES_SHORT: usize = 5;
pub const OUTPUT_LINES_MAX: usize = 1_000;

/// Thoughts, shortened and in full: the end of them.
pub const REASONING_LINES_SHORT: usize = 3;
pub const REASONING_BYTES_SHORT: usize = 2 << 10;
pub const REASONING_BYTES_MAX: usize = 64 << 10;

/// Lines of a diff, shortened and in full.
pub const DIFF_LINES_SHORT: usize = 30;
pub const DIFF_LINES_MAX: usize = 5_000;

/// Rows of the panes between the transcript and the composer.
pub const PLAN_ROWS_MAX: usize = 8;
pub const SENT_ROWS_MAX: usize = 6;
pub const POPUP_ROWS_MAX: usize = 8;

/// What was steered or queued and is still listed.
pub const SENT_KEPT_MAX: usize = 1_000;

/// Questions that wait for a yes or no.
pub const QUESTIONS_MAX: usize = 1_000;

/// Turns and agents of which `/usage` knows.
pub const LEDGER_LINES_MAX: usize = 10_000;

/// Text in the composer, pastes included.
pub const COMPOSER_BYTES_MAX: usize = 1 << 20;

pub const HISTORY_ENTRIES_MAX: usize = 1_000;

/// Marks that stand on one letter. Real scripts have no more; text that wants to leave its line has.
pub const MARKS_MAX: usize = 8;

/// Columns from one tab stop to the next.
pub const TAB_COLUMNS: usize = 4;

/// A question takes keys only after this long without one: who types a word does not mean yes.
pub const QUESTION_PAUSE: Duration = Duration::from_millis(400);

/// Two Ctrl-C within it end the program.
pub const QUIT_TIME: Duration = Duration::from_secs(2);

/// How long a passing remark is shown.
pub const REMARK_TIME: Duration = Duration::from_secs(5);
