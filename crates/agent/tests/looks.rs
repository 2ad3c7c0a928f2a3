//! Reading, listing and changing files: whatever is asked for, nothing outside of the workspace is reached.

mod support;

use flint_agent::files;
use flint_agent::talk::FileKind;
use flint_agent::tools::{ToolError, Workshop, diff, diffs};
use flint_sandbox::Mode;
use std::os::unix::net::UnixListener;
use support::{Place, can_confine, output};

fn shop(place: &Place) -> Workshop {
    place.shop(Mode::ReadOnly)
}

fn made(shop: &Workshop, path: &str, old: &str, new: &str) -> Result<usize, ToolError> {
    let edited = shop.edit(path, old, new)?;
    files::make(shop.root(), &edited.changes)?;
    Ok(edited.places)
}

/// Links that lead out, in three ways.
fn with_links() -> Place {
    let place = Place::new();
    place.write("inner/file.txt", "needle\n");
    place.link(&place.outside, "out");
    place.link(&place.outside.join("secret.txt"), "secret.txt");
    place.link(std::path::Path::new("../outside/secret.txt"), "relative.txt");
    place.link(std::path::Path::new("/proc/self/root"), "magic");
    place
}

#[test]
fn a_file_is_read_as_it_stands() {
    let place = Place::new();
    place.write("a.txt", "one\n\ttwo  \nthree");
    place.write("empty", "");
    place.write("latin", b"gr\xfcn\n");
    place.write("image.png", b"\x89PNG\0\0");
    let shop = shop(&place);
    let read = |path: &str, first, lines| shop.read(path, first, lines).unwrap();
    assert_eq!(read("a.txt", None, None), "a.txt: all 3 lines\none\n\ttwo  \nthree");
    assert_eq!(read("./a.txt", Some(2), Some(1)), "a.txt: lines 2 to 2 of 3\n\ttwo  \n");
    assert_eq!(read("a.txt", Some(0), Some(1)), "a.txt: lines 1 to 1 of 3\none\n");
    assert_eq!(read("a.txt", Some(4), None), "a.txt: has 3 lines, there is no line 4\n");
    assert_eq!(
        read("a.txt", Some(usize::MAX), Some(usize::MAX)),
        format!("a.txt: has 3 lines, there is no line {}\n", usize::MAX)
    );
    assert_eq!(read("empty", None, None), "empty: empty\n");
    assert_eq!(
        read("latin", None, None),
        "latin: all 1 lines; it is not UTF-8, \u{fffd} stands for what cannot be shown\ngr\u{fffd}n\n"
    );
    assert_eq!(
        read("image.png", None, None),
        "image.png: binary, 6 bytes: use a command that understands it\n"
    );
    let whole = place.work.join("a.txt");
    assert!(read(whole.to_str().unwrap(), None, None).starts_with("a.txt: all"));
}

#[test]
fn long_files_are_read_in_parts() {
    let place = Place::new();
    let lines: String = (1..=5_000).map(|line| format!("line {line} of many\n")).collect();
    place.write("long.txt", &lines);
    place.write("wide.txt", "ä".repeat(100_000) + "\nend\n");
    place.write("huge.bin", "");
    std::fs::File::options().write(true).open(place.work.join("huge.bin")).unwrap().set_len(1 << 40).unwrap();
    let shop = shop(&place);
    let read = shop.read("long.txt", None, None).unwrap();
    assert!(read.starts_with("long.txt: lines 1 to 400 of 5000\nline 1 of many\n"), "{}", &read[..100]);
    let read = shop.read("long.txt", Some(1_000), Some(4_000)).unwrap();
    assert!(read.len() < 33 << 10);
    let head = read.lines().next().unwrap();
    assert!(head.starts_with("long.txt: lines 1000 to ") && head.contains("read on from line "), "{head}");
    let read = shop.read("wide.txt", None, None).unwrap();
    assert!(read.ends_with("ä[... 198001 bytes of this line are left out ...]\nend\n"), "{}", read.len());
    let error = shop.read("huge.bin", None, None).unwrap_err().to_string();
    assert!(error.contains("more than 33554432 bytes"), "{error}");
}

