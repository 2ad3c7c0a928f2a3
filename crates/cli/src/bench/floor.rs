//! How fast a model could be on this machine: what bounds decoding is reading the weights, what bounds prefill is
//! multiplying with them.

use super::{DECODED, Kind};
use flint_engine::device::cpu::Held;
use flint_engine::load::{ModelFile, Tensor};
use flint_engine::model::config::Config;

/// The bounds of one model, with what the machine was measured to do.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
    pub read: f64,   // bytes a second
    pub int8: f64,   // operations a second; 0 where nobody knows
    weights: f64,    // bytes that a token needs: of the head, without what a likeliest one passes over
    kv: Kv,          // read for a token
    operations: f64, // for a token of a prompt: all products but the head's, which the last token alone has
}

/// Bytes of keys and values of one token, in the layers that see all of them and in those that see a window.
#[derive(Debug, Clone, Copy)]
struct Kv {
    whole: f64,
    windowed: f64,
    window: f64, // tokens
}

impl Kv {
    fn of(config: &Config, head_bytes: usize) -> Kv {
        let layer = (config.kv_heads * head_bytes) as f64;
        let windowed = (0..config.layers).filter(|&layer| config.window(layer).is_some()).count();
        Kv {
            whole: layer * (config.layers - windowed) as f64,
            windowed: layer * windowed as f64,
            window: config.window.unwrap_or(0) as f64,
        }
    }

    fn bytes(&self, before: f64) -> f64 {
        self.whole * before + self.windowed * before.min(self.window)
    }
}

/// The part of all experts that a token goes through.
fn share(config: &Config) -> f64 {
    config.experts.as_ref().map_or(0.0, |experts| experts.used as f64 / experts.count as f64)
}

impl Floor {
    pub fn of(held: Held, config: &Config, kv_head_bytes: usize, read: f64, int8: f64) -> Floor {
        let share = share(config);
        let values = held.values as f64 + share * held.expert_values as f64;
        let head = (config.vocab * config.hidden) as f64;
        Floor {
            read,
            int8,
            weights: (held.bytes - held.passed_over) as f64 + share * held.expert_bytes as f64,
            kv: Kv::of(config, kv_head_bytes),
            operations: 2.0 * (values - head),
        }
    }

    /// Of a card that reads the bytes of the file, and 16-bit keys and values.
    pub fn of_file(file: &ModelFile, read: f64) -> Floor {
        let looked_up = |tensor: &&Tensor| tensor.name != "token_embd.weight" || file.tied();
        let bytes = |tensor: &Tensor| match tensor.name.contains("_exps.") {
            true => share(&file.config) * tensor.bytes() as f64,
            false => tensor.bytes() as f64,
        };
        let weights = file.tensors().filter(looked_up).map(bytes).sum();
        Floor {
            read,
            int8: 0.0,
            weights,
            kv: Kv::of(&file.config, 2 * 2 * file.config.head_dim),
            operations: 0.0,
        }
    }

    /// Tokens a second, at most, where that is known.
    pub fn rate(&self, kind: &Kind) -> Option<f64> {
        if !kind.decode {
            return (self.int8 > 0.0).then(|| self.int8 / self.operations);
        }
        let before = kind.prompt as f64 + DECODED as f64 / 2.0; // tokens, on average
        Some(self.read / (self.weights + self.kv.bytes(before)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flint_engine::load::MadeUp;

    #[test]
    fn decoding_is_bound_by_bytes_and_prefill_by_operations() {
        let kv = Kv { whole: 1e3, windowed: 1e3, window: 0.0 };
        let floor = Floor { read: 1e9, int8: 1e12, weights: 1e6, kv, operations: 1e9 };
        let kind = |prompt, decode| Kind { name: "", prompt, decode };
        assert_eq!(floor.rate(&kind(512, false)), Some(1000.0));
        assert_eq!(floor.rate(&kind(968, true)), Some(500.0));
        let windowed = Floor { kv: Kv { window: 1e3, ..kv }, int8: 0.0, ..floor };
        assert_eq!(windowed.rate(&kind(968, true)), Some(1e9 / 3e6));
        assert_eq!(windowed.rate(&kind(512, false)), None);
    }

    #[test]
    fn a_card_reads_the_experts_that_are_used() {
        let made_up = MadeUp::named("gpt-oss-20b").unwrap();
        let floor = Floor::of_file(&ModelFile::made_up("gpt-oss-20b", &made_up), 4.5e12);
        let rate = floor.rate(&Kind { name: "", prompt: 4096, decode: true }).unwrap();
        assert!((1600.0..1800.0).contains(&rate), "{rate}");
    }
}
