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
/// Tokens of one response whose way out is timed, for a client that asks.
pub const TIMED_TOKENS_MAX: usize = 65_536;
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
/// Bytes of the data file, above which the oldest finished responses are deleted, where the settings do not say.
pub const STORE_BYTES_DEFAULT: u64 = 4 << 30;
/// Bytes of events that wait for the store before turns wait for it.
pub const STORE_QUEUE_BYTES_MAX: usize = 8 << 20;
/// Bytes of events that are read from the store at once; at least one event is.
pub const STORE_PAGE_BYTES_MAX: usize = 256 * 1024;
/// Responses that could not be stored to their end and wait to be deleted.
pub const STORE_ORPHANS_MAX: usize = 1024;
/// Responses that one conversation may have, one after the other, in the store.
pub const CHAIN_RESPONSES_MAX: usize = 10_000;
/// Items of one page of a list, and where the client does not say.
pub const LIST_ITEMS_MAX: usize = 100;
pub const LIST_ITEMS_DEFAULT: usize = 20;
/// Constraints whose outcome a model remembers.
pub const CHECKED_CONSTRAINTS_MAX: usize = 256;
