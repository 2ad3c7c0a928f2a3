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

/// Of a configuration file.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

/// Of a session's file.
pub const SESSION_BYTES_MAX: u64 = 256 << 20;

pub const SESSION_RECORD_BYTES_MAX: usize = 16 << 20;

pub const SESSIONS_LISTED_MAX: usize = 100_000;
