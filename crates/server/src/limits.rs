//! Bounds of the server, with their units in their names.

/// Bytes of one request body or WebSocket message.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;
/// Bytes of text that a turn may bring to a known conversation to be begun where it was read: they take less than half a
/// millisecond.
pub const SHORT_INPUT_BYTES_MAX: usize = 8 << 10;
/// Bytes that a response takes to keep events in memory for readers that are behind. With a page from the store a
/// reader that is slow costs 256 KiB.
pub const RING_BYTES_MAX: usize = 192 * 1024;
/// Bytes that the kernel is asked to hold for a client that does not read; Linux takes twice as many.
pub const SOCKET_SEND_BYTES_MAX: u32 = 128 * 1024;
/// Connections that wait to be accepted.
pub const CONNECTIONS_WAITING_MAX: u32 = 1024;
/// Idle sequences that a model keeps warm; the KV pool may hold fewer.
pub const SESSIONS_IDLE_MAX: usize = 256;
/// Tokens that two prompts must share before one is forked from the other.
pub const FORK_TOKENS_MIN: usize = 32;
/// Lanes of one WebSocket, and turns that wait in one lane.
pub const LANES_MAX: usize = 64;
pub const LANE_TURNS_WAITING_MAX: usize = 16;
/// Frames of one WebSocket that wait to be written, besides the events of responses.
pub const SOCKET_FRAMES_WAITING_MAX: usize = 256;

/// Bytes that are read from a WebSocket at once: as many are cleared before each reading.
pub const SOCKET_READ_BYTES: usize = 8 << 10;

/// Bytes of events that wait to be sent together.
pub const SOCKET_UNSENT_BYTES_MAX: usize = 16 << 10;
/// Tokens of one response whose way out is timed, for a client that asks.
pub const TIMED_TOKENS_MAX: usize = 65_536;
/// Controls (steer, interrupt, cancel) that wait for one running turn.
pub const CONTROLS_WAITING_MAX: usize = 64;
/// Seconds that a WebSocket may stay open, that turns which run then may go on, and that its last frames may take when
/// it ends.
pub const SOCKET_SECONDS_MAX: u64 = 3600;
pub const SOCKET_LAST_TURNS_SECONDS_MAX: u64 = 600;
pub const SOCKET_CLOSE_SECONDS_MAX: u64 = 10;
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
pub const STORE_PAGE_BYTES_MAX: usize = 64 * 1024;
/// Responses that could not be stored to their end and wait to be deleted.
pub const STORE_ORPHANS_MAX: usize = 1024;
/// Responses that one conversation may have, one after the other, in the store.
pub const CHAIN_RESPONSES_MAX: usize = 10_000;
/// Items of one page of a list, and where the client does not say.
pub const LIST_ITEMS_MAX: usize = 100;
pub const LIST_ITEMS_DEFAULT: usize = 20;
/// Constraints whose outcome a model remembers.
pub const CHECKED_CONSTRAINTS_MAX: usize = 256;

/// New items of a turn whose text around the words is remembered, and how many such kinds of turns are.
pub const FORM_ITEMS_MAX: usize = 8;
pub const FORMS_MAX: usize = 256;

/// Tool lists and answer formats whose grammar is remembered.
pub const HOLDS_MAX: usize = 16;

/// Bytes of all files of a request that guesses are taken from, and files whose tokens are remembered.
pub const GUESSED_FILE_BYTES_MAX: usize = 256 * 1024;
pub const GUESSED_FILES_MAX: usize = 32;

/// Lists of tools that a model remembers.
pub const TOOLBOOKS_MAX: usize = 16;
/// Keys that are valid at the same time, and the length of their names.
pub const KEYS_MAX: usize = 4096;
pub const KEY_NAME_BYTES_MAX: usize = 64;
/// Bytes that are read of the file with the local user's key.
pub const KEY_FILE_BYTES_MAX: u64 = 1024;
/// Milliseconds after which a key that was revoked is refused.
pub const KEYS_FRESH_MS: u64 = 250;
/// Turns that one model runs at the same time, and that wait for it in each class, where nothing else is set.
pub const TURNS_RUNNING_DEFAULT: usize = 128;
pub const TURNS_WAITING_DEFAULT: usize = 1024;
/// What one key may do with one model in one class, where nothing else is set.
pub const TURNS_A_KEY_DEFAULT: u32 = 1024;
pub const REQUESTS_A_MINUTE_DEFAULT: u64 = 60_000;
pub const TOKENS_A_MINUTE_DEFAULT: u64 = 100_000_000;
/// Bytes of input that are taken for a token before they are tokenized, and tokens that an answer is expected
/// to have at most.
pub const BYTES_A_TOKEN_ESTIMATE: usize = 4;
pub const OUTPUT_TOKENS_ESTIMATE: u64 = 1024;
/// Seconds after which one that waits is told that its place has changed.
pub const QUEUE_TOLD_SECONDS: u64 = 1;
/// Seconds between two times that usage is written.
pub const BOOKS_WRITTEN_SECONDS: u64 = 1;
/// Milliseconds that an engine is given to tell its counters.
pub const STATS_WAIT_MS_MAX: u64 = 500;
/// TLS handshakes at the same time, and seconds that one may take.
pub const HANDSHAKES_MAX: usize = 256;
pub const HANDSHAKE_SECONDS_MAX: u64 = 10;
/// Requests whose spans wait to be sent, and go in one batch; milliseconds after which a batch goes anyway.
pub const SPAN_REQUESTS_WAITING_MAX: usize = 4096;
pub const SPAN_BATCH_REQUESTS_MAX: usize = 256;
pub const SPAN_BATCH_MS_MAX: u64 = 1000;
/// How often a batch is tried, milliseconds before the second time (then twice as many), and seconds that one try
/// may take.
pub const SPAN_TRIES_MAX: usize = 3;
pub const SPAN_TRY_PAUSE_MS: u64 = 200;
pub const SPAN_POST_SECONDS_MAX: u64 = 5;
/// Seconds that a server which ends waits for its spans to be sent.
pub const SPAN_FLUSH_SECONDS_MAX: u64 = 5;
