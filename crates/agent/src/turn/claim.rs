//! An answer that tells of a change, or shows it, and does not make it.
//!
//! Small models say "I fixed the bug" and call for nothing, or write the new file into their answer. Where the person asked for
//! a change of a file, and nothing was called for, the first are asked for the change itself, once; what the second show
//! becomes the file.

use super::rewrite::block;
use super::{Stop, Turn};
use crate::agent::Agent;
use crate::history::{text_of, user};
use crate::root::Name;

/// What one says to have done to a file.
const DONE: [&str; 24] = [
    "added",
    "adjusted",
    "applied",
    "changed",
    "converted",
    "corrected",
    "created",
    "deleted",
    "edited",
    "fixed",
    "implemented",
    "improved",
    "inserted",
    "made",
    "modified",
    "moved",
    "refactored",
    "removed",
    "renamed",
    "replaced",
    "rewrote",
    "rewritten",
    "simplified",
    "updated",
];

impl Agent {
    /// An answer that shows the new file is taken for the file.
    pub(super) fn take_shown(&self, turn: &mut Turn) {
        let wanted = turn.target.as_ref().filter(|_| turn.asks_for_change && !turn.acted);
        let Some(path) = wanted.filter(|path| self.is_short(path)) else { return };
        let file = Name::new(path).ok().and_then(|name| self.workshop.root().read(&name).ok());
        let said = self.log.items().last().map(text_of).unwrap_or_default();
        if let (Some((file, _)), Some(block)) = (file, block(&said))
            && is_version(&String::from_utf8_lossy(&file), &block)
        {
            (turn.rewriting, turn.acted) = (Some(path.clone()), true);
        }
    }

    /// True: the model was told that nothing has changed, and goes on.
    pub(super) fn holds_to_claim(&mut self, turn: &mut Turn) -> Result<bool, Stop> {
        let said = self.log.items().last().map(text_of).unwrap_or_default();
        // Where the answer has a form of its own there is no file in it, and a check that follows anyway says more.
        let bound = self.settings.schema.is_some() || self.settings.always_verify;
        if turn.acted || bound || turn.target.is_none() || !turn.asks_for_change || !claims(&said) {
            return Ok(false);
        }
        turn.acted = true; // It is asked once.
        let asked = self.wants_change(turn);
        self.log.push(user(&format!("Nothing was changed yet: no tool was called. {asked}")))?;
        Ok(true)
    }
}

/// Whether most of a file's lines stand in this text, in their order.
fn is_version(file: &str, text: &str) -> bool {
    let (kept, all) = lines_kept(file, text);
    kept > 0 && kept * 3 >= all * 2
}

/// Lines of a file that stand in this text, in their order, and how many it has.
pub(super) fn lines_kept(file: &str, text: &str) -> (usize, usize) {
    let lines = |text| str::lines(text).map(str::trim).filter(|line| !line.is_empty());
    let mut rest = lines(text);
    let mut kept = 0;
    for line in lines(file) {
        let mut ahead = rest.clone();
        if ahead.any(|other| other == line) {
            (rest, kept) = (ahead, kept + 1);
        }
    }
    (kept, lines(file).count())
}

/// Whether who says this says to have changed something.
fn claims(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '’');
    let words: Vec<String> =
        words.filter(|word| !word.is_empty()).map(|word| word.to_lowercase().replace('’', "'")).collect();
    let does = |word: &String| DONE.contains(&word.as_str());
    words.iter().enumerate().any(|(at, word)| {
        // "I have now renamed", "I've fixed", "has been updated"
        let reach = match word.as_str() {
            "i" | "i've" | "we" | "we've" => 4,
            "been" => 2,
            _ => return false,
        };
        let after = words[at + 1..].iter().take(reach);
        after
            .take_while(|word| !matches!(word.as_str(), "not" | "would" | "can" | "could" | "should"))
            .any(does)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_most_of_the_lines() {
        let file = "class A:\n    def a(self):\n        return 1\n";
        assert!(is_version(
            file,
            "class A:\n    def a(self):\n        return 1\n\n    def b(self):\n        pass\n"
        ));
        assert!(is_version(file, "class A:\n    def a(self):\n        return 2\n"));
        assert!(!is_version(file, "    def b(self):\n        pass\n"));
        assert!(!is_version(file, "        return 1\n"));
        assert!(!is_version("", "anything\n"));
    }

    #[test]
    fn who_says_to_have_changed_something() {
        for text in [
            "I renamed the method `size` of the class `Square` to `area` in `shapes.py`.",
            "I found the bug in `add`. I fixed the bug by changing the operator from `-` to `+`.",
            "I've updated the file.",
            "I have now also corrected it.",
            "The method has been successfully renamed.",
        ] {
            assert!(claims(text), "{text}");
        }
        for text in [
            "",
            "The function adds two numbers.",
            "I would have renamed it.",
            "I have not changed anything.",
            "I can see what was changed: `size` is gone.",
            "It could be renamed to `area`. I looked at all files.",
            "Do you want it to be fixed?",
        ] {
            assert!(!claims(text), "{text}");
        }
    }
}
