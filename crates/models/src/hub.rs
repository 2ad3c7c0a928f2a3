//! Repositories of the hub: which files make up a model.

use crate::LISTING_BYTES_MAX;
use crate::error::PullError;
use crate::http::Client;
use crate::name::is_plain_path;
use crate::split::SplitName;
use serde::Deserialize;

/// Names of files in an error, at most.
const NAMES_SHOWN_MAX: usize = 20;

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubFile {
    pub(crate) name: String,
    pub(crate) size: Option<u64>,      // bytes
    pub(crate) sha256: Option<String>, // of large files
}

#[derive(Deserialize)]
struct TreeItem {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    oid: String,
}

/// The files of a model in the order in which they are fetched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) files: Vec<HubFile>,
    /// The file that stands for the model, fetched last: when it is there, all are. None: their folder does.
    pub(crate) open: Option<String>,
}

pub(crate) fn file_url(endpoint: &str, repository: &str, file: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    format!("{endpoint}/{repository}/resolve/main/{}", percent_encoded(file))
}

/// A path as it is written in a URL.
fn percent_encoded(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if plain(byte) { text.push(char::from(byte)) } else { text.push_str(&format!("%{byte:02X}")) }
    }
    text
}

/// All files of a repository.
pub(crate) fn list(client: &Client, endpoint: &str, repository: &str) -> Result<Vec<HubFile>, PullError> {
    let endpoint = endpoint.trim_end_matches('/');
    let url = format!("{endpoint}/api/models/{repository}/tree/main?recursive=true");
    let text = client.text(&url, LISTING_BYTES_MAX)?;
    let items: Vec<TreeItem> = serde_json::from_str(&text).map_err(|error| {
        let problem = format!("the listing cannot be read: {error}. Is {endpoint} a hub (HF_ENDPOINT)?");
        PullError::Http { url, problem }
    })?;
    Ok(items.into_iter().filter(|item| item.kind == "file" && is_plain_path(&item.path)).map(file).collect())
}

fn file(item: TreeItem) -> HubFile {
    HubFile { name: item.path, size: item.size, sha256: item.lfs.map(|lfs| lfs.oid) }
}

/// The files to fetch: the one asked for with its split parts, the likeliest GGUF, or a whole folder.
pub(crate) fn choose(files: &[HubFile], wanted: Option<&str>) -> Choice {
    let open = match wanted {
        Some(name) => files.iter().find(|file| file.name == name),
        None => likeliest_gguf(files),
    };
    let Some(open) = open else {
        let folder = files.iter().filter(|file| wanted.is_none() && belongs_to_folder(&file.name));
        let mut files: Vec<HubFile> = folder.cloned().collect();
        if !files.iter().any(|file| file.name.ends_with(".safetensors")) {
            files.clear(); // nothing of it is weights
        }
        return Choice { files, open: None };
    };
    let others = files.iter().filter(|file| is_other_part(&open.name, &file.name));
    Choice { files: others.chain([open]).cloned().collect(), open: Some(open.name.clone()) }
}

/// The first part of a split one. Projectors of images are no models.
fn likeliest_gguf(files: &[HubFile]) -> Option<&HubFile> {
    let is_model = |name: &str| name.ends_with(".gguf") && !name.contains("mmproj");
    let mut models: Vec<&HubFile> = files.iter().filter(|file| is_model(&file.name)).collect();
    models.sort_by(|a, b| a.name.cmp(&b.name));
    let preferred = models.iter().find(|file| file.name.to_ascii_lowercase().contains("q4_k_m"));
    preferred.or(models.first()).copied()
}

fn is_other_part(name: &str, other: &str) -> bool {
    name != other && SplitName::parse(name).is_some_and(|split| SplitName::parse(other) == Some(split))
}

/// There is nothing to pull; but what else there is may help.
pub(crate) fn no_file(repository: &str, file: Option<&str>, listing: &[HubFile]) -> PullError {
    let models: Vec<&str> =
        listing.iter().map(|file| file.name.as_str()).filter(|name| name.ends_with(".gguf")).collect();
    let advice = match models.as_slice() {
        [] => "It holds neither GGUF nor safetensors files; try another repository".to_string(),
        models => format!("It holds {}", models[..models.len().min(NAMES_SHOWN_MAX)].join(", ")),
    };
    PullError::NoFile { repository: repository.into(), file: file.map(str::to_owned), advice }
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
            names.iter().map(|name| HubFile { name: name.to_string(), size: None, sha256: None }).collect();
        let got: Vec<String> = choose(&files, wanted).files.into_iter().map(|file| file.name).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn chosen_files() {
        let split = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "n-00001-of-00002.gguf", "README.md"];
        check(&split, Some("m-00001-of-00002.gguf"), &[split[1], split[0]]);
        check(&split, None, &[split[1], split[0]]);
        check(&["a.Q8_0.gguf", "a.Q4_K_M.gguf"], None, &["a.Q4_K_M.gguf"]);
        check(&["a.Q8_0.gguf"], None, &["a.Q8_0.gguf"]);
        check(&["a.gguf"], Some("b.gguf"), &[]);
        check(&["mmproj.gguf", "z.gguf"], None, &["z.gguf"]);
        check(&["config.json", "pytorch_model.bin"], None, &[]);
        check(
            &["config.json", "model.safetensors", "modeling.py", "tokenizer.json", "onnx/model.safetensors"],
            None,
            &["config.json", "model.safetensors", "tokenizer.json"],
        );
    }

    #[test]
    fn addresses() {
        let check = |endpoint, want| assert_eq!(file_url(endpoint, "a/b", "Q4 K/é.gguf"), want);
        check("https://hub.example", "https://hub.example/a/b/resolve/main/Q4%20K/%C3%A9.gguf");
        check("https://hub.example/", "https://hub.example/a/b/resolve/main/Q4%20K/%C3%A9.gguf");
    }
}
