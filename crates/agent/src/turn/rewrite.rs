//! A whole file as a code block: what small models write best when they are to change one.
//!
//! They explain a change well and call for it badly. Where a check failed, or a change was only told of, and the file is short,
//! they are asked to write it whole, and what stands in the code block becomes the file. Most of it is copied, which is guessed and fast.

use super::call::Call;
use super::claim::lines_kept;
use super::{Stop, Turn};
use crate::agent::{Agent, Must};
use crate::files::Change;
use crate::history::text_of;
use crate::limits::REWRITTEN_BYTES_MAX;
use crate::root::Name;

impl Agent {
    /// The next answer is to be this file, if it is short enough for that; else an edit. Returns how that is asked for.
    pub(super) fn wants_change(&mut self, turn: &mut Turn) -> String {
        let target = turn.target.clone().filter(|path| self.is_short(path));
        match target {
            Some(path) => {
                let asked =
                    format!("Write the whole of {path}, corrected, in one code block, and nothing else.");
                (turn.rewriting, self.must) = (Some(path), Some(Must::Write));
                asked
            }
            None => {
                self.must = Some(Must::Call("edit"));
                "Find out why, and change the file with `edit`.".to_owned()
            }
        }
    }

    pub(super) fn is_short(&self, path: &str) -> bool {
        let read = Name::new(path).ok().and_then(|name| self.workshop.root().read(&name).ok());
        read.is_some_and(|(bytes, _)| bytes.len() <= REWRITTEN_BYTES_MAX)
    }

    /// The file that was asked for, if the answer has it.
    pub(super) async fn take_rewritten(&mut self, turn: &mut Turn) -> Result<(), Stop> {
        let Some(path) = turn.rewriting.take() else { return Ok(()) };
        let said = self.log.items().last().map(text_of).unwrap_or_default();
        let (Some(block), Ok(name)) = (block(&said), Name::new(&path)) else { return Ok(()) };
        let Ok((before, mode)) = self.workshop.root().read(&name) else { return Ok(()) };
        // What has next to nothing of the file, such as a call in a fence, is not the file. Of a few lines all may be new.
        let (kept, all) = lines_kept(&String::from_utf8_lossy(&before), &block);
        if before == block.as_bytes() || all > 3 && kept * 5 < all {
            return Ok(());
        }
        let id = format!("rewrite_{}", self.log.items().len());
        let call = Call { id, call_id: String::new(), name: "edit".to_owned(), arguments: String::new() };
        let change = Change { name, before: Some(before), after: Some((block.into_bytes(), mode)) };
        self.change(&call, vec![change], None, turn).await.map(|_| ())
    }
}

/// What stands in the largest code block.
pub(super) fn block(text: &str) -> Option<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut open: Option<&str> = None;
    for line in text.lines() {
        let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
        match (open, ticks.len()) {
            (None, 3..) => {
                open = Some(ticks);
                blocks.push(String::new());
            }
            (Some(fence), _) if ticks.len() >= fence.len() && line.trim_end() == ticks => open = None,
            (Some(_), _) => {
                let block = blocks.last_mut()?;
                *block += line;
                block.push('\n');
            }
            (None, _) => {}
        }
    }
    // One that was cut off is no file.
    if open.is_some() {
        blocks.pop();
    }
    blocks.into_iter().filter(|block| !block.trim().is_empty()).max_by_key(String::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_block_counts() {
        assert_eq!(block("So:\n```py\na\nb\n```\nand\n```\nc\n```\n"), Some("a\nb\n".into()));
        assert_eq!(block("````md\n```\nx\n```\n````"), Some("```\nx\n```\n".into()));
        assert_eq!(block("```py\ncut off"), None);
        assert_eq!(block("no code"), None);
        assert_eq!(block("```\n```"), None);
    }
}
