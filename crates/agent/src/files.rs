//! Several changes to files as one: all of them are made, or none.
//!
//! New contents are first written beside the files that they are for. Then what is to go is put aside and what is new takes
//! its name, one after the other; if one cannot, all that was done is undone in reverse.

use crate::root::{FileError, Name, Root, failed};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What becomes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub name: Name,
    pub before: Option<Vec<u8>>,       // none: it is not there
    pub after: Option<(Vec<u8>, u32)>, // and its mode; none: it goes
}

/// A file between what it was and what it is to be.
struct Step<'a> {
    change: &'a Change,
    folder: OwnedFd,
    new: Option<PathBuf>, // where its new content waits
    old: Option<PathBuf>, // where it was put aside
    done: bool,           // its new content has its name
}

/// Makes the changes. A file that is not any more as it was when they were made up is an error.
pub fn make(root: &Root, changes: &[Change]) -> Result<(), FileError> {
    let mut made = Vec::new();
    let mut steps = Vec::new();
    let outcome = prepare(root, changes, &mut steps, &mut made).and_then(|()| commit(root, &mut steps));
    match &outcome {
        Ok(()) => finish(root, &steps),
        Err(_) => undo(root, &mut steps, &made),
    }
    outcome
}

fn prepare<'a>(
    root: &Root,
    changes: &'a [Change],
    steps: &mut Vec<Step<'a>>,
    made: &mut Vec<Name>,
) -> Result<(), FileError> {
    for (number, change) in changes.iter().enumerate() {
        let folder = root.folder(&change.name, made)?;
        steps.push(Step { change, folder, new: None, old: None, done: false });
        if let (Some(step), Some((content, mode))) = (steps.last_mut(), &change.after) {
            let place = beside(number, "new");
            let created = root.create(&step.folder, &place, content, *mode);
            created.map_err(|error| failed(&change.name, error))?;
            step.new = Some(place.into());
        }
    }
    Ok(())
}

fn commit(root: &Root, steps: &mut [Step<'_>]) -> Result<(), FileError> {
    for (number, step) in steps.iter_mut().enumerate() {
        let Change { name, before, .. } = step.change;
        let last = root.last(name);
        match before {
            None if root.has(name) => return Err(FileError::Exists(name.clone())),
            None => {}
            Some(before) => {
                if root.read(name)?.0 != *before {
                    let reason = "it was changed meanwhile".to_owned();
                    return Err(FileError::Io { name: name.clone(), reason });
                }
                let place = PathBuf::from(beside(number, "old"));
                root.rename(&step.folder, last, &place).map_err(|error| failed(name, error))?;
                step.old = Some(place);
            }
        }
        if let Some(new) = &step.new {
            root.rename(&step.folder, new, last).map_err(|error| failed(name, error))?;
            step.done = true;
        }
    }
    Ok(())
}

/// What was put aside is not needed any more. One that cannot be removed does no harm.
fn finish(root: &Root, steps: &[Step<'_>]) {
    for step in steps {
        let _ = step.old.as_deref().map(|old| root.remove(&step.folder, old));
    }
}

fn undo(root: &Root, steps: &mut [Step<'_>], made: &[Name]) {
    for step in steps.iter_mut().rev() {
        let last = root.last(&step.change.name);
        let new = if step.done { Some(last) } else { step.new.as_deref() };
        // What fails here has failed for whoever would try it again too; the error that led here is told.
        let _ = new.map(|new| root.remove(&step.folder, new));
        let _ = step.old.as_deref().map(|old: &Path| root.rename(&step.folder, old, last));
    }
    made.iter().rev().for_each(|folder| root.remove_folder(folder));
}

/// Whether this is such a name, of whichever process.
pub(crate) fn is_beside(file: &str, number: usize) -> bool {
    let rest = file.strip_prefix(".flint-").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let ends = [format!("-{number}.new"), format!("-{number}.old")];
    rest.is_some_and(|rest| ends.iter().any(|end| rest == end))
}

/// A name that no file of a project has.
fn beside(number: usize, what: &str) -> String {
    format!(".flint-{}-{number}.{what}", std::process::id())
}
