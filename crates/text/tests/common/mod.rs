//! Where the tests find real tokenizers, and the little of GGUF that holds one.
#![allow(dead_code)] // each test binary uses its own part

pub(crate) mod cases;
pub(crate) mod corpus;

use flint_text::{GgufVocab, Tokenizer};
use std::path::PathBuf;

/// A file of the cache that `cargo xtask test` fills.
pub(crate) fn cached(path: &str) -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    let file = cache.join("flint").join(path);
    assert!(file.exists(), "{} is missing: run `cargo xtask test`, which fetches it", file.display());
    file
}

pub(crate) fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(path)
}

/// FNV-1a, 64 bits, over whole numbers as four bytes each.
pub(crate) fn fnv(values: impl IntoIterator<Item = u32>) -> String {
    let hash = values
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    format!("{hash:016x}")
}

pub(crate) fn json_tokenizer(name: &str) -> Tokenizer {
    let file = cached(&format!("tokenizers/{name}/tokenizer.json"));
    Tokenizer::from_json(&std::fs::read(file).unwrap()).unwrap()
}

/// The `chat_template` of a Hugging Face `tokenizer_config.json`.
pub(crate) fn json_template(name: &str) -> String {
    let file = cached(&format!("tokenizers/{name}/tokenizer_config.json"));
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    config["chat_template"].as_str().unwrap().to_owned()
}

pub(crate) struct Gguf {
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: Option<String>,
}

pub(crate) fn gguf_tokenizer(name: &str) -> Gguf {
    use std::io::Read;
    let mut head = Vec::new();
    let file = std::fs::File::open(cached(&format!("models/{name}.gguf"))).unwrap();
    file.take(32 << 20).read_to_end(&mut head).unwrap(); // the metadata comes first
    let (vocab, template) = Reader { bytes: &head }.metadata();
    Gguf { tokenizer: Tokenizer::from_gguf(vocab).unwrap(), template }
}

/// A trusting reader of GGUF metadata: the engine has the one for files from outside.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take(&mut self, len: usize) -> &[u8] {
        let (taken, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        taken
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }

    fn string(&mut self) -> String {
        let len = self.u64() as usize;
        String::from_utf8(self.take(len).to_vec()).unwrap()
    }

    fn metadata(mut self) -> (GgufVocab, Option<String>) {
        assert_eq!(self.take(4), b"GGUF");
        let (_version, _tensors, pairs) = (self.u32(), self.u64(), self.u64());
        let mut vocab = GgufVocab::default();
        let mut template = None;
        for _ in 0..pairs {
            let key = self.string();
            match (key.as_str(), self.u32()) {
                ("tokenizer.ggml.model", 8) => vocab.model = self.string(),
                ("tokenizer.ggml.pre", 8) => vocab.pre = self.string(),
                ("tokenizer.ggml.tokens", 9) => vocab.tokens = self.array(Self::string),
                ("tokenizer.ggml.merges", 9) => vocab.merges = self.array(Self::string),
                ("tokenizer.ggml.token_type", 9) => vocab.types = self.array(|r| r.u32() as i32),
                ("tokenizer.ggml.scores", 9) => vocab.scores = self.array(|r| f32::from_bits(r.u32())),
                ("tokenizer.ggml.bos_token_id", 4) => vocab.bos = Some(self.u32()),
                ("tokenizer.ggml.eos_token_id", 4) => vocab.ends.push(self.u32()),
                ("tokenizer.ggml.add_bos_token", 7) => vocab.add_bos = Some(self.take(1)[0] != 0),
                ("tokenizer.chat_template", 8) => template = Some(self.string()),
                (_, kind) => self.skip(kind),
            }
        }
        (vocab, template)
    }

    fn array<T>(&mut self, item: impl Fn(&mut Self) -> T) -> Vec<T> {
        let (_kind, len) = (self.u32(), self.u64());
        (0..len).map(|_| item(self)).collect()
    }

    fn skip(&mut self, kind: u32) {
        match kind {
            8 => drop(self.string()),
            9 => {
                let (kind, len) = (self.u32(), self.u64());
                (0..len).for_each(|_| self.skip(kind));
            }
            0 | 1 | 7 => drop(self.take(1)),
            2 | 3 => drop(self.take(2)),
            4..=6 => drop(self.take(4)),
            _ => drop(self.take(8)),
        }
    }
}
