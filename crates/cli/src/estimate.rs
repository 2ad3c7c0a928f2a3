//! What fits on a machine's devices, and about how fast it will be. Pure: it is told what there is.

use crate::device::fits;
use crate::models::gigabytes;
use flint_engine::device::cuda::Listed;
use flint_models::catalogue::Entry;

/// The part of a CPU's bandwidth that decoding was measured to use (docs/BENCH.md).
const CPU_SHARE: f64 = 0.85;
const CPU_MIXTURE_SHARE: f64 = 0.65;

/// The part of what its clock and bus say that a card was measured to read.
const CARD_SHARE: f64 = 0.94;

/// What a layer takes beside reading its weights: on an H200 13 to 16 us for each of five models (docs/GPU.md), and three
/// times as much on the general path, which is all that older cards have.
const LAYER_S: f64 = 15e-6;
const OLDER_LAYER_S: f64 = 50e-6;
const ONE_KERNEL_FROM: i32 = 9;

/// Tokens of KV that have to fit beside the weights.
const KV_TOKENS: u64 = 4096;

/// Something that could run a model.
#[derive(Debug, Clone)]
pub enum Place {
    Cpu { free: Option<u64>, read: Option<f64> },
    Card(Listed),
}

/// How a model would do there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    TooLarge,
    Unusable,
    Fits(Option<f64>), // tokens a second, where that can be said
}

impl Place {
    /// A few letters for the head of a column.
    pub fn short_name(&self) -> String {
        match self {
            Place::Cpu { .. } => "this CPU".into(),
            Place::Card(card) => card.name.trim_start_matches("NVIDIA ").chars().take(13).collect(),
        }
    }

    /// What is known of it, in a sentence.
    pub fn describe(&self) -> String {
        match self {
            Place::Cpu { free, read } => {
                let free =
                    free.map_or("unknown memory".into(), |free| format!("{} of memory", gigabytes(free)));
                let read = read.map_or(String::new(), |read| format!(" and reads {:.0} GB/s", read / 1e9));
                format!("This CPU has {free} free{read}.")
            }
            Place::Card(card) => {
                let (major, minor) = card.capability;
                let read = card.bandwidth.map_or(String::new(), |read| {
                    format!(" and reads about {:.0} GB/s", CARD_SHARE * read / 1e9)
                });
                format!("{} (sm_{major}{minor}) has {}{read}.", card.name, gigabytes(card.bytes))
            }
        }
    }

    pub fn verdict(&self, entry: &Entry) -> Verdict {
        match self {
            Place::Cpu { free, read } => {
                let need = entry.bytes + entry.bytes / 20 + entry.kv_bytes_a_token * KV_TOKENS;
                let share = if entry.is_mixture() { CPU_MIXTURE_SHARE } else { CPU_SHARE };
                match free {
                    Some(free) if need > *free => Verdict::TooLarge,
                    _ => Verdict::Fits(read.map(|read| share * read / entry.bytes_a_token as f64)),
                }
            }
            Place::Card(card) if card.check().is_err() => Verdict::Unusable,
            Place::Card(card) if !fits(card, entry.bytes) => Verdict::TooLarge,
            Place::Card(card) => Verdict::Fits(card.bandwidth.map(|read| card_rate(card, read, entry))),
        }
    }
}

fn card_rate(card: &Listed, read: f64, entry: &Entry) -> f64 {
    let newer = card.capability.0 >= ONE_KERNEL_FROM;
    let (layer, fewer) = if newer { (LAYER_S, entry.card_bytes_a_token) } else { (OLDER_LAYER_S, None) };
    let bytes = fewer.unwrap_or(entry.bytes_a_token) as f64;
    1.0 / (bytes / (CARD_SHARE * read) + f64::from(entry.layers) * layer)
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Verdict::TooLarge => "does not fit".to_owned(),
            Verdict::Unusable => "too old".to_owned(),
            Verdict::Fits(None) => "fits".to_owned(),
            Verdict::Fits(Some(rate)) => format!("{} tok/s", rounded(*rate)),
        };
        f.pad(&text)
    }
}

