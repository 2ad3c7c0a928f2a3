//! Bounds, each with its unit in its name.

/// Of a patch.
pub const PATCH_BYTES_MAX: usize = 4 << 20;

/// Files that one patch changes.
pub const PATCH_FILES_MAX: usize = 1_000;

/// Of a file that is patched: what is larger was not written by hand.
pub const FILE_BYTES_MAX: u64 = 32 << 20;

pub const PATH_BYTES_MAX: usize = 4_096;

/// Lines of a file that are compared with those of a hunk, over all places where it could stand.
pub const LINES_COMPARED_MAX: usize = 50_000_000;

/// Likewise for the text of an edit.
pub const EDIT_LINES_COMPARED_MAX: usize = 5_000_000;

/// Of a configuration file.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Keys that it gives values to, and bytes of the whole name of one.
pub const CONFIG_KEYS_MAX: usize = 4_096;
pub const CONFIG_NAME_BYTES_MAX: usize = 8 << 10;

/// Of a session's file.
pub const SESSION_BYTES_MAX: u64 = 256 << 20;

/// Of all sessions together, where the settings do not say.
pub const SESSIONS_BYTES: u64 = 4 << 30;

pub const SESSION_RECORD_BYTES_MAX: usize = 16 << 20;

pub const SESSIONS_LISTED_MAX: usize = 100_000;

/// Of a command line.
pub const COMMAND_BYTES_MAX: usize = 64 << 10;

/// The longest that a command may run, whatever it is given.
pub const COMMAND_SECONDS_MAX: u64 = 3_600;

/// What a command that is told to end may still take for it.
pub const COMMAND_END_MILLISECONDS_MAX: u64 = 10_000;

/// Of a command's output, that a model reads: its beginning and its end.
pub const OUTPUT_HEAD_BYTES_MAX: usize = 8 << 10;
pub const OUTPUT_TAIL_BYTES_MAX: usize = 16 << 10;

/// Of a command's output, that whoever watches sees.
pub const OUTPUT_STREAMED_BYTES_MAX: u64 = 4 << 20;

/// A command that writes more is ended.
pub const OUTPUT_READ_BYTES_MAX: u64 = 64 << 20;

/// Of a file that is read at once, and of one of its lines.
pub const READ_BYTES_MAX: usize = 32 << 10;
pub const READ_LINE_BYTES_MAX: usize = 2_000;

/// Lines of a file that are read unless more are asked for.
pub const READ_LINES: usize = 400;

/// What stands in a folder and is looked at.
pub const FOLDER_ENTRIES_MAX: usize = 100_000;

/// What is looked at in one walk over folders, how deep it goes, and how long it takes.
pub const WALK_ENTRIES_MAX: usize = 500_000;
pub const WALK_DEPTH_MAX: usize = 64;
pub const WALK_MILLISECONDS_MAX: u64 = 10_000;

/// Of a `.gitignore`.
pub const IGNORE_BYTES_MAX: usize = 1 << 20;

/// Names that are listed at once.
pub const LISTED_MAX: usize = 500;

/// Lines that a search finds, their bytes together, and those of one of them.
pub const FOUND_LINES_MAX: usize = 200;
pub const FOUND_BYTES_MAX: usize = 24 << 10;
pub const FOUND_LINE_BYTES_MAX: usize = 300;

/// Of a search's pattern or glob, and of what it is compiled to.
pub const PATTERN_BYTES_MAX: usize = 4_096;
pub const PATTERN_COMPILED_BYTES_MAX: usize = 10 << 20;

/// Of one file's difference, as it is shown.
pub const DIFF_BYTES_MAX: usize = 256 << 10;
pub const DIFF_MILLISECONDS_MAX: u64 = 500;

/// Files that are put back if a command changes them, and their bytes together.
pub const WATCHED_FILES_MAX: usize = 2_000;
pub const WATCHED_BYTES_MAX: usize = 16 << 20;

/// Programs that one command line runs.
pub const SIMPLE_COMMANDS_MAX: usize = 64;

/// Of the file of rules, how many it holds, and the words of one.
pub const RULES_BYTES_MAX: u64 = 1 << 20;
pub const RULES_MAX: usize = 1_000;
pub const RULE_WORDS_MAX: usize = 64;

/// Of an event of a server.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// Of a WebSocket, read at once: as many are cleared before each reading.
pub const SOCKET_READ_BYTES: usize = 8 << 10;

/// Of a document of a server.
pub const BODY_BYTES_MAX: u64 = 64 << 20;

/// Events of a server that nobody has looked at yet.
pub const EVENTS_WAITING_MAX: usize = 1_024;

/// Files that a person names and the model is shown.
pub const MENTIONED_FILES_MAX: usize = 5;

pub const MENTIONED_BYTES_MAX: usize = 24 << 10;

/// Requests of one turn: a model that goes round in circles is stopped.
pub const REQUESTS_A_TURN_MAX: u64 = 100;

/// Texts that wait to be said.
pub const WAITING_MAX: usize = 256;

/// Times that a turn is told that its check failed.
pub const CHECKS_A_TURN_MAX: u32 = 4;

/// Names in a text that are looked for as files, to see how much it is about.
pub const ROUTED_FILES_MAX: usize = 32;

/// Of what a diagnostics command writes, of one of its lines, how many are compared, and how many a model is told of.
pub const DIAGNOSTICS_BYTES_MAX: usize = 4 << 20;
pub const DIAGNOSTIC_BYTES_MAX: usize = 600;
pub const DIAGNOSTICS_MAX: usize = 2_000;
pub const DIAGNOSTICS_TOLD_MAX: usize = 20;

/// That a diagnostics command may take.
pub const DIAGNOSTICS_SECONDS_MAX: u64 = 60;

/// Of a list of tasks, and how many steps it has.
pub const TASKS_BYTES_MAX: usize = 256 << 10;
pub const TASKS_STEPS_MAX: usize = 200;

/// Of a task that is repeated to another model.
pub const TASK_REPEATED_BYTES_MAX: usize = 4 << 10;

/// Of files that edits are held to.
pub const EDITED_BYTES_MAX: usize = 96 << 10;

/// Of a file that a model is asked to write whole.
pub const REWRITTEN_BYTES_MAX: usize = 8 << 10;

/// For which a server of ours goes on with an answer whose connection broke.
pub const RETURN_SECONDS: u64 = 20;

/// Models that a look at a server tries, and how long that may take.
pub const MODELS_TRIED_MAX: usize = 32;
pub const TRY_SECONDS_MAX: u64 = 3;
/// Files that tell what other agents are, in one folder; the agents of a session; bytes of such a file, and of what the model is
/// told of one.
pub const ROLE_FILES_MAX: usize = 64;
pub const ROLES_MAX: usize = 16;
pub const ROLE_BYTES_MAX: u64 = 64 << 10;
pub const ROLE_TOLD_BYTES_MAX: usize = 160;
pub const ROLE_NAME_BYTES_MAX: usize = 32;

/// Other agents that work at once for one session.
pub const HANDS_MAX: usize = 4;

/// Of a report, that the model reads: its end, which has the result.
pub const REPORT_BYTES_MAX: usize = 16 << 10;

/// Of an agent's task, as a list shows it; and of agents that have ended, how many a list has.
pub const TASK_SHOWN_BYTES_MAX: usize = 80;
pub const HANDS_LISTED_MAX: usize = 32;

/// What an agent has to begin, with its server's list of models; and to end, once it is told to.
pub const HAND_BEGIN_SECONDS_MAX: u64 = 15;
pub const HAND_END_MILLISECONDS_MAX: u64 = 1_500;
