//! The pre-tokenizer patterns that GGUF files name instead of carrying.
//!
//! Each is the pattern of the original `tokenizer.json`, so ids are those the model was trained on.

use crate::error::TextError;

pub(super) const GPT2: &[&str] =
    &[r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"];

pub(super) const SMOLLM: &[&str] = &[r"\p{N}", GPT2[0]];

pub(super) const QWEN2: &[&str] = &[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

pub(super) const QWEN35: &[&str] = &[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

pub(super) const LLAMA3: &[&str] = &[
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

pub(super) const GPT4O: &[&str] = &[
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// What llama.cpp does for files that name no pre-tokenizer: there is no original to follow.
pub(super) const DEFAULT: &[&str] = &[r"[\p{P}\$\+<=>\^~\|]+", GPT2[0], r"\p{N}+", r"[0-9][0-9][0-9]"];

/// How the text of one family of models is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Preparation {
    pub(super) patterns: &'static [&'static str],
    pub(super) nfc: bool,         // canonical composition comes first
    pub(super) whole_words: bool, // a piece that is a token is that token, whatever the merges say
    pub(super) add_bos: bool,     // when the file does not say
}

/// The preparation that `tokenizer.ggml.pre` names.
pub(super) fn preparation(pre: &str) -> Result<Preparation, TextError> {
    let plain = |patterns| Preparation { patterns, nfc: false, whole_words: false, add_bos: false };
    Ok(match pre {
        "smollm" | "starcoder" | "refact" => plain(SMOLLM),
        "gpt-2" | "mpt" | "olmo" | "phi-2" => plain(GPT2),
        "qwen2" | "deepseek-r1-qwen" => Preparation { nfc: true, ..plain(QWEN2) },
        "qwen35" => Preparation { nfc: true, ..plain(QWEN35) },
        "llama-bpe" | "llama3" | "llama-v3" => {
            Preparation { whole_words: true, add_bos: true, ..plain(LLAMA3) }
        }
        "gpt-4o" => Preparation { whole_words: true, ..plain(GPT4O) },
        "default" | "" => plain(DEFAULT),
        _ => {
            let known = "smollm, starcoder, refact, gpt-2, mpt, olmo, phi-2, qwen2, deepseek-r1-qwen, \
                         qwen35, llama-bpe, gpt-4o, default";
            let problem = format!("unknown pre-tokenizer {pre:?}; known are {known}");
            return Err(TextError::tokenizer("tokenizer.ggml.pre", problem));
        }
    })
}
