//! Flint's own files: one file with everything that a model is, its matrices as a device reads them.
//!
//! The structure is GGUF's. A file that was made of a GGUF file has its keys; one that was made of a folder has the folder's
//! small files as they were, each under a key. `quantize` writes them.

use super::error::{Fault, LoadError};
use super::folder::FolderMetadata;
use super::gguf::{self, GgufMetadata};
use super::region::MappedFile;
use super::tensor::Tensor;
use super::{Metadata, ModelFile, config};
use std::collections::BTreeMap;
use std::path::Path;

/// Before the names of a folder's files.
pub(crate) const FILE_PREFIX: &str = "flint.file.";
/// How matrices lie, in a word.
pub(crate) const LAYOUT_KEY: &str = "flint.layout";
/// The SHA-256 of all data, as hexadecimal digits.
pub const DIGEST_KEY: &str = "flint.data_sha256";

/// The files of a folder that are kept.
pub(crate) const FILES: [&str; 5] = [
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "chat_template.jinja",
];

pub(super) fn open(
    metadata: GgufMetadata,
    table: BTreeMap<String, Tensor>,
    bytes: u64,
) -> Result<ModelFile, LoadError> {
    let path = metadata.path().to_path_buf();
    let fault = |fault: Fault| fault.of(&path);
    if metadata.text(LAYOUT_KEY).map_err(fault)?.is_none() {
        return Err(fault(Fault::missing(LAYOUT_KEY, "the name of a layout")));
    }
    let of_folder = metadata.text(&format!("{FILE_PREFIX}config.json")).map_err(fault)?.is_some();
    let (config, metadata) = if of_folder {
        let folder = FolderMetadata::inside(metadata)?;
        (config::from_folder(&folder.config).map_err(fault)?, Metadata::Folder(Box::new(folder)))
    } else {
        (config::from_gguf(&metadata, &table).map_err(fault)?, Metadata::Gguf(metadata))
    };
    Ok(ModelFile { path, config, metadata, bytes, table })
}

/// The digest that a file names, and where the data begins that it is of.
pub(crate) fn digest(path: &Path) -> Result<(String, u64), LoadError> {
    let file = MappedFile::open(path)?;
    let header = gguf::parse(file.bytes()).map_err(|fault| fault.of(path))?;
    let data = header.data as u64;
    let metadata = GgufMetadata::new(header, file);
    let digest = metadata.text(DIGEST_KEY).map_err(|fault| fault.of(path))?;
    let missing = || Fault::missing(DIGEST_KEY, "a SHA-256: only files of flint quantize have one").of(path);
    Ok((digest.ok_or_else(missing)?.to_owned(), data))
}
