//! A change of files that the end of the process cut in two: what was done of it is undone when its session is taken up.
//!
//! A session has what was and what was to be before the first file is touched (`Record::Files`). If that is its last record,
//! the change may have been made, or not, or in part.

use crate::agent::Agent;
use crate::files::{self, Change};
use crate::history::{Record, Saved};
use crate::rewind::saved_change;
use crate::root::{Kind, Name, Root};
use crate::sessions::SessionError;
use crate::talk::Event;
use std::path::{Path, PathBuf};

/// The change that came last in these records, if it was to be made in this folder and nothing is said about its end.
pub(crate) fn open_change(records: &[Record], folder: &Path) -> Option<Vec<Saved>> {
    let here =
        |record: &Record| matches!(record, Record::Session { folder: own, .. } if Path::new(own) == folder);
    match records.last()? {
        Record::Files { changes } if records.iter().any(here) => Some(changes.clone()),
        _ => None,
    }
}

/// What became of a change.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Made,
    NotMade,
    /// These bring back what was.
    Half(Vec<Change>),
    /// Files are neither what they were nor what they were to be.
    Unclear,
}

impl Agent {
    pub(crate) async fn mend(&mut self, changes: &[Saved]) -> Result<(), SessionError> {
        let wanted: Vec<Change> = changes.iter().filter_map(|saved| saved_change(saved).ok()).collect();
        let names = wanted.iter().map(|change| change.name.to_string()).collect::<Vec<_>>().join(", ");
        let root = self.workshop.root();
        let text = match look(root, &wanted) {
            Found::Made => return Ok(()),
            Found::Unclear => {
                format!("a change of {names} was cut off, and they were changed since: see for yourself")
            }
            Found::NotMade => {
                clear(root, &wanted);
                format!("a change of {names} was cut off before it began")
            }
            Found::Half(back) => match files::make(root, &back) {
                Ok(()) => {
                    clear(root, &wanted);
                    format!("a change of {names} was cut off half-way, and what was done of it is undone")
                }
                Err(error) => {
                    format!("a change of {names} was cut off half-way, and cannot be undone: {error}")
                }
            },
        };
        self.not_made(changes.len())?;
        self.tell(Event::Notice { text }).await;
        Ok(())
    }

    /// The last change was not made after all.
    pub(crate) fn not_made(&mut self, files: usize) -> Result<(), SessionError> {
        self.rewind.not_made(files);
        self.log.record(&Record::NotMade { files })
    }
}

fn look(root: &Root, changes: &[Change]) -> Found {
    let (mut made, mut back) = (0, Vec::new());
    for (number, change) in changes.iter().enumerate() {
        let now = root.read(&change.name).ok();
        let (content, mode) =
            (now.as_ref().map(|(content, _)| content), now.as_ref().map_or(0o644, |now| now.1));
        let is_after = content == change.after.as_ref().map(|(content, _)| content);
        made += usize::from(is_after);
        if content == change.before.as_ref() {
            continue;
        }
        let is_aside = content.is_none() && aside(root, change, number).is_some();
        if !is_after && !is_aside {
            return Found::Unclear;
        }
        let (name, before) = (change.name.clone(), now.map(|(content, _)| content));
        let after = change.before.clone().map(|content| (content, mode));
        back.push(Change { name, before, after });
    }
    match (made == changes.len(), back.is_empty()) {
        (true, _) => Found::Made,
        (false, true) => Found::NotMade,
        (false, false) => Found::Half(back),
    }
}

/// Where what a file said was put aside.
fn aside(root: &Root, change: &Change, number: usize) -> Option<Name> {
    left(root, change, number)
        .into_iter()
        .find(|name| name.path().extension().is_some_and(|end| end == "old"))
}

