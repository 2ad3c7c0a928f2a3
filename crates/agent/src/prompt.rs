//! What the model is told before anything else: who it is, its tools, where it works, and what the folder's authors ask.
//!
//! All of it is short and comes first, so that it is computed once and stays warm.

use crate::hands::Role;
use crate::limits::{EDITED_BYTES_MAX, MENTIONED_BYTES_MAX, MENTIONED_FILES_MAX, ROLE_TOLD_BYTES_MAX};
use crate::root::{Name, Root};
use crate::settings::Settings;
use serde_json::{Map, Value, json};
use std::path::Path;

pub const INSTRUCTIONS: &str = "\
You are Flint, a coding agent. You work in the user's folder with the tools you are given, and you finish the task yourself.

- Change files with `edit`: `old` is a few whole lines copied exactly from the file, `new` is what stands there instead. With an empty \
`old` lines are added to the end of a file, or a new file is made. Change only what the task needs; keep the style that is there.
- Look before you change: `read` a file unless you were shown it; `search` and `list` find things; `shell` runs a command.
- After a failed command or edit, read what it says and try another way.
- When the task is done, say in one or two sentences what you did, without code. When you are only asked something, answer it.
";

/// Where `edit` stands among the tools.
pub const EDIT: usize = 0;

/// The tools, as requests declare them. Their order never changes: what the model read of them stays warm.
pub fn tools(may_ask: bool) -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let mut shell = json!({
        "command": text("A command for bash"),
        "timeout_s": {"type": "integer", "minimum": 1, "maximum": 3600, "description": "Default 120"},
    });
    if may_ask {
        shell["unconfined"] = json!({"type": "boolean", "description":
            "Ask the user to let it run outside the sandbox, with network and all files"});
    }
    json!([
        function(
            "edit",
            "Replace lines of a file",
            json!({
                "path": text("File, relative to the folder"),
                "old": text("Lines to replace, exactly as they are"),
                "new": text("Lines that stand there afterwards"),
            }),
            &["path", "old", "new"]
        ),
        function(
            "read",
            "Read a file",
            json!({
                "path": text("File, relative to the folder"),
                "first_line": {"type": "integer", "minimum": 1},
                "lines": {"type": "integer", "minimum": 1},
            }),
            &["path"]
        ),
        function("shell", "Run a command and see its output", shell, &["command"]),
        function(
            "search",
            "Find lines that match a regular expression",
            json!({
                "pattern": text("Regular expression"),
                "path": text("Folder or file"),
            }),
            &["pattern"]
        ),
        function("list", "List files", json!({"path": text("Folder")}), &[]),
        function(
            "patch",
            "Change several files at once, in the `*** Begin Patch` format",
            json!({
                "patch": text("The whole patch"),
            }),
            &["patch"]
        ),
        function(
            "plan",
            "Show the user the steps of a long task, and how far they are",
            json!({
                "steps": {"type": "array", "maxItems": 20, "items": {"type": "object", "properties": {
                    "text": {"type": "string"},
                    "state": {"type": "string", "enum": ["open", "running", "done"]},
                }, "required": ["text", "state"], "additionalProperties": false}},
            }),
            &["steps"]
        ),
    ])
}

/// The tool that gives tasks to other agents, for those who have some.
pub fn agent(roles: &[Role], stays: bool) -> Value {
    let about = |role: &Role| {
        let line = role.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = &line[..line.floor_char_boundary(ROLE_TOLD_BYTES_MAX)];
        format!("{}: {line}\n", role.name)
    };
    let about: String = roles.iter().map(about).collect();
    let names: Vec<&str> = roles.iter().map(|role| role.name.as_str()).collect();
    let mut fields = json!({
        "role": {"type": "string", "enum": names, "description": about.trim_end()},
        "task": {"type": "string", "description": "All that it has to know: it sees nothing of this conversation"},
    });
    if stays {
        fields["background"] =
            json!({"type": "boolean", "description": "Do not wait for it at the end of the turn"});
    }
    let about = "Give a task to another agent, which works beside you; its report comes as a message";
    function("agent", about, fields, &["role", "task"])
}

fn function(name: &str, about: &str, properties: Value, required: &[&str]) -> Value {
    json!({"type": "function", "name": name, "description": about, "strict": false, "parameters": {
        "type": "object", "properties": properties, "required": required, "additionalProperties": false}})
}

