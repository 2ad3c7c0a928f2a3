//! How fast a model could be on this machine: what bounds decoding is reading the weights, what bounds prefill is
//! multiplying with them.

use super::{DECODED, Kind, median};
use flint_engine::device::cpu::{Held, int8_peak, read_bandwidth};
use flint_engine::load::{ModelFile, Tensor};
use flint_engine::model::config::Config;

/// What a machine was measured to do.
#[derive(Debug, Clone, Copy)]
pub struct Speeds {
    pub read: f64, // bytes a second
    pub int8: f64, // operations a second; 0 where nobody knows
}

/// The machine that a model runs on. A processor's memory is shared with others, and what it reads changes from minute to
/// minute: it is asked before each measurement.
pub struct Machine {
    threads: Option<usize>, // of a processor
    seen: Vec<Speeds>,
}

impl Machine {
    pub fn cpu(threads: usize) -> Machine {
        let mut machine = Machine { threads: Some(threads), seen: Vec::new() };
        machine.look();
        machine
    }

    pub fn card(read: f64) -> Machine {
        Machine { threads: None, seen: vec![Speeds { read, int8: 0.0 }] }
    }

    /// What it does now.
    pub fn look(&mut self) -> Speeds {
        if let Some(threads) = self.threads {
            let read = read_bandwidth(threads).unwrap_or(0.0);
            self.seen.push(Speeds { read, int8: int8_peak(threads) });
        }
        self.seen.last().copied().unwrap_or(Speeds { read: 0.0, int8: 0.0 })
    }

    /// Medians of what was seen.
    pub fn speeds(&self) -> Speeds {
        let of = |speed: fn(&Speeds) -> f64| median(self.seen.iter().map(speed).collect());
        Speeds { read: of(|seen| seen.read), int8: of(|seen| seen.int8) }
    }
}

/// What of a machine one model needs.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
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
    pub fn of(held: Held, config: &Config, kv_head_bytes: usize) -> Floor {
        let share = share(config);
        let values = held.values as f64 + share * held.expert_values as f64;
        let head = (config.vocab * config.hidden) as f64;
        Floor {
            weights: (held.bytes - held.passed_over) as f64 + share * held.expert_bytes as f64,
            kv: Kv::of(config, kv_head_bytes),
            operations: 2.0 * (values - head),
        }
    }

    /// Of a card that reads the bytes of the file, and 16-bit keys and values.
    pub fn of_file(file: &ModelFile) -> Floor {
        let looked_up = |tensor: &&Tensor| tensor.name != "token_embd.weight" || file.tied();
        let bytes = |tensor: &Tensor| match tensor.name.contains("_exps.") {
            true => share(&file.config) * tensor.bytes() as f64,
            false => tensor.bytes() as f64,
        };
        let weights = file.tensors().filter(looked_up).map(bytes).sum();
        Floor { weights, kv: Kv::of(&file.config, 2 * 2 * file.config.head_dim), operations: 0.0 }
    }

    /// Tokens a second, at most, where that is known.
    pub fn rate(&self, speeds: Speeds, kind: &Kind) -> Option<f64> {
        if !kind.decode {
            return (speeds.int8 > 0.0).then(|| speeds.int8 / self.operations);
        }
        let before = kind.prompt as f64 + DECODED as f64 / 2.0; // tokens, on average
        Some(speeds.read / (self.weights + self.kv.bytes(before)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flint_engine::load::MadeUp;

    #[test]
    fn decoding_is_bound_by_bytes_and_prefill_by_operations() {
        let kv = Kv { whole: 1e3, windowed: 1e3, window: 0.0 };
        let floor = Floor { weights: 1e6, kv, operations: 1e9 };
        let speeds = Speeds { read: 1e9, int8: 1e12 };
        let kind = |prompt, decode| Kind { name: "", prompt, decode };
        assert_eq!(floor.rate(speeds, &kind(512, false)), Some(1000.0));
        assert_eq!(floor.rate(speeds, &kind(968, true)), Some(500.0));
        let windowed = Floor { kv: Kv { window: 1e3, ..kv }, ..floor };
        let card = Speeds { int8: 0.0, ..speeds };
        assert_eq!(windowed.rate(card, &kind(968, true)), Some(1e9 / 3e6));
        assert_eq!(windowed.rate(card, &kind(512, false)), None);
    }

    #[test]
    fn a_card_reads_the_experts_that_are_used() {
        let made_up = MadeUp::named("gpt-oss-20b").unwrap();
        let floor = Floor::of_file(&ModelFile::made_up("gpt-oss-20b", &made_up));
        let speeds = Machine::card(4.5e12).speeds();
        let rate = floor.rate(speeds, &Kind { name: "", prompt: 4096, decode: true }).unwrap();
        assert!((1600.0..1800.0).contains(&rate), "{rate}");
    }
}
