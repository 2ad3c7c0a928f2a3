//! Bounds of what a request may hold.

/// Items of one request's input.
pub const INPUT_ITEMS_MAX: usize = 10_000;
/// Parts of one message.
pub const PARTS_MAX: usize = 1_000;
/// Tools of one request, those inside namespaces counted.
pub const TOOLS_MAX: usize = 1_024;
/// Bytes of a name: of a tool, a namespace, a schema.
pub const NAME_BYTES_MAX: usize = 128;
/// Bytes of an id, a key or a tag that a client chooses.
pub const ID_BYTES_MAX: usize = 512;
/// Pairs of `metadata` that a client may give, and the bytes of their keys and values.
pub const METADATA_PAIRS_MAX: usize = 16;
pub const METADATA_KEY_BYTES_MAX: usize = 64;
pub const METADATA_VALUE_BYTES_MAX: usize = 512;
/// `max_output_tokens`. What a model allows is usually less.
pub const OUTPUT_TOKENS_MAX: u64 = 10_000_000;
/// `top_logprobs`.
pub const TOP_LOGPROBS_MAX: u64 = 20;
/// Stop strings of one request, and the bytes of each.
pub const STOPS_MAX: usize = 16;
pub const STOP_BYTES_MAX: usize = 1_024;
/// Bytes of a grammar of a custom tool.
pub const GRAMMAR_BYTES_MAX: usize = 256 * 1024;
/// Entries of `logit_bias`.
pub const LOGIT_BIAS_MAX: usize = 1_024;
/// For which a response may go on that nobody reads.
pub const RETURN_SECONDS_MAX: u64 = 60;