#[test]
fn nothing_outside_is_reached() {
    let place = with_links();
    let shop = shop(&place);
    let outside = place.outside.join("secret.txt");
    let paths = [
        "out/secret.txt",
        "secret.txt",
        "relative.txt",
        "../outside/secret.txt",
        "inner/../../outside/secret.txt",
        "magic/etc/passwd",
        outside.to_str().unwrap(),
        "/etc/passwd",
        "",
        ".",
        "..",
        ".git/config",
        "inner\0file",
        "inner/.GIT/config",
    ];
    for path in paths {
        let read = shop.read(path, None, None).unwrap_err().to_string();
        assert!(!read.contains("marmalade"), "{path}: {read}");
        shop.edit(path, "marmalade", "jam").unwrap_err();
        shop.edit(path, "", "jam").unwrap_err();
    }
    for path in ["out", "magic", "..", "/", "../outside", "magic/etc", "secret.txt", "out/secret.txt"] {
        shop.list(Some(path), 2).unwrap_err();
        shop.search("marmalade", Some(path), None).unwrap_err();
    }
    let listed = shop.list(None, 9).unwrap();
    assert_eq!(
        listed,
        "inner/\ninner/file.txt\nmagic (a link)\nout (a link)\nrelative.txt (a link)\nsecret.txt (a link)\n"
    );
    assert_eq!(shop.search("marmalade|needle", None, None).unwrap(), "inner/file.txt:1:needle\n");
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "marmalade\n");
    // A folder that becomes a link after the edit was made up.
    let edited = shop.edit("inner/secret.txt", "", "jam").unwrap();
    std::fs::rename(place.work.join("inner"), place.work.join("moved")).unwrap();
    place.link(&place.outside, "inner");
    files::make(shop.root(), &edited.changes).unwrap_err();
}

#[test]
fn what_is_not_a_file_is_not_opened() {
    let place = Place::new();
    place.write("inner/a.txt", "needle\n");
    let fifo = place.work.join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let _socket = UnixListener::bind(place.work.join("socket")).unwrap();
    // Neither may what is read on the way be a pipe, or without end.
    rustix::fs::mkfifoat(rustix::fs::CWD, place.work.join(".ignore"), rustix::fs::Mode::from_raw_mode(0o600))
        .unwrap();
    place.link(std::path::Path::new("/dev/zero"), ".gitignore");
    place.link(std::path::Path::new("/dev/zero"), "zero");
    let shop = shop(&place);
    for path in ["fifo", "socket", "zero", "inner"] {
        shop.read(path, None, None).unwrap_err();
        shop.edit(path, "", "jam").unwrap_err();
    }
    let listed = shop.list(None, 3).unwrap();
    assert!(
        listed.contains("fifo (not a file)\ninner/\ninner/a.txt\nsocket (not a file)\nzero (a link)"),
        "{listed}"
    );
}

#[test]
fn secrets_are_refused() {
    let place = Place::new();
    place.write("keys/private", "marmalade\n");
    place.write("a/b", "");
    place.link(&place.work.join("keys"), "a/link");
    let mut policy = place.policy(Mode::DangerFullAccess);
    policy.secrets.push(place.work.join("keys"));
    let shop = Workshop::open(policy, support::KEEPER.into()).unwrap();
    for path in ["keys/private", "a/link/private"] {
        assert!(matches!(shop.read(path, None, None), Err(ToolError::Secret(_))), "{path}");
        assert!(matches!(shop.edit(path, "marmalade", ""), Err(ToolError::Secret(_))), "{path}");
    }
    assert_eq!(shop.search("marmalade", None, None).unwrap(), "[nothing matches]\n");
    assert!(matches!(shop.search("marmalade", Some("keys/private"), None), Err(ToolError::Secret(_))));
}

#[test]
fn what_git_ignores_is_not_listed() {
    let place = Place::new();
    place.write(".gitignore", "/target\n*.log\n!keep.log\n[bad\n");
    for path in [
        "target/x",
        "a.log",
        "keep.log",
        "src/b.log",
        "src/target/y",
        "src/deep/z",
        ".git/config",
        ".github/ci.yml",
    ] {
        place.write(path, "");
    }
    place.write("src/.gitignore", "deep/\n!b.log\n");
    let shop = shop(&place);
    let all = ".github/\n.github/ci.yml\n.gitignore\nkeep.log\nsrc/\nsrc/.gitignore\nsrc/b.log\nsrc/target/\nsrc/target/y\n";
    assert_eq!(shop.list(None, 9).unwrap(), all);
    assert_eq!(shop.list(Some("."), 1).unwrap(), ".github/\n.gitignore\nkeep.log\nsrc/\n");
    assert_eq!(shop.list(Some("src"), 1).unwrap(), "src/.gitignore\nsrc/b.log\nsrc/target/\n");
    // What is asked for by name is shown.
    assert_eq!(shop.list(Some("target"), 1).unwrap(), "target/x\n");
    assert!(matches!(shop.list(Some("scr"), 1), Err(ToolError::Missing { .. })));
    assert!(shop.list(Some("keep.log"), 1).unwrap_err().to_string().ends_with("is not a folder"));
    (0..600).for_each(|number| place.write(&format!("many/{number}"), ""));
    let listed = shop.list(Some("many"), 1).unwrap();
    assert_eq!(listed.lines().count(), 501);
    assert!(listed.ends_with("[there is more: list a folder of these, or less deep]\n"));
}