/// Two digits: more would be a promise.
fn rounded(rate: f64) -> f64 {
    let unit = 10f64.powf((rate.max(1.0).log10().floor() - 1.0).max(0.0));
    (rate / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use flint_models::catalogue::{entries, find};

    fn card(name: &str, gib: u64, capability: (i32, i32), gb_a_second: f64) -> Place {
        let bandwidth = (gb_a_second > 0.0).then_some(gb_a_second * 1e9);
        Place::Card(Listed { name: name.into(), bytes: gib << 30, capability, bandwidth })
    }

    fn said(place: &Place) -> Vec<String> {
        entries().iter().map(|entry| format!("{} {}", entry.name, place.verdict(entry))).collect()
    }

    #[test]
    fn a_large_card_comes_near_what_was_measured() {
        let h200 = card("NVIDIA H200", 139, (9, 0), 4_900.0);
        assert_eq!(
            said(&h200),
            [
                "qwen2.5-coder-1.5b 1600 tok/s",
                "smollm2-135m 2100 tok/s",
                "qwen2.5-coder-7b 730 tok/s",
                "gpt-oss-20b 1100 tok/s",
                "qwen3-coder-30b-a3b 880 tok/s",
            ]
        );
        // Measured at 512 tokens with made-up weights (docs/GPU.md).
        for (name, measured) in
            [("gpt-oss-20b", 1090.0), ("qwen2.5-coder-7b", 757.0), ("qwen2.5-coder-1.5b", 1637.0)]
        {
            let Verdict::Fits(Some(rate)) = h200.verdict(find(name).unwrap()) else { panic!("{name}") };
            assert!((0.85..1.15).contains(&(rate / measured)), "{name}: {rate} for {measured}");
        }
        assert_eq!(h200.describe(), "NVIDIA H200 (sm_90) has 149.3 GB and reads about 4606 GB/s.");
        assert_eq!(h200.short_name(), "H200");
    }

    #[test]
    fn a_smaller_card_has_less() {
        let older = card("NVIDIA GeForce RTX 4090", 24, (8, 9), 1_008.0);
        assert_eq!(
            said(&older),
            [
                "qwen2.5-coder-1.5b 410 tok/s",
                "smollm2-135m 620 tok/s",
                "qwen2.5-coder-7b 170 tok/s",
                "gpt-oss-20b 200 tok/s",
                "qwen3-coder-30b-a3b 230 tok/s",
            ]
        );
    }

    #[test]
    fn what_does_not_fit_has_no_speed() {
        let small = card("NVIDIA L4", 16, (8, 9), 300.0);
        assert_eq!(small.verdict(find("gpt-oss-20b").unwrap()).to_string(), "does not fit");
        assert_eq!(small.verdict(find("qwen2.5-coder-7b").unwrap()).to_string(), "59 tok/s");
    }

    #[test]
    fn what_nobody_tells_is_not_made_up() {
        let entry = find("smollm2-135m").unwrap();
        assert_eq!(card("a card", 24, (8, 0), 0.0).verdict(entry).to_string(), "fits");
        assert_eq!(card("a card", 24, (7, 5), 300.0).verdict(entry).to_string(), "too old");
        let unknown = Place::Cpu { free: None, read: None };
        assert_eq!(unknown.verdict(entry), Verdict::Fits(None));
        assert_eq!(unknown.describe(), "This CPU has unknown memory free.");
    }

    #[test]
    fn a_cpu_is_as_fast_as_its_memory() {
        let cpu = Place::Cpu { free: Some(21 << 30), read: Some(33e9) };
        assert_eq!(
            said(&cpu),
            [
                "qwen2.5-coder-1.5b 28 tok/s",
                "smollm2-135m 290 tok/s",
                "qwen2.5-coder-7b 6 tok/s",
                "gpt-oss-20b 6 tok/s",
                "qwen3-coder-30b-a3b 11 tok/s",
            ]
        );
        assert_eq!(cpu.describe(), "This CPU has 22.5 GB of memory free and reads 33 GB/s.");
        let small = Place::Cpu { free: Some(1 << 30), read: Some(33e9) };
        assert_eq!(small.verdict(find("qwen2.5-coder-1.5b").unwrap()), Verdict::TooLarge);
    }
}
