//! The files that say which other agents there are: the user's first, then those of a project that is trusted.

use super::Role;
use crate::config::{Layer, Loaded, Source};
use crate::limits::{ROLE_BYTES_MAX, ROLE_FILES_MAX, ROLES_MAX};
use crate::root::{Entry, FileError, Kind, Name, Root};
use std::path::Path;

/// The agents of a session, and what was found and does not count.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    pub roles: Vec<Role>,
    pub told: Vec<String>,
}

const USERS: &str = "agents";

/// Codex's files say the same in the same words.
const PROJECTS: [&str; 2] = [".flint/agents", ".codex/agents"];

/// `home` is where the user's settings are. Of several of one name the first counts: a repository does not put its own in the
/// place of the user's.
pub fn find(home: &Path, loaded: &Loaded) -> Found {
    let mut found = Found::default();
    found.look(Source::User, home, USERS, loaded);
    if loaded.trusted {
        for folder in PROJECTS {
            found.look(Source::Project, &loaded.project, folder, loaded);
        }
    }
    found
}

impl Found {
    /// Beneath `above`: a link that leads out of it is not followed.
    fn look(&mut self, source: Source, above: &Path, folder: &str, loaded: &Loaded) {
        let (Ok(root), Ok(name)) = (Root::open(above), Name::new(folder)) else { return };
        let entries = match root.entries(Some(&name)) {
            Ok((entries, _)) => entries,
            Err(FileError::Missing(_)) if !root.has(&name) => return,
            Err(_) => {
                let place = shown(&above.join(folder));
                return self.told.push(format!("{place} is no folder, or a link, and is not read"));
            }
        };
        let mut files: Vec<&Entry> = entries.iter().filter(|entry| is_role(entry)).collect();
        if files.len() > ROLE_FILES_MAX {
            let (count, place) = (files.len(), shown(&above.join(folder)));
            self.told.push(format!("{place}: of {count} agents the first {ROLE_FILES_MAX} are read"));
            files.truncate(ROLE_FILES_MAX);
        }
        for entry in files {
            let file = Path::new(folder).join(&entry.name);
            let place = above.join(&file);
            let read = text(&root, &file).map_err(|why| format!("{}: {why}", shown(&place)));
            let layer = read.and_then(|text| Layer::parse(source, &place, &text).map_err(|e| e.to_string()));
            match layer.and_then(|layer| Role::read(&layer, &loaded.config)) {
                Ok((role, told)) => {
                    self.told.extend(told);
                    self.add(role);
                }
                Err(why) => self.told.push(format!("{why} (this agent is left out)")),
            }
        }
    }

    fn add(&mut self, role: Role) {
        let place = shown(&role.file);
        if let Some(other) = self.roles.iter().find(|other| other.name == role.name) {
            let (name, other) = (&role.name, shown(&other.file));
            self.told.push(format!("{place}: the agent `{name}` is that of {other}; this one is left out"));
        } else if self.roles.len() == ROLES_MAX {
            self.told.push(format!("{place}: there are {ROLES_MAX} agents already; this one is left out"));
        } else {
            self.roles.push(role);
        }
    }
}

fn is_role(entry: &Entry) -> bool {
    let name = entry.name.as_encoded_bytes();
    name.ends_with(b".toml") && !name.starts_with(b".") && entry.kind != Kind::Folder
}

fn text(root: &Root, file: &Path) -> Result<String, String> {
    let name = file.to_str().ok_or("its name is not UTF-8")?;
    let name = Name::new(name).map_err(|error| error.to_string())?;
    let (bytes, _) = root.read_within(&name, ROLE_BYTES_MAX).map_err(|error| match error {
        FileError::Link(_) => {
            "it is a link, or leads out of the folder: put the file itself there".to_owned()
        }
        FileError::NotAFile(_) => "it is not a file".to_owned(),
        FileError::Large { bytes_max, .. } => format!("it has more than {bytes_max} bytes"),
        error => error.to_string(),
    })?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// No escape sequence reaches a terminal by a file's name.
fn shown(path: &Path) -> String {
    path.display().to_string().escape_debug().to_string()
}
