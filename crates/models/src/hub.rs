//! Repositories of the hub: which files make up a model.

use crate::LISTING_BYTES_MAX;
use crate::error::PullError;
use crate::http::Client;
use crate::name::is_plain_path;
use serde::Deserialize;

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubFile {
    pub(crate) name: String,
    pub(crate) sha256: Option<String>, // of large files
}

#[derive(Deserialize)]
struct TreeItem {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    oid: String,
}

pub(crate) fn file_url(endpoint: &str, repository: &str, file: &str) -> String {
    format!("{endpoint}/{repository}/resolve/main/{file}")
}

/// All files of a repository.
pub(crate) fn list(client: &Client, endpoint: &str, repository: &str) -> Result<Vec<HubFile>, PullError> {
    let url = format!("{endpoint}/api/models/{repository}/tree/main?recursive=true");
    let text = client.text(&url, LISTING_BYTES_MAX)?;
    let items: Vec<TreeItem> = serde_json::from_str(&text)
        .map_err(|error| PullError::Http { url, problem: format!("the listing cannot be read: {error}") })?;
    Ok(items
        .into_iter()
        .filter(|item| item.kind == "file" && is_plain_path(&item.path))
        .map(|item| HubFile { name: item.path, sha256: item.lfs.map(|lfs| lfs.oid) })
        .collect())
}

/// The files to fetch: the one asked for with its split parts, the likeliest GGUF, or a whole folder.
pub(crate) fn choose(files: &[HubFile], wanted: Option<&str>) -> Vec<HubFile> {
    let is_gguf = |file: &&HubFile| file.name.ends_with(".gguf");
    let first = match wanted {
        Some(name) => files.iter().find(|file| file.name == name),
        None => {
            let prefer = |file: &&HubFile| file.name.to_ascii_lowercase().contains("q4_k_m");
            files.iter().filter(is_gguf).find(prefer).or_else(|| files.iter().find(is_gguf))
        }
    };
    match first {
        Some(first) => files.iter().filter(|file| is_same_model(&first.name, &file.name)).cloned().collect(),
        None if wanted.is_some() => Vec::new(),
        None => files.iter().filter(|file| belongs_to_folder(&file.name)).cloned().collect(),
    }
}

/// Whether two files are the same, or parts of one split GGUF (`-00001-of-00003.gguf`).
fn is_same_model(a: &str, b: &str) -> bool {
    let stem = |name: &str| -> Option<String> {
        let stem = name.strip_suffix(".gguf")?;
        let (rest, total) = stem.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
        (digits(number) && digits(total)).then(|| format!("{stem}/{total}"))
    };
    a == b || stem(a).is_some_and(|stem_a| stem(b) == Some(stem_a))
}

/// What a Hugging Face folder needs to run: nothing of it is code.
fn belongs_to_folder(name: &str) -> bool {
    !name.contains('/')
        && (name.ends_with(".safetensors")
            || name.ends_with(".safetensors.index.json")
            || matches!(
                name,
                "config.json"
                    | "generation_config.json"
                    | "tokenizer.json"
                    | "tokenizer_config.json"
                    | "special_tokens_map.json"
                    | "chat_template.jinja"
            ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], wanted: Option<&str>, want: &[&str]) {
        let files: Vec<HubFile> =
            names.iter().map(|name| HubFile { name: name.to_string(), sha256: None }).collect();
        let got: Vec<String> = choose(&files, wanted).into_iter().map(|file| file.name).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn chosen_files() {
        let split = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "n-00001-of-00002.gguf", "README.md"];
        check(&split, Some("m-00001-of-00002.gguf"), &split[..2]);
        check(&["a.Q8_0.gguf", "a.Q4_K_M.gguf"], None, &["a.Q4_K_M.gguf"]);
        check(&["a.Q8_0.gguf"], None, &["a.Q8_0.gguf"]);
        check(&["a.gguf"], Some("b.gguf"), &[]);
        check(
            &["config.json", "model.safetensors", "modeling.py", "tokenizer.json", "onnx/model.safetensors"],
            None,
            &["config.json", "model.safetensors", "tokenizer.json"],
        );
    }
}
