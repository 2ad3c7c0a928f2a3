//! Model files. Everything in them is hostile until it has been checked here.
//!
//! `ModelFile::open` maps a GGUF file (or all files of a split one), a file of Flint's own or a Hugging Face folder, checks every
//! length, offset and shape, reads the configuration, and compares the tensor table with what the
//! architecture needs. What it returns can be run without looking back.

mod check;
mod config;
mod error;
mod fields;
pub(crate) mod flint;
mod folder;
pub mod gguf;
mod json;
mod made_up;
mod reader;
mod region;
mod rope;
pub mod safetensors;
mod split;
mod tensor;
mod tokenizer;

pub use error::{Fault, LoadError};
pub use folder::FolderMetadata;
pub use gguf::GgufMetadata;
pub use made_up::MadeUp;
pub use tensor::Tensor;
pub use tokenizer::{GgufVocabulary, TokenizerSource, Vocabulary};

use crate::limits::MODEL_TENSORS_MAX;
use crate::model::config::Config;
use crate::quant::Format;
use error::quoted;
use gguf::{ALIGNMENT_KEY, string_pair};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A model that was checked and can be run.
#[derive(Debug)]
pub struct ModelFile {
    pub path: PathBuf,
    pub config: Config,
    pub metadata: Metadata,
    pub bytes: u64, // of all weights files
    table: BTreeMap<String, Tensor>,
}

/// What the files say beside the weights.
#[derive(Debug, Clone)]
pub enum Metadata {
    Gguf(GgufMetadata),
    Folder(Box<FolderMetadata>),
    MadeUp,
}

impl ModelFile {
    /// Opens a GGUF file, the first file of a split GGUF, a file of Flint's own, or a Hugging Face folder.
    pub fn open(path: &Path) -> Result<ModelFile, LoadError> {
        let model = if path.is_dir() { folder::open(path)? } else { split::open(path)? };
        check::table(&model)?;
        Ok(model)
    }

    /// The tensor of this canonical (GGUF) name.
    pub fn tensor(&self, name: &str) -> Result<Tensor, LoadError> {
        self.find(name).ok_or_else(|| Fault::missing(quoted(name), "a tensor").of(&self.path))
    }

    pub fn find(&self, name: &str) -> Option<Tensor> {
        self.table.get(&canonical(name)).cloned()
    }

    /// All tensors, by name.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.table.values()
    }

    /// Gives back the memory of all mapped pages: a device has its own copy of what it needs.
    pub fn release(&self) {
        self.table.values().for_each(Tensor::release_files);
    }

    /// The output matrix is the token embedding.
    pub fn tied(&self) -> bool {
        !self.table.contains_key("output.weight")
    }

    /// Some of its matrices lie in the tiles of cards.
    pub fn is_for_cards(&self) -> bool {
        self.table.values().any(|tensor| tensor.tiles().is_some())
    }

    /// What the files say beside the weights, as key/value pairs of GGUF that say the same in a file of Flint's own.
    pub(crate) fn pairs(&self) -> Result<Vec<Vec<u8>>, LoadError> {
        let kept =
            |key: &str| !key.starts_with("split.") && !key.starts_with("flint.") && key != ALIGNMENT_KEY;
        match &self.metadata {
            Metadata::Gguf(metadata) => {
                let pairs = metadata.pairs().filter(|(key, _)| kept(key));
                Ok(pairs.map(|(_, bytes)| bytes.to_vec()).collect())
            }
            Metadata::Folder(metadata) => {
                let pair = |name: &&str| {
                    let bytes = metadata.file(name).transpose()?;
                    Some(bytes.map(|bytes| string_pair(&format!("{}{name}", flint::FILE_PREFIX), &bytes)))
                };
                flint::FILES.iter().filter_map(pair).collect()
            }
            Metadata::MadeUp => Ok(Vec::new()),
        }
    }

    /// Every tensor that the model has and whether it is a matrix, in the order in which they are loaded.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (&Tensor, bool)> {
        check::in_order(&self.config).filter_map(|(name, matrix)| Some((self.table.get(&name)?, matrix)))
    }

    /// What a tokenizer is built from.
    pub fn tokenizer(&self) -> Result<TokenizerSource, LoadError> {
        let vocab = self.config.vocab;
        match &self.metadata {
            Metadata::Gguf(metadata) => {
                tokenizer::from_gguf(metadata, vocab).map_err(|fault| fault.of(&self.path))
            }
            Metadata::Folder(metadata) => metadata.tokenizer(vocab),
            Metadata::MadeUp => Err(Fault::missing("the tokenizer", "a model with text").of(&self.path)),
        }
    }
}

/// One name for one thing: GGUF files of gpt-oss call the norm before the experts after what it follows.
fn canonical(name: &str) -> String {
    name.replace(".post_attention_norm.", ".ffn_norm.")
}

/// Bytes of a tensor, when its shape is sane: no dimension is 0, no product overflows, rows are whole blocks.
fn size_in_bytes(name: &str, shape: &[usize], format: Format) -> Result<usize, Fault> {
    let wrong = |expected: String| {
        let field = format!("the shape of {}", quoted(name));
        Fault::damaged(field, format!("{shape:?}"), expected)
    };
    if shape.contains(&0) {
        return Err(wrong("sizes of at least 1".into()));
    }
    let cols = shape.last().copied().unwrap_or(1);
    if !cols.is_multiple_of(format.block_len()) {
        return Err(wrong(format!("rows of whole {} blocks of {}", format.name(), format.block_len())));
    }
    let row = (cols / format.block_len()).checked_mul(format.block_bytes());
    let bytes = shape.iter().rev().skip(1).try_fold(row, |bytes, size| Some(bytes?.checked_mul(*size)));
    bytes
        .flatten()
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or_else(|| wrong("a size that fits".into()))
}

/// Adds a tensor to the table; names are given once, over all files.
fn insert(table: &mut BTreeMap<String, Tensor>, tensor: Tensor) -> Result<(), LoadError> {
    let file = tensor.file().to_path_buf();
    if table.len() >= MODEL_TENSORS_MAX {
        let expected = format!("at most {MODEL_TENSORS_MAX}");
        return Err(Fault::damaged("the number of tensors", "more", expected).of(&file));
    }
    let name = tensor.name.clone();
    match table.insert(name.clone(), tensor) {
        None => Ok(()),
        Some(_) => Err(Fault::damaged(quoted(&name), "there twice", "each tensor once").of(&file)),
    }
}
