//! Unified diffs in colours, with the numbers of their lines.

use crate::limits::LINE_CHARS_MAX;
use crate::style::{BAD, DIM, GOOD, PLACE};
use crate::wrap::{Break, Margin, Row, piece, wrap};
use flint_agent::talk::{FileChange, FileKind};

/// Lines that came and went.
pub fn counts(diff: &str) -> (usize, usize) {
    let count = |mark| diff.lines().filter(|line| line.starts_with(mark)).count();
    (count('+'), count('-'))
}

/// What was done to which file, in words.
pub fn title(change: &FileChange) -> String {
    match &change.kind {
        FileKind::Added => format!("added {}", change.path),
        FileKind::Deleted => format!("deleted {}", change.path),
        FileKind::Updated => format!("changed {}", change.path),
        FileKind::Moved { from } => format!("moved {from} to {}", change.path),
    }
}

/// At most `lines_max` lines of a diff, indented.
pub fn rows(diff: &str, width: usize, lines_max: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut numbers = Numbers { old: 1, new: 1 };
    for line in diff.lines().take(lines_max) {
        rows.extend(line_rows(line, width, &mut numbers));
    }
    let more = diff.lines().skip(lines_max).count();
    if more > 0 {
        rows.push(crate::wrap::row(&format!("    … {more} more lines"), DIM));
    }
    rows
}

/// Of the next line of the file before and after.
struct Numbers {
    old: usize,
    new: usize,
}

fn line_rows(line: &str, width: usize, numbers: &mut Numbers) -> Vec<Row> {
    if let Some((old, new)) = hunk_begin(line) {
        *numbers = Numbers { old, new };
        return wrap(&[piece(line, PLACE)], width, &Margin::new("    ", "    ", PLACE), Break::Anywhere);
    }
    let (number, style) = match line.chars().next() {
        Some('+') => (next(&mut numbers.new), GOOD),
        Some('-') => (next(&mut numbers.old), BAD),
        Some(_) | None => {
            next(&mut numbers.old);
            (next(&mut numbers.new), DIM)
        }
    };
    let text: String = line.chars().take(LINE_CHARS_MAX).collect();
    let margin = Margin::new(&format!("{number:>5} "), "      ", DIM);
    wrap(&[piece(&text, style)], width, &margin, Break::Anywhere)
}

fn next(number: &mut usize) -> usize {
    let now = *number;
    *number = now.saturating_add(1);
    now
}

/// The first lines that `@@ -1,2 +3,4 @@` speaks of.
fn hunk_begin(line: &str) -> Option<(usize, usize)> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let first = |range: &str| range.split([',', ' ']).next()?.parse().ok();
    Some((first(old)?, first(rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_numbers() {
        let rows = rows("@@ -3,2 +7,2 @@ fn a\n a\n-b\n+c\n", 40, 3);
        let text: Vec<String> = rows.iter().map(|row| row.to_string()).collect();
        assert_eq!(text, ["    @@ -3,2 +7,2 @@ fn a", "    7  a", "    4 -b", "    … 1 more lines"]);
        assert_eq!(counts("+a\n-b\n+c\n d"), (2, 1));
        assert_eq!(hunk_begin("@@ -99999999999999999999 +1 @@"), None);
    }
}
