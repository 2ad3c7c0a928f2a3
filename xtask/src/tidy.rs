//! Tidiness as a test: what no reader should have to meet in the sources.

use crate::sources::{read, tracked};
use std::path::Path;

const FILE_LINES_MAX: usize = 700;
const FUNCTION_LINES_MAX: usize = 80;

/// Words that must not be in a source, and why. Each is written in two parts, so as not to be in this one.
const FORBIDDEN: [(&str, &str); 7] = [
    (concat!("to", "do!("), "unfinished"),
    (concat!("unimple", "mented!("), "unfinished"),
    (concat!("#[ign", "ore"), "a test that does not run"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    ("\t", "a tab"),
];

/// Tracked files that people write, by the ends of their names.
const SOURCES: [&str; 5] = [".rs", ".toml", ".py", ".md", ".ci/run"];

/// What is untidy in one file.
fn faults(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        faults.push(format!(
            "{name} has {lines} lines, at most {FILE_LINES_MAX}: look for the second idea in it"
        ));
    }
    for (at, line) in text.lines().enumerate() {
        let found = FORBIDDEN.iter().filter(|(word, _)| line.contains(word));
        faults.extend(found.map(|(_, why)| format!("{name}:{}: {why}", at + 1)));
    }
    if name.ends_with(".rs") {
        let long = functions(text).into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
        faults.extend(long.map(|(at, lines)| {
            format!("{name}:{at}: a function of {lines} lines, at most {FUNCTION_LINES_MAX}: look for its second step")
        }));
    }
    faults
}

/// Where functions begin and how many lines they have. Formatted code is indented by its depth, so a function ends
/// with the first brace that is indented as its beginning.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        if !is_function(code) || code.ends_with([';', '}']) {
            continue;
        }
        let at_depth =
            |line: &&str| line.strip_prefix(indent).is_some_and(|code| code.starts_with(['}', ')']));
        let end = lines[at + 1..].iter().position(|line| at_depth(line) && line.ends_with(['}', ';']));
        functions.extend(end.map(|end| (at + 1, end + 2)));
    }
    functions
}

fn is_function(code: &str) -> bool {
    let mut words = code.split_whitespace().skip_while(|word| {
        word.starts_with("pub") || matches!(*word, "const" | "async" | "unsafe" | "extern" | "\"C\"" | "in")
    });
    words.next() == Some("fn")
}

/// A crate without unsafe code forbids it; one that needs it is under the lint that wants every block explained.
fn unsafe_fault(folder: &str, manifest: &str, root: &str, sources: &[String]) -> Option<String> {
    let forbids = root.contains("#![forbid(unsafe_code)]");
    let uses = sources.iter().any(|source| source.lines().any(uses_unsafe));
    let explained = manifest.contains("[lints]\nworkspace = true");
    match (forbids, uses) {
        (true, _) => None,
        (false, true) if explained => None,
        (false, true) => Some(format!("{folder} has unsafe code and not the workspace's lints")),
        (false, false) => Some(format!("{folder} has no unsafe code: let it forbid it")),
    }
}

fn uses_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"].iter().any(|word| code.contains(word))
}

/// Folders of the workspace's crates.
fn crates(tracked: &[String]) -> Vec<&str> {
    let manifests = tracked.iter().filter_map(|name| name.strip_suffix("/Cargo.toml"));
    manifests.filter(|folder| Path::new(folder).components().count() <= 2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_are_tidy() {
        let sources = tracked().unwrap();
        let sources = sources.iter().filter(|name| SOURCES.iter().any(|end| name.ends_with(end)));
        let faults: Vec<String> = sources.flat_map(|name| faults(name, &read(name).unwrap())).collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }

    #[test]
    fn unsafe_code_is_forbidden_or_explained() {
        let tracked = tracked().unwrap();
        let mut faults = Vec::new();
        for folder in crates(&tracked) {
            let source = format!("{folder}/src/");
            let names = tracked.iter().filter(|name| name.starts_with(&source) && name.ends_with(".rs"));
            let sources: Vec<String> = names.map(|name| read(name).unwrap()).collect();
            let root =
                read(&format!("{source}lib.rs")).or_else(|_| read(&format!("{source}main.rs"))).unwrap();
            let manifest = read(&format!("{folder}/Cargo.toml")).unwrap();
            faults.extend(unsafe_fault(folder, &manifest, &root, &sources));
        }
        assert!(faults.is_empty(), "{faults:#?}");
    }

    #[test]
    fn untidy_files_are_found() {
        let path = concat!("let path = \"/ro", "ot/x\";");
        for (text, expected) in [
            (path, "a.rs:1: a path of one machine"),
            (concat!("fn a() {\n    to", "do!()\n}"), "a.rs:2: unfinished"),
            (concat!("#[ign", "ore]"), "a.rs:1: a test that does not run"),
            ("a\tb", "a.rs:1: a tab"),
        ] {
            assert_eq!(faults("a.rs", text), [expected]);
        }
        let long = "x\n".repeat(FILE_LINES_MAX + 1);
        assert!(faults("a.md", &long)[0].starts_with("a.md has 701 lines"));
        let long = format!("    pub fn a(\n        x: u8,\n    ) {{\n{}    }}\n", "        x;\n".repeat(80));
        assert!(
            faults("a.rs", &long)[0].starts_with("a.rs:1: a function of 84 lines"),
            "{:?}",
            faults("a.rs", &long)
        );
    }

    #[test]
    fn functions_are_measured() {
        let text = "\
trait A {
    fn declared(
        x: u8,
    ) -> u8;
    fn short() {}
    async fn three() {
        if x {
        }
    }
}
pub(crate) const unsafe fn two() {
}
";
        assert_eq!(functions(text), [(2, 3), (6, 4), (11, 2)]);
    }

    #[test]
    fn unsafe_code_is_found() {
        let source = |text: &str| vec![text.to_owned()];
        let (plain, code) = (source("let a = 1; // unsafe { }"), source("    unsafe { x() }"));
        let lints = "[lints]\nworkspace = true";
        assert_eq!(unsafe_fault("a", "", "#![forbid(unsafe_code)]", &plain), None);
        assert_eq!(unsafe_fault("a", lints, "", &code), None);
        assert!(unsafe_fault("a", lints, "", &plain).is_some());
        assert!(unsafe_fault("a", "", "", &code).is_some());
    }
}
