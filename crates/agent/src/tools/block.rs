//! An edit that gives a block's first line and all of the new block means all of the old one.
//!
//! Small models replace `fn f() {` by a whole function. Taken at its word that leaves the old body behind, and a file that
//! no compiler reads. So where the new text closes what the old one leaves open, the old text goes on to where that is
//! closed.

use std::ops::Range;

/// The lines to be replaced: those of `bytes`, and the rest of the block that they begin if `new` has its own.
pub fn whole_block(text: &str, bytes: Range<usize>, new: &str) -> Range<usize> {
    let old = &text[bytes.clone()];
    let rest = &text[bytes.end..];
    // What follows a line's middle is no block.
    if !(old.ends_with('\n') || rest.starts_with(['\n', '\r'])) {
        return bytes;
    }
    let more = match open(old) - open(new) {
        0 => indented(old, rest, new),
        surplus if surplus > 0 => closed(old, rest, surplus),
        _ => None,
    };
    bytes.start..bytes.end + more.unwrap_or(0)
}

/// Brackets that are opened and not closed. Those in texts and comments count too: mostly they come in pairs.
fn open(text: &str) -> i64 {
    let step = |c: char| match c {
        '{' | '(' | '[' => 1,
        '}' | ')' | ']' => -1,
        _ => 0,
    };
    text.chars().map(step).sum()
}

/// Bytes up to the end of the line that closes what is open, if nothing before it is indented less than the block.
fn closed(old: &str, rest: &str, mut surplus: i64) -> Option<usize> {
    let outer = indent(old.lines().find(|line| !line.trim().is_empty())?);
    let mut bytes = 0;
    for line in rest.split_inclusive('\n') {
        bytes += line.len();
        if !line.trim().is_empty() && indent(line) < outer {
            return None;
        }
        surplus += open(line);
        match surplus {
            0 => return Some(bytes - newline(old, line)),
            ..0 => return None,
            _ => {}
        }
    }
    None
}

/// Bytes of the lines that a colon at the end of `old` governs, if `new` has such lines of its own.
fn indented(old: &str, rest: &str, new: &str) -> Option<usize> {
    let head =
        old.lines().rfind(|line| !line.trim().is_empty()).filter(|line| line.trim_end().ends_with(':'))?;
    let own =
        new.lines().rfind(|line| !line.trim().is_empty()).filter(|line| !line.trim_end().ends_with(':'))?;
    let first = new.lines().find(|line| !line.trim().is_empty())?;
    if indent(own) <= indent(first) {
        return None;
    }
    let (mut bytes, mut end) = (0, None);
    for line in rest.split_inclusive('\n') {
        bytes += line.len();
        match line.trim().is_empty() {
            true => {}
            false if indent(line) > indent(head) => end = Some(bytes - newline(old, line)),
            false => break,
        }
    }
    end
}

/// The end of the last line stays, if that of the old text was to.
fn newline(old: &str, line: &str) -> usize {
    if old.ends_with('\n') { 0 } else { line.len() - line.trim_end_matches(['\n', '\r']).len() }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, old: &str, new: &str, expected: &str) {
        let at = text.find(old).unwrap();
        let bytes = whole_block(text, at..at + old.len(), new);
        assert_eq!([&text[..bytes.start], new, &text[bytes.end..]].concat(), expected);
    }

    #[test]
    fn a_block_goes_with_its_first_line() {
        let text = "fn a() {\n    if b {\n        c();\n    }\n}\n\nfn d() {}\n";
        check(text, "fn a() {", "fn a() {\n    e();\n}", "fn a() {\n    e();\n}\n\nfn d() {}\n");
        check(text, "fn a() {\n", "fn a() {}\n", "fn a() {}\n\nfn d() {}\n");
        check(
            text,
            "    if b {\n",
            "    if x {\n        y();\n    }\n",
            "fn a() {\n    if x {\n        y();\n    }\n}\n\nfn d() {}\n",
        );
        let python = "def a(b):\n    c = 1\n\n    return c\n\n\ndef d():\n    pass\n";
        check(
            python,
            "def a(b):",
            "def a(b):\n    return 2",
            "def a(b):\n    return 2\n\n\ndef d():\n    pass\n",
        );
        check(
            python,
            "def a(b):\n",
            "def a(b):\n    return 2\n",
            "def a(b):\n    return 2\n\n\ndef d():\n    pass\n",
        );
    }

    #[test]
    fn lines_that_leave_open_what_was_open_are_replaced_alone() {
        let text = "fn a() {\n    b();\n}\n";
        check(text, "fn a() {\n", "fn a(c: u8) {\n", "fn a(c: u8) {\n    b();\n}\n");
        check(text, "    b();\n", "    b();\n    c();\n", "fn a() {\n    b();\n    c();\n}\n");
        let python = "if a:\n    b()\n";
        check(python, "if a:\n", "if c:\n", "if c:\n    b()\n");
        check(python, "    b()\n", "    if x:\n        b()\n", "if a:\n    if x:\n        b()\n");
        // What never closes, or closes further out, is left as it is.
        check("a(\nb\n", "a(\n", "c()\n", "c()\nb\n");
        check("{\n  a(\n}\n", "  a(\n", "  c()\n", "{\n  c()\n}\n");
    }
}
