//! Models without files: the exact sizes and formats of known ones, with weights made up row by row. For measuring speed,
//! and for comparing devices.

use super::rope::{Scaling, Yarn, rope};
use super::{Metadata, ModelFile, Tensor, check};
use crate::model::config::{Arch, Config, Experts, RopePairs};
use crate::quant::Format;
use half::{bf16, f16};

/// What is made up.
#[derive(Debug, Clone)]
pub struct MadeUp {
    pub config: Config,
    pub matrices: Format, // attention, dense layers and head
    pub experts: Format,
    pub tied: bool, // the output matrix is the token embedding
}

/// How a row's values are spread, and what they come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) seed: u64,
    pub(super) middle: f32,
    pub(super) size: f32, // their standard deviation, about
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Near enough to a normal distribution: the sum of four uniform ones.
    fn normal(&mut self) -> f32 {
        let bits = self.next();
        let sum: f32 = (0..4).map(|i| (bits >> (16 * i) & 0xFFFF) as f32 / 65536.0).sum();
        (sum - 2.0) * 3f32.sqrt()
    }
}

impl Spread {
    /// Row `row` of `cols` values in the blocks of a format.
    pub(super) fn row(&self, format: Format, row: usize, cols: usize, out: &mut Vec<u8>) {
        let mut random = Random(self.seed ^ (row as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93));
        out.clear();
        for block in 0..cols / format.block_len() {
            let start = out.len();
            while out.len() < start + format.block_bytes() {
                match format {
                    Format::F32 => {
                        out.extend((self.middle + self.size * random.normal()).to_le_bytes());
                    }
                    Format::Bf16 => {
                        let value = bf16::from_f32(self.middle + self.size * random.normal());
                        out.extend(value.to_le_bytes());
                    }
                    _ => out.extend(random.next().to_le_bytes()),
                }
            }
            out.truncate(start + format.block_bytes());
            self.scale(format, block, &mut out[start..]);
        }
    }

    /// Gives a block of random codes its scale.
    fn scale(&self, format: Format, block: usize, bytes: &mut [u8]) {
        match format {
            // Codes have a deviation of about 3.
            Format::Mxfp4 => bytes[0] = (127.0 + (self.size / 3.0).log2()).floor() as u8,
            // Levels of 74; a row has one scale, and its largest level once at least.
            Format::Q8_0 => {
                bytes[..2].copy_from_slice(&f16::from_f32(self.size / 74.0).to_le_bytes());
                bytes[2..].iter_mut().filter(|level| **level == 0x80).for_each(|level| *level = 0);
                if block == 0 {
                    bytes[2] = 127;
                }
            }
            // Half of the levels lie below zero, in every group: its minimum has its scale's six bits.
            Format::Q4K => {
                bytes[..2].copy_from_slice(&f16::from_f32(self.size / 170.0).to_le_bytes());
                bytes[2..4].copy_from_slice(&f16::from_f32(7.5 * self.size / 170.0).to_le_bytes());
                bytes.copy_within(4..8, 8);
                bytes[12..16].iter_mut().for_each(|both| *both = (*both & 15) * 17);
            }
            _ => {}
        }
    }
}

fn named_config(name: &str) -> Option<Config> {
    let (arch, sizes, experts, vocab) = match name {
        "gpt-oss-20b" => (Arch::GptOss, [24, 2880, 64, 8, 64, 2880], Some((32, 4)), 201_088),
        "gpt-oss-120b" => (Arch::GptOss, [36, 2880, 64, 8, 64, 2880], Some((128, 4)), 201_088),
        "qwen3-coder-30b-a3b" => (Arch::Qwen3Moe, [48, 2048, 32, 4, 128, 768], Some((128, 8)), 151_936),
        "qwen2.5-coder-7b" => (Arch::Qwen2, [28, 3584, 28, 4, 128, 18_944], None, 152_064),
        "qwen2.5-coder-1.5b" => (Arch::Qwen2, [28, 1536, 12, 2, 128, 8960], None, 151_936),
        _ => return None,
    };
    let [layers, hidden, heads, kv_heads, head_dim, ffn] = sizes;
    let (base, context, norm_eps) = match arch {
        Arch::GptOss => (150_000.0, 131_072, 1e-5),
        Arch::Qwen3Moe => (1e7, 262_144, 1e-6),
        Arch::Llama | Arch::Qwen2 | Arch::Qwen3 => (1e6, 32_768, 1e-6),
    };
    let yarn =
        Yarn { factor: 32.0, context: 4096.0, fast: 32.0, slow: 1.0, truncate: false, magnitude: None };
    let scaling = if arch == Arch::GptOss { Scaling::Yarn(yarn) } else { Scaling::None };
    Some(Config {
        arch,
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim,
        ffn,
        experts: experts.map(|(count, used)| Experts { count, used, normalize: true }),
        vocab,
        context,
        norm_eps,
        rope: rope(base, head_dim, &scaling, RopePairs::Halves).ok()?,
        window: (arch == Arch::GptOss).then_some(128),
    })
}