#[test]
fn lines_are_found() {
    let place = Place::new();
    place.write(".gitignore", "/target\n");
    place.write("src/a.rs", "fn one() {}\r\nfn two(x: [u8; 2]) {}\n");
    place.write("src/b.py", "def one():\n  pass\n");
    place.write("target/c.rs", "fn one() {}\n");
    place.write(".git/d.rs", "fn one() {}\n");
    place.write("latin.rs", b"fn one() { gr\xfcn }\n");
    place.write("image.rs", b"\0\0fn one()");
    let shop = shop(&place);
    let search = |pattern: &str, path, glob| shop.search(pattern, path, glob).unwrap();
    let latin = "latin.rs:1:fn one() { gr\u{fffd}n }\n";
    assert_eq!(search(r"fn \w+\(\)", None, None), format!("{latin}src/a.rs:1:fn one() {{}}\n"));
    assert_eq!(search("one", None, Some("*.py")), "src/b.py:1:def one():\n");
    assert_eq!(search("one", Some("src"), Some("!*.py")), "src/a.rs:1:fn one() {}\n");
    assert_eq!(search("one", None, Some("src/**")).lines().count(), 2);
    assert_eq!(search("^  pass$", Some("src/b.py"), None), "src/b.py:2:  pass\n");
    assert_eq!(search("zebra", None, None), "[nothing matches]\n");
    let literal = search("two(x: [", None, None);
    assert!(
        literal.starts_with("src/a.rs:2:fn two(x: [u8; 2]) {}\n[the pattern is no regular expression ("),
        "{literal}"
    );
    let costly = search("((a{100}){100}){100}", None, None);
    assert!(costly.contains("no regular expression"), "{costly}");
    assert!(matches!(shop.search("", None, None), Err(ToolError::Pattern(_))));
    assert!(matches!(shop.search("a", None, Some("{a")), Err(ToolError::Glob { .. })));
    assert!(matches!(shop.search("a", Some("scr"), None), Err(ToolError::Missing { .. })));
}

#[test]
fn a_search_has_bounds() {
    let place = Place::new();
    place.write("long", "needle\n".repeat(10_000));
    place.write("wide", "ä".repeat(5_000) + "needle\n");
    place.write(&format!("deep/{}file", "d/".repeat(100)), "");
    let shop = shop(&place);
    let found = shop.search("needle", Some("long"), None).unwrap();
    assert_eq!(found.lines().count(), 201);
    assert!(found.ends_with("[there are more: search beneath a folder, or for less]\n"));
    let wide = shop.search("needle", Some("wide"), None).unwrap();
    assert!(wide.ends_with("ä [... 9706 more bytes]\n") && wide.len() < 400, "{wide}");
    let deep = shop.search("nothing", Some("deep"), None).unwrap();
    assert_eq!(deep, "[nothing matches]\n[not all files were searched: search beneath a folder]\n");
}

#[test]
fn a_name_that_is_not_there_reminds_of_one_that_is() {
    let place = Place::new();
    place.write("src/tools/shell.rs", "");
    place.write("src/main.rs", "");
    let shop = shop(&place);
    for (path, near) in [
        ("shell.rs", "src/tools/shell.rs"),
        ("src/mian.rs", "src/main.rs"),
        ("src/tool/shell.rs", "src/tools/shell.rs"),
    ] {
        let error = shop.read(path, None, None).unwrap_err().to_string();
        assert_eq!(error, format!("{path} is not there; did you mean {near}?"));
    }
    let error = shop.read("zzzz", None, None).unwrap_err().to_string();
    assert_eq!(error, "zzzz is not there: list the folder to see what is");
}

