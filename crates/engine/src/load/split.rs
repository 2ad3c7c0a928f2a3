//! Opening GGUF: one file, or several named `…-00001-of-00003.gguf` that share one tensor table.

use super::error::{Fault, LoadError, quoted};
use super::gguf::{self, GgufMetadata, Header, Lies};
use super::region::{MappedFile, Region};
use super::tensor::{Layout, Part, Tensor};
use super::{Metadata, ModelFile, canonical, config, flint, insert};
use crate::limits::MODEL_FILES_MAX;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const COUNT_KEY: &str = "split.count";
const NUMBER_KEY: &str = "split.no";
const TENSORS_KEY: &str = "split.tensors.count";

pub(super) fn open(path: &Path) -> Result<ModelFile, LoadError> {
    let (file, header) = read(path)?;
    let mut table = BTreeMap::new();
    let mut bytes = file.bytes().len() as u64;
    add_tensors(&mut table, &file, &header)?;
    let own = header.own;
    let metadata = GgufMetadata::new(header, file.clone());
    if own {
        return flint::open(metadata, table, bytes);
    }
    for (number, shard) in later_files(path, &metadata)?.iter().enumerate() {
        bytes += add_shard(&mut table, shard, number as u64 + 1, &metadata)?;
    }
    check_tensor_count(&metadata, table.len()).map_err(|fault| fault.of(path))?;
    let config = config::from_gguf(&metadata, &table).map_err(|fault| fault.of(path))?;
    Ok(ModelFile { path: path.to_path_buf(), config, metadata: Metadata::Gguf(metadata), bytes, table })
}

fn read(path: &Path) -> Result<(Arc<MappedFile>, Header), LoadError> {
    let file = MappedFile::open(path)?;
    let header = gguf::parse(file.bytes()).map_err(|fault| fault.of(path))?;
    Ok((file, header))
}

fn add_tensors(
    table: &mut BTreeMap<String, Tensor>,
    file: &Arc<MappedFile>,
    header: &Header,
) -> Result<(), LoadError> {
    for info in &header.tensors {
        let data = Region::new(file, info.offset..info.offset + info.len)
            .ok_or_else(|| Fault::truncated(quoted(&info.name), info.len as u64, 0).of(&file.path))?;
        let parts = vec![Part { data, scales: None }];
        let rows = info.shape.iter().rev().nth(1).copied().unwrap_or(1); // of a matrix
        let layout = match info.lies {
            Lies::Rows => Layout::PLAIN,
            Lies::Panels => Layout::Panels { rows },
            Lies::Tiles => Layout::Tiles { rows },
        };
        let tensor = Tensor::new(canonical(&info.name), info.shape.clone(), info.format, layout, parts);
        insert(table, tensor.map_err(|fault| fault.of(&file.path))?)?;
    }
    Ok(())
}

/// The paths of a split model's other files; none when the model is one file.
fn later_files(path: &Path, metadata: &GgufMetadata) -> Result<Vec<PathBuf>, LoadError> {
    let count = metadata.whole(COUNT_KEY).map_err(|fault| fault.of(path))?.unwrap_or(1);
    if count <= 1 {
        return Ok(Vec::new());
    }
    if count > MODEL_FILES_MAX as u64 {
        let expected = format!("at most {MODEL_FILES_MAX}");
        return Err(Fault::damaged(quoted(COUNT_KEY), count, expected).of(path));
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(stem) = name.strip_suffix(&format!("-00001-of-{count:05}.gguf")) else {
        let expected = format!("…-00001-of-{count:05}.gguf, the first of {count} files");
        return Err(Fault::unsupported("the file's name", quoted(name), expected).of(path));
    };
    Ok((2..=count)
        .map(|number| path.with_file_name(format!("{stem}-{number:05}-of-{count:05}.gguf")))
        .collect())
}

/// Adds the tensors of file `number` (the first is 0) and says how long it is.
fn add_shard(
    table: &mut BTreeMap<String, Tensor>,
    path: &Path,
    number: u64,
    first: &GgufMetadata,
) -> Result<u64, LoadError> {
    let (file, header) = read(path)?;
    let shard = GgufMetadata::new(header.clone(), file.clone());
    let same = |key: &str, expected: Option<u64>| match shard.whole(key)? {
        found if found == expected => Ok(()),
        Some(found) => Err(Fault::damaged(quoted(key), found, expected.unwrap_or(0))),
        None => Err(Fault::missing(quoted(key), expected.unwrap_or(0))),
    };
    let checked = same(NUMBER_KEY, Some(number));
    let checked = checked.and_then(|()| same(COUNT_KEY, first.whole(COUNT_KEY)?));
    checked.map_err(|fault| fault.of(path))?;
    add_tensors(table, &file, &header)?;
    Ok(file.bytes().len() as u64)
}

fn check_tensor_count(metadata: &GgufMetadata, found: usize) -> Result<(), Fault> {
    match metadata.whole(TENSORS_KEY)? {
        Some(expected) if expected != found as u64 => {
            Err(Fault::damaged("the number of tensors in all files", found, expected))
        }
        _ => Ok(()),
    }
}