/// The first words of a conversation: where it takes place, and what AGENTS.md says from the root down to here.
pub fn place(folder: &Path, settings: &Settings) -> String {
    // Not where: the same words in every folder are computed once.
    let mut text = "Paths are relative to the folder that you work in.\n".to_owned();
    for (name, doc) in docs(folder, settings) {
        text += &format!("\nFrom {name}, by the authors of this project:\n\n{}\n", doc.trim_end());
    }
    text
}

/// The instructions of each folder from the repository's root down to this one, within the bytes that are allowed.
fn docs(folder: &Path, settings: &Settings) -> Vec<(String, String)> {
    let top = folder.ancestors().find(|above| above.join(".git").exists()).unwrap_or(folder);
    let way: Vec<&Path> = folder.ancestors().take_while(|above| above.starts_with(top)).collect();
    let names = ["AGENTS.override.md", "AGENTS.md"].into_iter();
    let names: Vec<&str> = names.chain(settings.docs_names.iter().map(String::as_str)).collect();
    let mut left = settings.docs_bytes;
    let mut found = Vec::new();
    for above in way.into_iter().rev() {
        let Ok(root) = Root::open(above) else { continue };
        let read = |name: &&str| root.read(&Name::new(name).ok()?).ok();
        let found_here = names.iter().find_map(|name| Some((name, read(name)?.0)));
        let Some((name, bytes)) = found_here else { continue };
        let mut doc = String::from_utf8_lossy(&bytes).into_owned();
        doc.truncate(doc.floor_char_boundary(left));
        left -= doc.len();
        if !doc.is_empty() {
            let below = above.strip_prefix(top).unwrap_or(above);
            found.push((below.join(name).display().to_string(), doc));
        }
    }
    found
}

/// What a person says, with the files that they name: a model that is shown them need not ask.
pub fn with_files(text: &str, root: &Root) -> (String, Vec<String>) {
    let mut named: Vec<String> = Vec::new();
    for word in words(text) {
        if !named.iter().any(|other| other == word) {
            named.push(word.to_owned());
        }
    }
    let mut shown = Vec::new();
    let said = show(text, &named, root, &mut shown);
    (said, shown)
}

/// Files that a text names and that are there, with their bytes; so many names are looked at.
pub fn named(text: &str, folder: &Path, names_max: usize) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for word in words(text).take(names_max) {
        let about = Name::new(word).ok().and_then(|name| folder.join(name.path()).metadata().ok());
        let bytes = about.filter(std::fs::Metadata::is_file).map(|about| about.len());
        if let Some(bytes) = bytes.filter(|_| !found.iter().any(|(other, _)| other == word)) {
            found.push((word.to_owned(), bytes));
        }
    }
    found
}

/// A text with files as they are now.
pub fn showing(text: &str, paths: &[String], root: &Root) -> String {
    show(text, paths, root, &mut Vec::new())
}

/// Adds those that can be shown, within what may be; `shown` has their names then.
fn show(text: &str, paths: &[String], root: &Root, shown: &mut Vec<String>) -> String {
    let (mut said, mut left) = (text.to_owned(), MENTIONED_BYTES_MAX);
    for path in paths {
        let read = Name::new(path).ok().and_then(|name| root.read(&name).ok());
        let Some(content) = read.and_then(|(bytes, _)| String::from_utf8(bytes).ok()) else { continue };
        if content.len() > left || content.contains('\0') || shown.len() == MENTIONED_FILES_MAX {
            continue;
        }
        left -= content.len();
        let fence = fence(&content);
        said += &format!("\n\n{path} is now:\n{fence}\n{}\n{fence}", content.trim_end_matches('\n'));
        shown.push(path.clone());
    }
    said
}

/// Files as they are now, for a server that holds edits to them. One that is no text or too large is left out.
pub fn texts(paths: &[String], root: &Root) -> Map<String, Value> {
    let mut left = EDITED_BYTES_MAX;
    let mut texts = Map::new();
    for path in paths.iter().rev() {
        let read = Name::new(path).ok().and_then(|name| root.read(&name).ok());
        let Some(text) = read.and_then(|(bytes, _)| String::from_utf8(bytes).ok()) else { continue };
        if text.len() <= left {
            left -= text.len();
            texts.insert(path.clone(), text.into());
        }
    }
    texts
}

/// What could be a file's name: it has a dot or a slash in it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let around = |c: char| "\"'`()[]{}<>,;:!?@".contains(c);
    let words = text.split_whitespace().map(move |word| word.trim_matches(around));
    words.map(|word| word.trim_end_matches('.')).filter(|word| word.contains(['.', '/']) && word.len() < 256)
}

/// More backticks than the text has.
fn fence(content: &str) -> String {
    let longest = content.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}
