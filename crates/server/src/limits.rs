//! Bounds of the server, with their units in their names.

/// Bytes of one request body or WebSocket message.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Bytes of events that a response keeps in memory for readers that are behind.
pub const RING_BYTES_MAX: usize = 256 * 1024;
/// Idle sequences that a model keeps warm; the KV pool may hold fewer.
pub const SESSIONS_IDLE_MAX: usize = 256;
/// Tokens that two prompts must share before one is forked from the other.
pub const FORK_TOKENS_MIN: usize = 32;
/// Lanes of one WebSocket, and turns that wait in one lane.
pub const LANES_MAX: usize = 64;
pub const LANE_TURNS_WAITING_MAX: usize = 16;
/// Frames of one WebSocket that wait to be written, besides the events of responses.
pub const SOCKET_FRAMES_WAITING_MAX: usize = 256;
/// Controls (steer, interrupt, cancel) that wait for one running turn.
pub const CONTROLS_WAITING_MAX: usize = 64;
/// Seconds that a WebSocket may stay open.
pub const SOCKET_SECONDS_MAX: u64 = 3600;
/// Seconds without an event after which one is sent so that no client gives up.
pub const HEARTBEAT_SECONDS: u64 = 15;
/// Responses that one connection remembers without storing them.
pub const CONNECTION_RESPONSES_MAX: usize = 64;
/// Tokens that an answer may have where the request does not say.
pub const OUTPUT_TOKENS_DEFAULT: u32 = 16_384;
/// Constraints whose outcome a model remembers.
pub const CHECKED_CONSTRAINTS_MAX: usize = 256;
/// Keys that are valid at the same time, and the length of their names.
pub const KEYS_MAX: usize = 4096;
pub const KEY_NAME_BYTES_MAX: usize = 64;
/// Bytes that are read of the file with the local user's key.
pub const KEY_FILE_BYTES_MAX: u64 = 1024;
/// Milliseconds after which a key that was revoked is refused.
pub const KEYS_FRESH_MS: u64 = 250;
/// TLS handshakes at the same time, and seconds that one may take.
pub const HANDSHAKES_MAX: usize = 256;
pub const HANDSHAKE_SECONDS_MAX: u64 = 10;