impl MadeUp {
    pub const NAMES: [&str; 5] =
        ["gpt-oss-20b", "gpt-oss-120b", "qwen3-coder-30b-a3b", "qwen2.5-coder-7b", "qwen2.5-coder-1.5b"];

    /// A published model's sizes, in the formats that its files usually have.
    pub fn named(name: &str) -> Option<MadeUp> {
        let config = named_config(name)?;
        let (matrices, experts) = match config.arch {
            Arch::GptOss => (Format::Q8_0, Format::Mxfp4),
            _ => (Format::Q4K, Format::Q4K),
        };
        Some(MadeUp { config, matrices, experts, tied: name == "qwen2.5-coder-1.5b" })
    }

    /// The format of a tensor, and how its values are spread.
    fn tensor(&self, name: &str, shape: &[usize], index: usize) -> Tensor {
        let cols = shape.last().copied().unwrap_or(1);
        let seed = (index as u64 + 1) << 40;
        let matrix = 1.0 / (cols as f32).sqrt();
        let (format, middle, size) = match name.rsplit_once('.').unwrap_or((name, "")) {
            (norm, _) if norm.ends_with("norm") => (Format::F32, 1.0, 0.2),
            (sinks, _) if sinks.ends_with("sinks") => (Format::F32, 0.0, 1.0),
            (_, "bias") => (Format::F32, 0.0, 0.1),
            ("token_embd", _) if self.tied => (self.matrices, 0.0, matrix),
            ("token_embd", _) => (Format::Bf16, 0.0, 1.0),
            (router, _) if router.ends_with("gate_inp") => (Format::Bf16, 0.0, matrix),
            (experts, _) if experts.ends_with("exps") => (self.experts, 0.0, matrix),
            _ => (self.matrices, 0.0, matrix),
        };
        Tensor::made_up(name, shape, format, Spread { seed, middle, size })
    }
}

impl ModelFile {
    /// A model that is nowhere: its weights are made up when they are read.
    pub fn made_up(name: &str, made_up: &MadeUp) -> ModelFile {
        let wanted = check::shapes(&made_up.config);
        let wanted = wanted.into_iter().filter(|(name, _)| !made_up.tied || name != "output.weight");
        let table: std::collections::BTreeMap<String, Tensor> = wanted
            .enumerate()
            .map(|(index, (name, shape))| (name.clone(), made_up.tensor(&name, &shape, index)))
            .collect();
        ModelFile {
            path: name.into(),
            config: made_up.config.clone(),
            metadata: Metadata::MadeUp,
            bytes: table.values().map(|tensor| tensor.bytes() as u64).sum(),
            table,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_weights_of_a_sensible_size() {
        for name in MadeUp::NAMES {
            let file = ModelFile::made_up(name, &MadeUp::named(name).unwrap());
            check::table(&file).unwrap();
            for tensor in file.tensors().filter(|tensor| tensor.name.contains("blk.0.")) {
                let mut values = vec![0.0; tensor.cols()];
                tensor.row_f32(tensor.rows() - 1, &mut values);
                let mean = values.iter().sum::<f32>() / values.len() as f32;
                let rms = (values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32).sqrt();
                let size = rms * (tensor.cols() as f32).sqrt();
                let is_matrix = tensor.shape.len() > 1 && !tensor.name.ends_with("bias");
                assert!(mean.is_finite() && rms > 1e-3, "{}: {mean} {rms}", tensor.name);
                assert!(!is_matrix || (0.5..2.5).contains(&size), "{}: {size}", tensor.name);
            }
        }
        assert_eq!(MadeUp::named("gpt-oss-20b").unwrap().config.layers, 24);
        assert!(MadeUp::named("gpt-oss-21b").is_none());
    }

    #[test]
    fn rows_differ_and_come_again() {
        let made_up = MadeUp::named("gpt-oss-20b").unwrap();
        let tensor = |name: &str| ModelFile::made_up("x", &made_up).tensor(name).unwrap();
        let row = |name: &str, row: usize| {
            let mut bytes = Vec::new();
            tensor(name).row_blocks(row, &mut bytes).to_vec()
        };
        assert_eq!(row("blk.0.attn_q.weight", 3), row("blk.0.attn_q.weight", 3));
        assert_ne!(row("blk.0.attn_q.weight", 3), row("blk.0.attn_q.weight", 4));
        assert_ne!(row("blk.0.attn_q.weight", 3), row("blk.1.attn_q.weight", 3));
    }
}
