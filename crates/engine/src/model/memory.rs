//! Whether a model fits in memory, asked before any of it is loaded.

use super::config::Config;
use crate::limits::{BATCH_LOGIT_ROWS_MAX, BATCH_ROWS_MAX, KV_BLOCK_TOKENS};
use std::fmt;

/// Bytes that a loaded model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    pub weights: u64,
    pub kv: u64,
    pub scratch: u64,
}

impl MemoryNeed {
    /// For a model whose weights take `weights` bytes on the device, and a pool of `kv_blocks` blocks.
    pub fn of(config: &Config, weights: u64, kv_blocks: usize, kv_head_bytes: usize) -> MemoryNeed {
        let block = KV_BLOCK_TOKENS * config.layers * config.kv_heads * kv_head_bytes;
        let qkv = (config.heads + 2 * config.kv_heads) * config.head_dim;
        let slots = config.experts.as_ref().map_or(1, |experts| 2 * experts.used);
        let widths = 2 * config.hidden + qkv + config.heads * config.head_dim + 3 * slots * config.ffn;
        let scratch = 4 * (BATCH_ROWS_MAX * widths + BATCH_LOGIT_ROWS_MAX * config.vocab);
        MemoryNeed { weights, kv: block as u64 * kv_blocks as u64, scratch: scratch as u64 }
    }

    pub fn total(&self) -> u64 {
        self.weights + self.kv + self.scratch
    }

    /// Refuses a model that needs more than the machine has to give.
    pub fn check(&self, available: u64) -> Result<(), TooLarge> {
        if self.total() <= available { Ok(()) } else { Err(TooLarge { need: *self, available }) }
    }
}

/// The model does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct TooLarge {
    pub need: MemoryNeed,
    pub available: u64,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryNeed { weights, kv, scratch } = self.need;
        write!(
            f,
            "the model needs {} of memory ({} weights, {} KV pool, {} scratch) and {} are free: \
             take a smaller model or quantisation, or a smaller KV pool with --kv-tokens",
            Gib(self.need.total()),
            Gib(weights),
            Gib(kv),
            Gib(scratch),
            Gib(self.available),
        )
    }
}

struct Gib(u64);

impl fmt::Display for Gib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} GiB", self.0 as f64 / (1u64 << 30) as f64)
    }
}

/// Bytes of memory that the system says it can still give; `None` where it does not say.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_the_sizes() {
        let need = MemoryNeed { weights: 3 << 30, kv: 1 << 30, scratch: 1 << 28 };
        assert!(need.check(5 << 30).is_ok());
        assert_eq!(
            need.check(4 << 30).unwrap_err().to_string(),
            "the model needs 4.25 GiB of memory (3.00 GiB weights, 1.00 GiB KV pool, 0.25 GiB scratch) and \
             4.00 GiB are free: take a smaller model or quantisation, or a smaller KV pool with --kv-tokens"
        );
    }
}
