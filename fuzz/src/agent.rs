//! What must hold for any patch: it is refused in words, or each file's other lines stay and its new ones are there.

use flint_agent::patch::{Line, What, parse, patched};

/// A file, an empty line of dashes, and a patch.
pub fn patch(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (file, patch) = text.split_once("\n----\n").unwrap_or(("", &text));
    let edits = match parse(patch) {
        Ok(edits) => edits,
        Err(error) => return in_words(&error.to_string()),
    };
    for edit in edits {
        in_words(&edit.name.to_string());
        let What::Update { hunks, .. } = edit.what else { continue };
        match patched(&edit.name, file, &hunks) {
            Ok(after) => {
                let lines = || hunks.iter().flat_map(|hunk| &hunk.lines);
                let old = lines().filter(|line| matches!(line, Line::Old(_))).count();
                let new = lines().filter(|line| matches!(line, Line::New(_))).count();
                assert_eq!(after.lines().count(), file.lines().count() - old + new);
                if new == 0 && old == 0 {
                    assert_eq!(after, file);
                }
            }
            Err(error) => in_words(&error.to_string()),
        }
    }
}

fn in_words(text: &str) {
    assert!(!text.is_empty() && text.len() < 10_000);
    assert!(!text.contains('\u{1b}'), "an escape sequence");
}
