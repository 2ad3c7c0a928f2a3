//! The sizes and constants of one model, whatever file they came from.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    Llama,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    GptOss,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub arch: Arch,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub ffn: usize, // width of the dense MLP, or of one expert
    pub experts: Option<Experts>,
    pub vocab: usize,
    pub context: usize, // tokens
    pub norm_eps: f32,
    pub rope: Rope,
    pub window: Option<usize>, // tokens seen by the windowed layers: the even ones, counted from 0
}

#[derive(Debug, Clone, PartialEq)]
pub struct Experts {
    pub count: usize,
    pub used: usize,     // experts a token goes through
    pub normalize: bool, // weights of the used experts sum to 1
}

/// Rotary embedding, with the scaling of long-context models already worked in.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pub frequencies: Vec<f32>, // (head_dim / 2) radians a position
    pub magnitude: f32,        // factor on sine and cosine (YaRN's attention factor), otherwise 1
    pub pairs: RopePairs,
}

/// Which two values of a head turn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopePairs {
    Halves,   // i and i + head_dim / 2 (Hugging Face)
    Adjacent, // 2i and 2i + 1 (GGUF files of the llama architecture)
}

impl Arch {
    pub const ALL: [Arch; 5] = [Arch::Llama, Arch::Qwen2, Arch::Qwen3, Arch::Qwen3Moe, Arch::GptOss];

    /// `general.architecture` of GGUF files.
    pub fn gguf_name(self) -> &'static str {
        match self {
            Arch::Llama => "llama",
            Arch::Qwen2 => "qwen2",
            Arch::Qwen3 => "qwen3",
            Arch::Qwen3Moe => "qwen3moe",
            Arch::GptOss => "gpt-oss",
        }
    }

    /// `model_type` of Hugging Face folders.
    pub fn hf_name(self) -> &'static str {
        match self {
            Arch::Llama => "llama",
            Arch::Qwen2 => "qwen2",
            Arch::Qwen3 => "qwen3",
            Arch::Qwen3Moe => "qwen3_moe",
            Arch::GptOss => "gpt_oss",
        }
    }

    /// Each layer is a mixture of experts.
    pub fn has_experts(self) -> bool {
        match self {
            Arch::Llama | Arch::Qwen2 | Arch::Qwen3 => false,
            Arch::Qwen3Moe | Arch::GptOss => true,
        }
    }
}

impl Config {
    /// How many tokens back the attention of `layer` sees, itself included; `None`: all.
    pub fn window(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| layer.is_multiple_of(2))
    }
}
