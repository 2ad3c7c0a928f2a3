//! How fast a model could be on this machine: what bounds decoding is reading the weights, what bounds prefill is
//! multiplying with them.

use super::{DECODED, Kind};
use flint_engine::device::cpu::Held;
use flint_engine::model::config::Config;

/// The bounds of one model, with what the machine was measured to do.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
    pub read: f64,   // bytes a second
    pub int8: f64,   // operations a second
    weights: f64,    // bytes read for a token
    kv: f64,         // bytes read for a token, for each token before it
    operations: f64, // for a token of a prompt: all products but the head's, which the last token alone has
}

impl Floor {
    pub fn of(held: Held, config: &Config, kv_value_bytes: usize, read: f64, int8: f64) -> Floor {
        let share = config.experts.as_ref().map_or(0.0, |experts| experts.used as f64 / experts.count as f64);
        let values = held.values as f64 + share * held.expert_values as f64;
        let head = (config.vocab * config.hidden) as f64;
        Floor {
            read,
            int8,
            weights: held.bytes as f64 + share * held.expert_bytes as f64,
            kv: (2 * config.layers * config.kv_heads * config.head_dim * kv_value_bytes) as f64,
            operations: 2.0 * (values - head),
        }
    }

    /// Tokens a second, at most.
    pub fn rate(&self, kind: &Kind) -> f64 {
        if !kind.decode {
            return self.int8 / self.operations;
        }
        let before = kind.prompt as f64 + DECODED as f64 / 2.0; // tokens, on average
        self.read / (self.weights + self.kv * before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_is_bound_by_bytes_and_prefill_by_operations() {
        let floor = Floor { read: 1e9, int8: 1e12, weights: 1e6, kv: 1e3, operations: 1e9 };
        let kind = |prompt, decode| Kind { name: "", prompt, decode };
        assert_eq!(floor.rate(&kind(512, false)), 1000.0);
        assert_eq!(floor.rate(&kind(968, true)), 500.0);
    }
}