#[test]
fn edits_find_their_place() {
    for (text, old, new, expected, places) in [
        ("a\nb\nc\n", "b", "x", "a\nx\nc\n", 1),
        ("a b a b\n", "a", "x", "x b a b\n", 2),
        ("a\nb", "b", "b\n", "a\nb\n", 1),
        // Blanks at the ends of lines.
        ("if a:  \n    b\t\nc\n", "if a:\n    b\n", "if b:\n    a\n", "if b:\n    a\nc\n", 1),
        ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n", 1),
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n", 1),
        ("a \nb", "a\nb", "c", "c", 1),
        // Indented more, or less.
        (
            "fn a() {\n    if b {\n        c();\n    }\n}\n",
            "if b {\n    c();\n}",
            "if d {\n\n    c();\n}",
            "fn a() {\n    if d {\n\n        c();\n    }\n}\n",
            1,
        ),
        (
            "if b {\n\n  c();\n}\n",
            "    if b {\n\n      c();\n    }\n",
            "    d();\n  e();\n",
            "d();\n  e();\n",
            1,
        ),
        ("\tx\n\ty\n\tx\n\ty\n", "x\ny\n", "z\n", "\tz\n\tx\n\ty\n", 2),
    ] {
        let place = Place::new();
        place.write("f", text);
        let found = made(&shop(&place), "f", old, new).unwrap();
        assert_eq!((place.says("f").as_str(), found), (expected, places), "{text:?} {old:?}");
    }
}

#[test]
fn edits_without_a_place_show_the_nearest() {
    let place = Place::new();
    place.write(
        "a.py",
        "import os\n\ndef main():\n    total = compute(1, 2)\n    print(total)\n    return 0\n",
    );
    place.write("bytes", b"\xff\xfe");
    let shop = shop(&place);
    let error = |old: &str, new: &str| shop.edit("a.py", old, new).unwrap_err().to_string();
    assert_eq!(
        error("    total = compute(1, 3)\n    print(total)\n", ""),
        "a.py: the text to be replaced is not in it. Lines 4 to 5 are the nearest:\n    total = compute(1, 2)\n    \
         print(total)\nGive it exactly as it stands there."
    );
    let one = error("total = compute(1, 3)", "");
    assert!(one.contains("Lines 4 to 4 are the nearest:\n    total = compute(1, 2)\n"), "{one}");
    assert!(error("quite another thing", "").ends_with("read the file first"));
    assert!(error("  \n \n", "x").ends_with("read the file first"));
    assert!(error("import os", "import os").starts_with("the new text is the same as the old"));
    // An indentation that is not shifted by the same everywhere is no match.
    assert!(error("def main():\ntotal = compute(1, 2)\n", "").contains("are the nearest"));
    assert!(matches!(shop.edit("bytes", "a", "b"), Err(ToolError::NotText(_))));
    let added = shop.edit("a.py", "", "x").unwrap();
    let after = String::from_utf8(added.changes[0].after.clone().unwrap().0).unwrap();
    assert!(after.ends_with("\nx\n"), "{after}");
    assert!(matches!(shop.edit("b.py", "x", "y"), Err(ToolError::Missing { .. })));
    place.write("empty", "");
    made(&shop, "empty", "", "x\n").unwrap();
    made(&shop, "new/folder/file", "", "y\n").unwrap();
    assert_eq!((place.says("empty"), place.says("new/folder/file")), ("x\n".into(), "y\n".into()));
}

#[test]
fn a_hopeless_edit_ends_soon() {
    let place = Place::new();
    place.write("big", "same\n".repeat(1 << 20));
    let old = "same\n".repeat(20_000) + "other\n";
    let begun = std::time::Instant::now();
    let error = shop(&place).edit("big", &old, "x").unwrap_err().to_string();
    assert!(error.contains("takes too long") && begun.elapsed().as_secs() < 20, "{error}");
}

#[test]
fn changes_are_shown() {
    let place = Place::new();
    place.write("a", "one\ntwo\nthree\n");
    let shop = shop(&place);
    let edited = shop.edit("a", "two", "2").unwrap();
    let shown = diff(&edited.changes[0]);
    assert_eq!((shown.path.as_str(), shown.kind), ("a", FileKind::Updated));
    assert_eq!(shown.diff, "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n");
    let added = diff(&shop.edit("b", "", "x\n").unwrap().changes[0]);
    assert_eq!((added.kind, added.diff.as_str()), (FileKind::Added, "@@ -0,0 +1 @@\n+x\n"));
    let patch = "*** Begin Patch\n*** Update File: a\n*** Move to: c\n-two\n+2\n*** Delete File: b\n*** Add File: d\n+new\n*** End Patch";
    place.write("b", "x\n");
    let edits = flint_agent::patch::parse(patch).unwrap();
    let changes = flint_agent::patch::changes(shop.root(), &edits).unwrap();
    let kinds: Vec<_> = diffs(&changes).into_iter().map(|change| (change.path, change.kind)).collect();
    let expected =
        [("c", FileKind::Moved { from: "a".into() }), ("b", FileKind::Deleted), ("d", FileKind::Added)];
    assert_eq!(kinds, expected.map(|(path, kind)| (path.to_owned(), kind)));
    let binary = files::Change { before: Some(vec![0xff]), ..changes[0].clone() };
    assert_eq!(diff(&binary).diff, "binary: 1 bytes before, 0 after\n");
}

