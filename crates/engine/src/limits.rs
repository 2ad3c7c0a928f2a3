//! Every bound of the engine, with its unit in its name.

/// Tokens in one block of the KV pool.
pub const KV_BLOCK_TOKENS: usize = 32;

/// Rows (tokens of all sequences together) in one forward pass.
pub const BATCH_ROWS_MAX: usize = 512;

/// Sequences in one forward pass.
pub const BATCH_SEQUENCES_MAX: usize = 16;

/// Rows of one forward pass whose logits are wanted.
pub const BATCH_LOGIT_ROWS_MAX: usize = 64;
