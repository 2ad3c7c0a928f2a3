//! Patches on real files: what they become, and that nothing happens when something is wrong.

use flint_agent::patch::{Edit, changes, parse};
use flint_agent::root::{Name, Root};
use flint_agent::{files, patch};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    fn new(files: &[(&str, &str)]) -> Project {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Project { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn root(&self) -> Root {
        Root::open(self.folder.path()).unwrap()
    }

    fn apply(&self, edits: &[Edit]) -> Result<(), String> {
        let changes = changes(&self.root(), edits).map_err(|error| error.to_string())?;
        files::make(&self.root(), &changes).map_err(|error| error.to_string())
    }

    fn patch(&self, lines: &str) -> Result<(), String> {
        let edits =
            parse(&format!("*** Begin Patch\n{lines}\n*** End Patch")).map_err(|error| error.to_string())?;
        self.apply(&edits)
    }

    /// All files with what they say; folders with nothing.
    fn all(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        look(self.folder.path(), self.folder.path(), &mut all);
        all
    }
}

fn look(root: &Path, folder: &Path, all: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        match path.is_dir() && !path.is_symlink() {
            true => {
                all.insert(name + "/", String::new());
                look(root, &path, all);
            }
            false => drop(all.insert(name, fs::read_to_string(&path).unwrap_or_default())),
        }
    }
}

fn says(all: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    all.iter().map(|(name, content)| (name.as_str(), content.as_str())).collect()
}

const MAIN: &str =
    "fn main() {\n    let a = 1;\n    let b = 2;\n    print(a + b);\n}\n\nfn other() {\n    let b = 2;\n}\n";

