//! Names of files.

use super::walk::Walked;
use super::{ToolError, Workshop};
use crate::limits::LISTED_MAX;
use crate::root::Kind;
use std::ops::ControlFlow;

impl Workshop {
    /// What stands beneath a folder, `depth` folders deep, a line each.
    pub fn list(&self, path: Option<&str>, depth: usize) -> Result<String, ToolError> {
        let start = self.folder_name(path)?;
        let mut lines = Vec::new();
        let walked = self.walk(start.clone(), depth.max(1), &mut |found| {
            if lines.len() == LISTED_MAX {
                return ControlFlow::Break(());
            }
            let mark = match found.kind {
                Kind::File => "",
                Kind::Folder => "/",
                Kind::Link => " (a link)",
                Kind::Other => " (not a file)",
            };
            lines.push(format!("{}{mark}", found.name));
            ControlFlow::Continue(())
        });
        let walked = self.or_near(walked, start)?;
        lines.sort();
        match walked {
            Walked::All if lines.is_empty() => {
                lines.push("[nothing is here that git does not ignore]".to_owned())
            }
            Walked::All => {}
            Walked::Enough | Walked::Cut => {
                lines.push("[there is more: list a folder of these, or less deep]".to_owned());
            }
        }
        Ok(lines.join("\n") + "\n")
    }
}
