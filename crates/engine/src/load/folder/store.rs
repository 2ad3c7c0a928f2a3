//! The tensors of a folder as its files name and store them.

use super::super::error::{Fault, LoadError, quoted};
use super::super::json::{self, UniqueMap};
use super::super::region::{MappedFile, Region};
use super::super::safetensors::{self, Dtype};
use crate::limits::{INDEX_JSON_BYTES_MAX, MODEL_FILES_MAX, MODEL_TENSORS_MAX};
use crate::quant::Format;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// All tensors of all files; what is taken out is spoken for.
pub(super) struct Store {
    pub(super) tensors: BTreeMap<String, Stored>,
    pub(super) bytes: u64, // of all files
    pub(super) folder: PathBuf,
}

#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) region: Region,
}

#[derive(Deserialize)]
struct Index {
    weight_map: UniqueMap<String>, // tensor -> file
}

impl Store {
    pub(super) fn open(folder: &Path) -> Result<Store, LoadError> {
        let mut store = Store { tensors: BTreeMap::new(), bytes: 0, folder: folder.to_path_buf() };
        let index_path = folder.join(INDEX);
        let Some(bytes) = json::read(&index_path, INDEX_JSON_BYTES_MAX)? else {
            store.add_file(&folder.join(SINGLE))?;
            return Ok(store);
        };
        let index: Index = json::parse(&index_path, &bytes)?;
        let files = file_names(&index).map_err(|fault| fault.of(&index_path))?;
        for file in files {
            store.add_file(&folder.join(file))?;
        }
        store.check_index(folder, &index)?;
        Ok(store)
    }

    fn add_file(&mut self, path: &Path) -> Result<(), LoadError> {
        let file = MappedFile::open(path)?;
        let len = file.bytes().len() as u64;
        self.bytes += len;
        let header = safetensors::parse_header(file.bytes(), len).map_err(|fault| fault.of(path))?;
        for tensor in header {
            let region = Region::new(&file, tensor.range)
                .ok_or_else(|| Fault::truncated(quoted(&tensor.name), 0, 0).of(path))?;
            let stored = Stored { dtype: tensor.dtype, shape: tensor.shape, region };
            if self.tensors.insert(tensor.name.clone(), stored).is_some() {
                return Err(Fault::damaged(quoted(&tensor.name), "in two files", "each tensor once").of(path));
            }
        }
        if self.tensors.len() > MODEL_TENSORS_MAX {
            let expected = format!("at most {MODEL_TENSORS_MAX}");
            return Err(Fault::damaged("the number of tensors", self.tensors.len(), expected).of(path));
        }
        Ok(())
    }

    /// Every tensor is in the file that the index names.
    fn check_index(&self, folder: &Path, index: &Index) -> Result<(), LoadError> {
        for (name, file) in &index.weight_map.0 {
            let found = self.tensors.get(name).is_some_and(|stored| stored.region.file.path.ends_with(file));
            if !found {
                let expected = format!("in this file, as {INDEX} says");
                return Err(Fault::missing(quoted(name), expected).of(&folder.join(file)));
            }
        }
        Ok(())
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Stored> {
        self.tensors.remove(name)
    }
}

/// The files that the index names. They are in this folder: a path that leads elsewhere is refused.
fn file_names(index: &Index) -> Result<BTreeSet<&str>, Fault> {
    let files: BTreeSet<&str> = index.weight_map.0.iter().map(|(_, file)| file.as_str()).collect();
    if files.is_empty() || files.len() > MODEL_FILES_MAX {
        let expected = format!("1 to {MODEL_FILES_MAX}");
        return Err(Fault::damaged("the number of files in \"weight_map\"", files.len(), expected));
    }
    match files.iter().find(|file| !is_plain_name(file)) {
        Some(file) => {
            let expected = "the name of a .safetensors file in this folder";
            Err(Fault::damaged("a file in \"weight_map\"", quoted(file), expected))
        }
        None => Ok(files),
    }
}

fn is_plain_name(file: &str) -> bool {
    file.ends_with(".safetensors") && !file.starts_with('.') && !file.contains(['/', '\\', '\0', ':'])
}

impl Stored {
    /// Refuses any other shape; `name` is for the message.
    pub(super) fn shaped(&self, name: &str, shape: &[usize]) -> Result<(), LoadError> {
        if self.shape == shape {
            return Ok(());
        }
        let field = format!("the shape of {}", quoted(name));
        Err(Fault::damaged(field, format!("{:?}", self.shape), format!("{shape:?}"))
            .of(&self.region.file.path))
    }

    /// The format of unquantised weights, biases and scales.
    pub(super) fn float(&self, name: &str) -> Result<Format, LoadError> {
        match self.dtype {
            Dtype::F32 => Ok(Format::F32),
            Dtype::F16 => Ok(Format::F16),
            Dtype::Bf16 => Ok(Format::Bf16),
            Dtype::F8E4m3 | Dtype::U8 => Err(self.wrong_dtype(name, "F32, F16 or BF16")),
        }
    }

    pub(super) fn u8(&self, name: &str) -> Result<(), LoadError> {
        if self.dtype == Dtype::U8 { Ok(()) } else { Err(self.wrong_dtype(name, "U8")) }
    }

    fn wrong_dtype(&self, name: &str, expected: &str) -> LoadError {
        let field = format!("the dtype of {}", quoted(name));
        Fault::unsupported(field, self.dtype.name(), expected).of(&self.region.file.path)
    }
}
