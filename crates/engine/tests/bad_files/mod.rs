//! Bad files: each a name, the files, what to open, and words that the complaint must have.

pub(crate) mod cases_config;
pub(crate) mod cases_flint;
pub(crate) mod cases_folder;
pub(crate) mod cases_gguf;
pub(crate) mod cases_safetensors;
pub(crate) mod cases_table;
pub(crate) mod folder_writer;
pub(crate) mod gguf_writer;
pub(crate) mod temporary;
pub(crate) mod tiny;

use folder_writer::{Files, FolderWriter};
use gguf_writer::GgufWriter;

pub(crate) struct Bad {
    pub(crate) name: &'static str,
    pub(crate) files: Files,
    pub(crate) open: &'static str, // "": the folder itself
    pub(crate) expected: Vec<&'static str>,
}

/// One bad GGUF file.
pub(crate) fn gguf(name: &'static str, bytes: Vec<u8>, expected: &[&'static str]) -> Bad {
    let files = Files::from([("model.gguf".into(), bytes)]);
    Bad { name, files, open: "model.gguf", expected: expected.to_vec() }
}

/// The tiny model of `arch` with something changed.
pub(crate) fn changed(
    name: &'static str,
    arch: &str,
    change: impl Fn(&mut GgufWriter),
    expected: &[&'static str],
) -> Bad {
    let mut file = tiny::gguf(arch);
    change(&mut file);
    gguf(name, file.write(), expected)
}

/// The tiny model of `arch` without a key.
pub(crate) fn without(name: &'static str, arch: &str, key: &str, expected: &[&'static str]) -> Bad {
    changed(name, arch, |file| file.remove(key), expected)
}

/// The tiny folder of `arch` with something changed.
pub(crate) fn folder(
    name: &'static str,
    arch: &str,
    change: impl Fn(&mut FolderWriter),
    expected: &[&'static str],
) -> Bad {
    let mut folder = tiny::folder(arch);
    change(&mut folder);
    Bad { name, files: folder.files(), open: "", expected: expected.to_vec() }
}

pub(crate) fn all() -> Vec<Bad> {
    let mut all = cases_gguf::cases();
    all.extend(cases_config::cases());
    all.extend(cases_table::cases());
    all.extend(cases_safetensors::cases());
    all.extend(cases_folder::cases());
    all.extend(cases_flint::cases());
    all
}
