//! All that stands beneath a folder, but what `.gitignore` says is not worth a look.
//!
//! Folders are opened beneath the root one by one, so no link leads out of it, and nothing is opened that could block.
//! What is near the top comes first: where a bound ends the walk, the outline is still whole.

use super::{ToolError, Workshop};
use crate::limits::{IGNORE_BYTES_MAX, WALK_DEPTH_MAX, WALK_ENTRIES_MAX, WALK_MILLISECONDS_MAX};
use crate::root::{Kind, Name};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Something that a walk came by.
#[derive(Debug)]
pub struct Found {
    pub name: Name,
    pub kind: Kind,
    pub depth: usize, // 1: in the folder where the walk began
}

/// Whether a walk came to its end, or to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walked {
    All,
    /// Whoever looked has seen enough.
    Enough,
    Cut,
}

/// What is ignored in a folder and all below it.
struct Ignores {
    own: Gitignore,
    above: Option<Rc<Ignores>>,
}

struct Folder {
    name: Option<Name>, // none: the root
    ignores: Rc<Ignores>,
    depth: usize,
}

const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

impl Workshop {
    pub(super) fn walk(
        &self,
        start: Option<Name>,
        depth_max: usize,
        visit: &mut dyn FnMut(&Found) -> ControlFlow<()>,
    ) -> Result<Walked, ToolError> {
        let deadline = Instant::now() + Duration::from_millis(WALK_MILLISECONDS_MAX);
        let (mut left, mut whole) = (WALK_ENTRIES_MAX, true);
        let ignores = self.ignores_to(start.as_ref());
        let mut folders = VecDeque::from([Folder { name: start, ignores, depth: 0 }]);
        while let Some(folder) = folders.pop_front() {
            let (entries, all) = match self.root.entries(folder.name.as_ref()) {
                Ok(entries) => entries,
                Err(error) if folder.depth == 0 => return Err(error.into()),
                // One that went meanwhile, or that this user may not look into.
                Err(_) => continue,
            };
            whole &= all;
            for entry in entries {
                if left == 0 || Instant::now() > deadline {
                    return Ok(Walked::Cut);
                }
                left -= 1;
                let Some(name) = below(folder.name.as_ref(), entry.name.to_str()) else { continue };
                if folder.ignores.ignore(&self.folder.join(name.path()), entry.kind == Kind::Folder) {
                    continue;
                }
                let found = Found { name, kind: entry.kind, depth: folder.depth + 1 };
                if visit(&found).is_break() {
                    return Ok(Walked::Enough);
                }
                whole &= found.kind != Kind::Folder || found.depth < WALK_DEPTH_MAX;
                if found.kind == Kind::Folder && found.depth < depth_max.min(WALK_DEPTH_MAX) {
                    let ignores = self.ignores(&found.name, Rc::clone(&folder.ignores));
                    folders.push_back(Folder { name: Some(found.name), ignores, depth: found.depth });
                }
            }
        }
        Ok(if whole { Walked::All } else { Walked::Cut })
    }

    /// What is ignored in a folder, said there and in all above it up to the root.
    fn ignores_to(&self, start: Option<&Name>) -> Rc<Ignores> {
        let mut ignores = Rc::new(Ignores { own: self.ignore_file(None), above: None });
        let parts = start.iter().flat_map(|start| start.path().ancestors());
        let mut folders: Vec<_> = parts.filter_map(|path| Name::new(path.to_str()?).ok()).collect();
        while let Some(folder) = folders.pop() {
            ignores = self.ignores(&folder, ignores);
        }
        ignores
    }

    fn ignores(&self, folder: &Name, above: Rc<Ignores>) -> Rc<Ignores> {
        match self.ignore_file(Some(folder)) {
            own if own.is_empty() => above,
            own => Rc::new(Ignores { own, above: Some(above) }),
        }
    }

    /// Read as any file is: one that is a link or a pipe says nothing.
    fn ignore_file(&self, folder: Option<&Name>) -> Gitignore {
        let at = folder.map_or(self.folder.clone(), |folder| self.folder.join(folder.path()));
        let mut rules = GitignoreBuilder::new(at);
        for file in IGNORE_FILES {
            let content = below(folder, Some(file)).and_then(|name| self.root.read(&name).ok());
            let content = content.map(|(bytes, _)| bytes).filter(|bytes| bytes.len() <= IGNORE_BYTES_MAX);
            for line in String::from_utf8_lossy(&content.unwrap_or_default()).lines() {
                // A line that is no pattern ignores nothing, as with git.
                let _ = rules.add_line(None, line);
            }
        }
        rules.build().unwrap_or_else(|_| Gitignore::empty())
    }
}

/// None: git's own, or a name that is not text and that nobody could write.
fn below(folder: Option<&Name>, name: Option<&str>) -> Option<Name> {
    let path = folder.map(|folder| folder.path().join(name.unwrap_or_default()));
    Name::new(path.as_ref().map_or(name, |path| path.to_str())?).ok()
}

impl Ignores {
    /// The nearest that says something decides.
    fn ignore(&self, path: &std::path::Path, folder: bool) -> bool {
        let mut next = Some(self);
        while let Some(ignores) = next {
            match ignores.own.matched(path, folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => next = ignores.above.as_deref(),
            }
        }
        false
    }
}
