//! Every bound of the engine, with its unit in its name.

/// Tokens in one block of the KV pool.
pub const KV_BLOCK_TOKENS: usize = 32;

/// Rows (tokens of all sequences together) in one forward pass.
pub const BATCH_ROWS_MAX: usize = 512;

/// Sequences in one forward pass.
pub const BATCH_SEQUENCES_MAX: usize = 16;

/// Rows of one forward pass whose logits are wanted.
pub const BATCH_LOGIT_ROWS_MAX: usize = 64;

/// Rows of one forward pass while some sequence decodes: a long prompt may not stall the others for long.
pub const BATCH_ROWS_BESIDE_DECODE_MAX: usize = 128;

/// Steps that a running sequence may be passed over, between two of its tokens, before it goes first.
pub const STARVATION_STEPS: u32 = 128;

/// Sequences that a worker knows at once, running and idle.
pub const SEQUENCES_MAX: usize = 4096;

/// Stop tokens of one generation.
pub const STOP_TOKENS_MAX: usize = 64;

/// Tokens with a logit bias in one generation.
pub const LOGIT_BIAS_MAX: usize = 1024;

/// Most likely tokens reported beside the chosen one.
pub const TOP_LOGPROBS_MAX: usize = 20;

/// Bytes in one frame of the link, its length prefix not counted.
pub const LINK_FRAME_BYTES_MAX: usize = 16 << 20;

/// Commands that wait, on either side of the link, for the worker's next step.
pub const LINK_COMMANDS_QUEUED_MAX: usize = 8192;