#[test]
fn what_git_and_agents_run_is_put_back() {
    if !can_confine() {
        return;
    }
    let place = Place::new();
    let shop = place.open();
    let quiet = output(&shop, "git init -q . && git config user.email a@b && git config user.name a");
    assert_eq!((quiet.code, quiet.notes.len()), (Some(0), 0), "{quiet:?}");
    let config = place.says(".git/config");
    place.write(".git/hooks/pre-commit", "#!/bin/sh\n");
    place.write(".flint/config.toml", "model = \"a\"\n");
    for (command, path) in [
        ("git config core.fsmonitor ./evil", ".git/config"),
        ("echo evil >> .git/hooks/pre-commit", ".git/hooks/pre-commit"),
        ("chmod 777 .git/hooks/pre-commit", ".git/hooks/pre-commit"),
        ("echo evil > .git/hooks/post-checkout", ".git/hooks/post-checkout"),
        ("rm .git/config", ".git/config"),
        ("rm -r .git/hooks && ln -s /tmp .git/hooks", ".git/hooks"),
        ("echo ../x > .git/commondir", ".git/commondir"),
        ("echo 'x = 1' > .flint/config.toml", ".flint/config.toml"),
        ("mkdir -p .flint/agents && echo x > .flint/agents/evil.toml", ".flint/agents/evil.toml"),
        ("mkdir -p .codex/a/b/c && touch .codex/a/b/c/d", ".codex"),
        ("mv .git saved && mkdir evil && ln -s evil .git", ".git"),
        ("rm -r .git; mv saved .git && git config core.pager evil", ".git/config"),
    ] {
        let ran = output(&shop, command);
        let note = format!("`{path}` was changed by the command and is put back");
        assert!(ran.notes.iter().any(|said| said.starts_with(&note)), "{command}: {ran:?}");
        assert_eq!(place.says(".git/config"), config, "{command}");
        assert_eq!(place.says(".git/hooks/pre-commit"), "#!/bin/sh\n", "{command}");
        assert_eq!(place.says(".flint/config.toml"), "model = \"a\"\n", "{command}");
        for gone in [".git/hooks/post-checkout", ".git/commondir", ".flint/agents", ".codex", "evil/config"] {
            assert!(!place.work.join(gone).exists(), "{command}: {gone}");
        }
    }
    // A repository that went and comes back is as it was.
    assert!(output(&shop, "mv .git away").notes.is_empty());
    let ran = output(&shop, "mv away .git && git config alias.st '!evil'");
    assert!(ran.notes[0].starts_with("`.git/config` was changed"), "{ran:?}");
    assert_eq!(place.says(".git/config"), config);
    // Work with git goes on.
    let ran = output(
        &shop,
        "echo a > a && git add a && rm .git/hooks/pre-commit; git commit -qm a && git log --oneline | wc -l",
    );
    assert_eq!(ran.output.trim(), "1", "{ran:?}");
}

/// What one command has done must not be what another one is compared with.
#[test]
fn commands_that_run_at_once_put_back_the_same() {
    if !can_confine() {
        return;
    }
    fn shared<T: Send + Sync>(thing: T) -> T {
        thing
    }
    let place = Place::new();
    place.write(".git/config", "[core]\n");
    let shop = shared(place.open());
    let wait = |path: &str| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !place.work.join(path).exists() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
    };
    let (first, second) = std::thread::scope(|scope| {
        let evil = "echo evil > .git/config; touch begun; while [ ! -e ended ]; do :; done; echo worse > .git/config";
        let first = scope.spawn(|| output(&shop, evil));
        wait("begun");
        let second = output(&shop, "cat .git/config");
        place.write("ended", "");
        (first.join().unwrap(), second)
    });
    assert_eq!(place.says(".git/config"), "[core]\n");
    assert_eq!((first.notes.len(), second.notes.len()), (1, 1), "{first:?} {second:?}");
}
