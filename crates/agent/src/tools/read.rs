//! A file, or a part of it, as it stands: a model copies from here what it wants replaced, so lines carry no numbers.

use super::{ToolError, Workshop};
use crate::limits::{READ_BYTES_MAX, READ_LINE_BYTES_MAX, READ_LINES};

impl Workshop {
    /// `lines` lines from `first_line` on, which is counted from 1, after one line that says what they are.
    pub fn read(
        &self,
        path: &str,
        first_line: Option<usize>,
        lines: Option<usize>,
    ) -> Result<String, ToolError> {
        let name = self.name(path)?;
        let (content, _) = self.content(&name)?;
        if content.contains(&0) {
            return Ok(format!(
                "{name}: binary, {} bytes: use a command that understands it\n",
                content.len()
            ));
        }
        let text = String::from_utf8_lossy(&content);
        let (total, first) = (text.lines().count(), first_line.unwrap_or(1).max(1));
        let wanted = lines.unwrap_or(READ_LINES);
        let part = part(&text, first, wanted);
        let last = (first - 1).saturating_add(part.lines);
        let mut head = match part.lines {
            0 if total == 0 => format!("{name}: empty"),
            0 => format!("{name}: has {total} lines, there is no line {first}"),
            _ if part.lines == total => format!("{name}: all {total} lines"),
            _ => format!("{name}: lines {first} to {last} of {total}"),
        };
        if part.lines < wanted && part.lines > 0 && last < total {
            head += &format!("; it is long: read on from line {}", last + 1);
        }
        if matches!(text, std::borrow::Cow::Owned(_)) {
            head += "; it is not UTF-8, \u{fffd} stands for what cannot be shown";
        }
        Ok(format!("{head}\n{}", part.text))
    }
}

struct Part {
    text: String,
    lines: usize,
}

fn part(text: &str, first: usize, wanted: usize) -> Part {
    let mut part = Part { text: String::new(), lines: 0 };
    for line in text.split_inclusive('\n').skip(first - 1).take(wanted) {
        let shown = line.floor_char_boundary(READ_LINE_BYTES_MAX);
        if part.text.len() + shown > READ_BYTES_MAX {
            break;
        }
        part.text.push_str(&line[..shown]);
        if shown < line.len() {
            part.text += &format!("[... {} bytes of this line are left out ...]\n", line.len() - shown);
        }
        part.lines += 1;
    }
    part
}
