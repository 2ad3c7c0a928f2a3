//! A workspace a second time, for an attempt that may fail, and what the attempt made different.

use super::{ToolError, Workshop};
use crate::files::Change;
use crate::limits::WALK_DEPTH_MAX;
use crate::root::{Kind, Name};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Folders that are ignored, yet needed to run what is there. They are not copied: a link leads to them, and the sandbox
/// lets nothing be written there.
const NEEDED: [&str; 4] = ["node_modules", ".venv", "venv", "vendor"];

impl Workshop {
    /// Copies everything but what is ignored to a folder that is not there yet.
    pub fn copy_to(&self, to: &Path) -> Result<(), ToolError> {
        let failed = |error: io::Error| ToolError::NotRun(format!("{}: {error}", to.display()));
        fs::create_dir_all(to).map_err(failed)?;
        for (name, kind) in self.all()? {
            let path = to.join(name.path());
            match kind {
                Kind::Folder => fs::create_dir_all(&path).map_err(failed)?,
                Kind::File => {
                    let (content, mode) = self.content(&name)?;
                    fs::write(&path, content).map_err(failed)?;
                    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(failed)?;
                }
                Kind::Link => {
                    let target = fs::read_link(self.folder.join(name.path())).map_err(failed)?;
                    symlink(target, &path).map_err(failed)?;
                }
                // Nothing that could be copied.
                Kind::Other => {}
            }
        }
        for name in NEEDED {
            let (own, new) = (self.folder.join(name), to.join(name));
            if own.is_dir() && new.symlink_metadata().is_err() {
                symlink(own, new).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// What has to be changed here for files to be as they are in a copy.
    pub fn differences(&self, copy: &Workshop) -> Result<Vec<Change>, ToolError> {
        let files = |shop: &Workshop| -> Result<BTreeSet<Name>, ToolError> {
            let all = shop.all()?.into_iter();
            Ok(all.filter(|(_, kind)| *kind == Kind::File).map(|(name, _)| name).collect())
        };
        let (here, there) = (files(self)?, files(copy)?);
        let mut changes = Vec::new();
        for name in here.union(&there) {
            let before = here.contains(name).then(|| self.content(name)).transpose()?;
            let after = there.contains(name).then(|| copy.content(name)).transpose()?;
            if before != after {
                changes.push(Change {
                    name: name.clone(),
                    before: before.map(|(content, _)| content),
                    after,
                });
            }
        }
        Ok(changes)
    }

    fn all(&self) -> Result<Vec<(Name, Kind)>, ToolError> {
        let mut all = Vec::new();
        self.walk(None, WALK_DEPTH_MAX, &mut |found| {
            all.push((found.name.clone(), found.kind));
            ControlFlow::Continue(())
        })?;
        Ok(all)
    }
}
