//! What becomes of files, as people read it.

use crate::files::Change;
use crate::limits::{DIFF_BYTES_MAX, DIFF_MILLISECONDS_MAX};
use crate::talk::{FileChange, FileKind};
use similar::TextDiff;
use std::time::Duration;

/// How much of a file must be the same for one that goes and one that comes to be one that moves.
const MOVED: f32 = 0.5;

/// Changes that are made together: a file that goes and comes back elsewhere has moved.
pub fn diffs(changes: &[Change]) -> Vec<FileChange> {
    let mut shown = Vec::new();
    let mut rest = changes;
    while let [change, after @ ..] = rest {
        match after.first().and_then(|next| moved(change, next)) {
            Some(moved) => {
                shown.push(moved);
                rest = &after[1..];
            }
            None => {
                shown.push(diff(change));
                rest = after;
            }
        }
    }
    shown
}

pub fn diff(change: &Change) -> FileChange {
    let after = change.after.as_ref().map(|(content, _)| content.as_slice());
    let kind = match (&change.before, after) {
        (None, _) => FileKind::Added,
        (Some(_), None) => FileKind::Deleted,
        (Some(_), Some(_)) => FileKind::Updated,
    };
    let diff = unified(change.before.as_deref().unwrap_or_default(), after.unwrap_or_default());
    FileChange { path: change.name.to_string(), kind, diff }
}

fn moved(from: &Change, to: &Change) -> Option<FileChange> {
    let (
        Change { before: Some(before), after: None, .. },
        Change { before: None, after: Some((after, _)), .. },
    ) = (from, to)
    else {
        return None;
    };
    let texts = (std::str::from_utf8(before).ok()?, std::str::from_utf8(after).ok()?);
    let same = before == after || lines(texts.0, texts.1).ratio() >= MOVED;
    let kind = FileKind::Moved { from: from.name.to_string() };
    same.then(|| FileChange { path: to.name.to_string(), kind, diff: unified(before, after) })
}

fn unified(before: &[u8], after: &[u8]) -> String {
    let texts = std::str::from_utf8(before).and_then(|before| Ok((before, std::str::from_utf8(after)?)));
    let Ok((before, after)) = texts else {
        return format!("binary: {} bytes before, {} after\n", before.len(), after.len());
    };
    let diff = lines(before, after).unified_diff().context_radius(3).to_string();
    let shown = diff.floor_char_boundary(DIFF_BYTES_MAX);
    match diff.len() - shown {
        0 => diff,
        left_out => format!("{}\n[... {left_out} bytes are left out here ...]\n", &diff[..shown]),
    }
}

/// What takes too long to compare is shown as more different than it is.
fn lines<'a>(before: &'a str, after: &'a str) -> TextDiff<'a, 'a, str> {
    TextDiff::configure().timeout(Duration::from_millis(DIFF_MILLISECONDS_MAX)).diff_lines(before, after)
}