#[test]
fn files_are_added_changed_moved_and_deleted_together() {
    let project = Project::new(&[("src/main.rs", MAIN), ("old.txt", "old\n"), ("keep.txt", "keep\n")]);
    fs::set_permissions(project.path("src/main.rs"), fs::Permissions::from_mode(0o755)).unwrap();
    let patch = "*** Update File: src/main.rs\n*** Move to: src/bin/new/main.rs\n@@ fn other() {\n-    let b = 2;\n+    let b = 3;\n\
                 *** Add File: notes/a.txt\n+one\n+\n+two\n*** Delete File: old.txt";
    project.patch(patch).unwrap();
    let main = "fn main() {\n    let a = 1;\n    let b = 2;\n    print(a + b);\n}\n\nfn other() {\n    let b = 3;\n}\n";
    let all = project.all();
    let files: Vec<_> = says(&all).into_iter().filter(|(name, _)| !name.ends_with('/')).collect();
    assert_eq!(
        files,
        [("keep.txt", "keep\n"), ("notes/a.txt", "one\n\ntwo\n"), ("src/bin/new/main.rs", main)]
    );
    let mode = fs::metadata(project.path("src/bin/new/main.rs")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn hunks_find_their_places() {
    let check = |before: &str, hunks: &str, after: &str| {
        let project = Project::new(&[("a", before)]);
        project.patch(&format!("*** Update File: a\n{hunks}")).unwrap();
        assert_eq!(project.all()["a"], after, "{hunks}");
    };
    check("1\n2\n3\n2\n", "@@\n 2\n+x\n@@\n 2\n+y", "1\n2\nx\n3\n2\ny\n");
    check("1\n2\n", "@@\n+3", "1\n2\n3\n");
    check("1\n2\n3\n", "@@ 2\n+x", "1\n2\nx\n3\n");
    check("", "+first", "first\n");
    check("a\n", "-a\n+b", "b\n");
    check("a", "-a\n+b", "b\n");
    check("a\nb", " b\n+c", "a\nb\nc\n");
    check("x\nx\n", "@@\n-x\n+y\n*** End of File", "x\ny\n");
    // Blanks that a model has forgotten, or thought up, are not changed where they stand.
    check("\tone  \n\ttwo\n", " one\n-two\n+\tthree", "\tone  \n\tthree\n");
    check("a\n\nb\n", " a\n\n-b\n+c", "a\n\nc\n");
    // Line ends of the other kind stay.
    check("1\r\n2\r\n", " 1\n-2\n+3", "1\r\n3\r\n");
    check(
        "class A:\n  def f():\n    1\nclass B:\n  def f():\n    1\n",
        "@@ class B:\n@@   def f():\n-    1\n+    2",
        "class A:\n  def f():\n    1\nclass B:\n  def f():\n    2\n",
    );
}

#[test]
fn what_does_not_fit_is_told_and_changes_nothing() {
    let project = Project::new(&[("a.txt", "one\ntwo\nthree\n"), ("b.txt", "b\n"), ("folder/c.txt", "c\n")]);
    fs::write(project.path("binary"), [0xff, 0xfe]).unwrap();
    symlink("/etc/passwd", project.path("link")).unwrap();
    symlink("/etc", project.path("way")).unwrap();
    symlink("b.txt", project.path("inner")).unwrap();
    let before = project.all();
    let check = |patch: &str, error: &str| {
        let good = "*** Add File: new/folder/x.txt\n+x\n*** Delete File: b.txt\n";
        assert_eq!(project.patch(&format!("{good}{patch}")).unwrap_err(), error);
        assert_eq!(project.all(), before, "{patch}");
    };
    check(
        "*** Update File: a.txt\n one\n-too\n+2",
        "a.txt: hunk 1 does not apply: line 2 of the file is \"two\", not \"too\"",
    );
    check(
        "*** Update File: a.txt\n@@\n-two\n@@\n-one",
        "a.txt: hunk 2 does not apply: \"one\" is not in the file after line 2",
    );
    check(
        "*** Update File: a.txt\n three\n-four",
        "a.txt: hunk 1 does not apply: the file ends within it, after line 3",
    );
    check(
        "*** Update File: a.txt\n@@ nowhere\n+x",
        "a.txt: hunk 1 does not apply: \"nowhere\" is not in the file",
    );
    check("*** Update File: no.txt\n+x", "no.txt is not there");
    check("*** Delete File: no.txt", "no.txt is not there");
    check("*** Add File: a.txt\n+x", "a.txt is there already");
    check("*** Update File: a.txt\n*** Move to: folder/c.txt\n+x", "folder/c.txt is there already");
    check("*** Add File: a.txt/x\n+x", "a.txt is not a folder");
    check("*** Update File: folder\n+x", "folder is not a file");
    check("*** Update File: binary\n+x", "binary is not UTF-8 text");
    let link = |name: &str| {
        format!(
            "{name} is a link, or there is one on the way to it that leads out of the folder: name the file itself"
        )
    };
    check("*** Update File: link\n+x", &link("link"));
    check("*** Update File: inner\n+x", &link("inner"));
    check("*** Update File: way/passwd\n+x", &link("way/passwd"));
    check("*** Add File: way/new\n+x", &link("way/new"));
    check("*** Add File: link\n+x", "link is there already");
}

#[test]
fn patches_that_are_none_are_told() {
    let error = |text: &str| parse(text).unwrap_err().to_string();
    let of = |lines: &str| error(&format!("*** Begin Patch\n{lines}\n*** End Patch"));
    assert_eq!(error("diff --git"), "a patch begins with `*** Begin Patch`");
    assert_eq!(error("*** Begin Patch\n*** End Patch"), "the patch changes nothing");
    assert_eq!(
        error("*** Begin Patch\n*** Delete File: a"),
        "the patch does not end: its last line must be `*** End Patch`"
    );
    let out = |path: &str| {
        format!("line 2 of the patch: {path:?} leads out of the folder: give a path beneath it, without `..`")
    };
    assert_eq!(of("*** Delete File: ../a"), out("../a"));
    assert_eq!(of("*** Delete File: /etc/passwd"), out("/etc/passwd"));
    assert_eq!(of("*** Delete File: a/../../b"), out("a/../../b"));
    assert_eq!(
        of("*** Add File: .GIT/hooks/x"),
        "line 2 of the patch: \".GIT/hooks/x\" is git's own: use git for it"
    );
    assert_eq!(of("*** Delete File:  "), "line 2 of the patch: a path is missing");
    assert_eq!(of("*** Update File: a"), "line 2 of the patch: nothing is changed in a");
    assert_eq!(
        of("*** Delete File: a\n*** Add File: ./a\n+x"),
        "line 4 of the patch: a is named a second time"
    );
    assert!(of("*** Add File: a\nx").starts_with("line 3 of the patch: \"x\" is not expected here"));
    assert!(of("*** Delete File: a\n+x").starts_with("line 3 of the patch: \"+x\" is not expected here"));
    assert!(error(&"x".repeat(5 << 20)).starts_with("the patch has 5242880 bytes"));
}

#[test]
fn a_name_carries_nothing_to_the_terminal() {
    assert_eq!(Name::new("a\u{1b}[2Jb").unwrap().to_string(), "a\\u{1b}[2Jb");
}

#[test]
fn what_was_changed_meanwhile_is_left_alone() {
    let project = Project::new(&[("a", "1\n"), ("b", "1\n")]);
    let edits =
        parse("*** Begin Patch\n*** Update File: a\n-1\n+2\n*** Update File: b\n-1\n+2\n*** End Patch")
            .unwrap();
    let changes = patch::changes(&project.root(), &edits).unwrap();
    fs::write(project.path("b"), "3\n").unwrap();
    let error = files::make(&project.root(), &changes).unwrap_err().to_string();
    assert_eq!(error, "b: it was changed meanwhile");
    assert_eq!(says(&project.all()), [("a", "1\n"), ("b", "3\n")]);
}

/// The patch from one list of lines to another: equal lines at both ends stay, all between is replaced.
fn between(old: &[String], new: &[String]) -> String {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = old.len().min(new.len()) - same;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
    let mut lines: Vec<String> = old[..same].iter().map(|line| format!(" {line}")).collect();
    lines.extend(old[same..old.len() - tail].iter().map(|line| format!("-{line}")));
    lines.extend(new[same..new.len() - tail].iter().map(|line| format!("+{line}")));
    lines.extend(old[old.len() - tail..].iter().map(|line| format!(" {line}")));
    lines.join("\n")
}

proptest! {
    #[test]
    fn a_patch_between_two_texts_makes_one_of_the_other(
        old in prop::collection::vec("[ab ]{0,3}", 1..12),
        new in prop::collection::vec("[ab ]{0,3}", 1..12),
    ) {
        let text = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let project = Project::new(&[("a", &text(&old))]);
        // A line that ends the text of a patch must be one that is seen.
        project.patch(&format!("*** Update File: a\n{}\n*** End of File", between(&old, &new))).unwrap();
        prop_assert_eq!(&project.all()["a"], &text(&new));
    }

    #[test]
    fn any_text_is_a_patch_or_an_error(text in "(\\*\\*\\* (Begin Patch|End Patch|Add File: a|Update File: a|Move to: b|End of File)|[-+ @]{0,2}[a-c]{0,2}|\n){0,30}") {
        let project = Project::new(&[("a", "a\nb\nc\n")]);
        if let Ok(edits) = parse(&text) {
            let _ = project.apply(&edits);
        }
    }
}
