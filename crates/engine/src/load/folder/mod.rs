//! Hugging Face folders: config.json, and safetensors files with an index that says which tensor is where.

mod experts;
mod names;
mod store;
mod weights;

use super::error::{Fault, LoadError, quoted};
use super::flint::FILE_PREFIX;
use super::gguf::GgufMetadata;
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
    place: Place,
}

/// Where the files are.
#[derive(Debug, Clone)]
enum Place {
    Folder(PathBuf),
    /// Within a file of Flint's own.
    Inside(Box<GgufMetadata>),
}

impl Place {
    fn read(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>, LoadError> {
        match self {
            Place::Folder(path) => json::read(&path.join(name), max),
            Place::Inside(metadata) => {
                let key = format!("{FILE_PREFIX}{name}");
                let text = metadata.text(&key).map_err(|fault| fault.of(metadata.path()))?;
                match text {
                    Some(text) if text.len() as u64 > max => {
                        let expected = format!("at most {max} bytes");
                        Err(Fault::damaged(quoted(&key), "longer", expected).of(metadata.path()))
                    }
                    text => Ok(text.map(|text| text.as_bytes().to_vec())),
                }
            }
        }
    }

    fn object(&self, name: &str) -> Result<Option<Map<String, Value>>, LoadError> {
        let bytes = self.read(name, CONFIG_JSON_BYTES_MAX)?;
        bytes.map(|bytes| json::parse(&self.path_of(name), &bytes)).transpose()
    }

    fn path(&self) -> &Path {
        match self {
            Place::Folder(path) => path,
            Place::Inside(metadata) => metadata.path(),
        }
    }

    /// What a complaint about a file names.
    fn path_of(&self, name: &str) -> PathBuf {
        match self {
            Place::Folder(path) => path.join(name),
            Place::Inside(metadata) => metadata.path().to_path_buf(),
        }
    }
}

pub(super) fn open(path: &Path) -> Result<ModelFile, LoadError> {
    let metadata = metadata(Place::Folder(path.to_path_buf()))?;
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

fn metadata(place: Place) -> Result<FolderMetadata, LoadError> {
    let missing = || Fault::missing("config.json", "a file in this folder").of(place.path());
    Ok(FolderMetadata {
        path: place.path().to_path_buf(),
        config: place.object("config.json")?.ok_or_else(missing)?,
        generation_config: place.object("generation_config.json")?.unwrap_or_default(),
        tokenizer_config: place.object("tokenizer_config.json")?.unwrap_or_default(),
        place,
    })
}

impl FolderMetadata {
    /// The files that a file of Flint's own has within.
    pub(super) fn inside(metadata: GgufMetadata) -> Result<FolderMetadata, LoadError> {
        self::metadata(Place::Inside(Box::new(metadata)))
    }

    /// The bytes of a file; `None` when it is not there.
    pub(super) fn file(&self, name: &str) -> Result<Option<Vec<u8>>, LoadError> {
        let max = if name == "tokenizer.json" { TOKENIZER_JSON_BYTES_MAX } else { CONFIG_JSON_BYTES_MAX };
        self.place.read(name, max)
    }

    pub(super) fn tokenizer(&self, vocab: usize) -> Result<TokenizerSource, LoadError> {
        let json = self
            .file("tokenizer.json")?
            .ok_or_else(|| Fault::missing("tokenizer.json", "a file in this folder").of(&self.path))?;
        let template = self.file("chat_template.jinja")?;
        tokenizer::from_folder(self, json, template, vocab).map_err(|fault| fault.of(&self.path))
    }
}
