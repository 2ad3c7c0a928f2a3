//! Hugging Face folders: config.json, and safetensors files with an index that says which tensor is where.

mod experts;
mod names;
mod store;
mod weights;

use super::error::{Fault, LoadError};
use super::json;
use super::tokenizer::{self, TokenizerSource};
use super::{Metadata, ModelFile, config};
use crate::limits::{CONFIG_JSON_BYTES_MAX, TOKENIZER_JSON_BYTES_MAX};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The small JSON files of a folder.
#[derive(Debug, Clone)]
pub struct FolderMetadata {
    pub path: PathBuf,
    pub config: Map<String, Value>,
    pub generation_config: Map<String, Value>, // empty when the file is not there
    pub tokenizer_config: Map<String, Value>,  // empty when the file is not there
}

pub(super) fn open(path: &Path) -> Result<ModelFile, LoadError> {
    let metadata = metadata(path)?;
    let config_path = path.join("config.json");
    let config = config::from_folder(&metadata.config).map_err(|fault| fault.of(&config_path))?;
    let store = store::Store::open(path)?;
    let bytes = store.bytes;
    let table = weights::table(store, &config, &metadata.config, &config_path)?;
    Ok(ModelFile {
        path: path.to_path_buf(),
        config,
        metadata: Metadata::Folder(Box::new(metadata)),
        bytes,
        table,
    })
}

fn metadata(path: &Path) -> Result<FolderMetadata, LoadError> {
    let object = |name: &str| json::object(&path.join(name), CONFIG_JSON_BYTES_MAX);
    let config = object("config.json")?;
    Ok(FolderMetadata {
        path: path.to_path_buf(),
        config: config.ok_or_else(|| Fault::missing("config.json", "a file in this folder").of(path))?,
        generation_config: object("generation_config.json")?.unwrap_or_default(),
        tokenizer_config: object("tokenizer_config.json")?.unwrap_or_default(),
    })
}

impl FolderMetadata {
    pub(super) fn tokenizer(&self, vocab: usize) -> Result<TokenizerSource, LoadError> {
        let file = |name: &str, max: u64| json::read(&self.path.join(name), max);
        let json = file("tokenizer.json", TOKENIZER_JSON_BYTES_MAX)?
            .ok_or_else(|| Fault::missing("tokenizer.json", "a file in this folder").of(&self.path))?;
        let template = file("chat_template.jinja", CONFIG_JSON_BYTES_MAX)?;
        tokenizer::from_folder(self, json, template, vocab).map_err(|fault| fault.of(&self.path))
    }
}