/// What is left beside a file of its own change, by name and by what it says.
fn left(root: &Root, change: &Change, number: usize) -> Vec<Name> {
    let folder = change.name.path().parent().filter(|folder| !folder.as_os_str().is_empty());
    let within = folder.and_then(Path::to_str).and_then(|folder| Name::new(folder).ok());
    let Ok((entries, _)) = root.entries(within.as_ref()) else { return Vec::new() };
    let is_own = |name: &Name| {
        let content = root.read(name).ok().map(|(content, _)| content);
        content.is_some()
            && (content == change.before || content.as_ref() == change.after.as_ref().map(|(new, _)| new))
    };
    let names = entries.into_iter().filter(|entry| entry.kind == Kind::File).filter_map(|entry| {
        let file = entry.name.to_str().filter(|file| files::is_beside(file, number))?;
        let path = folder.map_or_else(|| PathBuf::from(file), |folder| folder.join(file));
        Name::new(path.to_str()?).ok()
    });
    names.filter(is_own).collect()
}

/// Takes away what is left. What cannot be removed does no harm.
fn clear(root: &Root, changes: &[Change]) {
    for (number, change) in changes.iter().enumerate() {
        let Ok(folder) = root.folder(&change.name, &mut Vec::new()) else { continue };
        for name in left(root, change, number) {
            let _ = root.remove(&folder, root.last(&name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn change(name: &str, before: Option<&str>, after: Option<&str>) -> Change {
        let after = after.map(|text| (text.as_bytes().to_vec(), 0o644));
        Change { name: Name::new(name).unwrap(), before: before.map(|text| text.as_bytes().to_vec()), after }
    }

    /// Every state that a change of three files goes through, from nothing done to all done.
    #[test]
    fn a_change_that_was_cut_off_anywhere_is_undone() {
        let wanted = [
            change("a", Some("1"), Some("2")),
            change("sub/b", Some("3"), Some("4")),
            change("c", None, Some("5")),
        ];
        let new = |number: usize| format!(".flint-77-{number}.new");
        let old = |number: usize| format!(".flint-77-{number}.old");
        let (path, folder) = (["a", "sub/b", "c"], ["", "sub/", ""]);
        for steps in 0..=5 {
            let project = tempfile::tempdir().unwrap();
            let at = |name: &str| project.path().join(name);
            fs::create_dir(at("sub")).unwrap();
            fs::write(at("a"), "1").unwrap();
            fs::write(at("sub/b"), "3").unwrap();
            for (number, text) in ["2", "4", "5"].iter().enumerate() {
                fs::write(at(&format!("{}{}", folder[number], new(number))), text).unwrap();
            }
            // Aside, into place, aside, into place, into place.
            for step in 0..steps {
                let (number, aside) = ([0, 0, 1, 1, 2][step], [true, false, true, false, false][step]);
                let beside = |name: String| at(&format!("{}{name}", folder[number]));
                match aside {
                    true => fs::rename(at(path[number]), beside(old(number))).unwrap(),
                    false => fs::rename(beside(new(number)), at(path[number])).unwrap(),
                }
            }
            let root = Root::open(project.path()).unwrap();
            match look(&root, &wanted) {
                Found::NotMade => assert_eq!(steps, 0),
                Found::Half(back) => {
                    assert!((1..5).contains(&steps), "{steps}");
                    files::make(&root, &back).unwrap();
                }
                Found::Made => {
                    assert_eq!(steps, 5);
                    continue;
                }
                Found::Unclear => panic!("{steps}"),
            }
            clear(&root, &wanted);
            assert_eq!(
                (fs::read_to_string(at("a")).unwrap().as_str(), at("c").exists()),
                ("1", false),
                "{steps}"
            );
            assert_eq!(fs::read_to_string(at("sub/b")).unwrap(), "3", "{steps}");
            assert_eq!(
                (fs::read_dir(at(".")).unwrap().count(), fs::read_dir(at("sub")).unwrap().count()),
                (2, 1)
            );
        }
    }

    #[test]
    fn what_somebody_changed_since_is_left_alone() {
        let project = tempfile::tempdir().unwrap();
        fs::write(project.path().join("a"), "by hand").unwrap();
        let root = Root::open(project.path()).unwrap();
        let wanted = [change("a", Some("1"), Some("2")), change("gone", Some("3"), Some("4"))];
        assert_eq!(look(&root, &wanted), Found::Unclear);
        // A file that is missing was perhaps removed by somebody: nothing of it was put aside.
        assert_eq!(look(&root, &wanted[1..]), Found::Unclear);
    }
}
