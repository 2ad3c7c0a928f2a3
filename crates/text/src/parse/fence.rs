//! Code fences of Markdown, as text streams by.

/// Follows lines to know whether text is inside a fence, and where a line begins.
#[derive(Debug)]
pub(super) struct FenceTracker {
    inside: bool,
    indent: bool, // only spaces since the line began
    ticks: usize, // backticks since then
}

const FENCE_TICKS: usize = 3;

impl FenceTracker {
    pub(super) fn new() -> Self {
        FenceTracker { inside: false, indent: true, ticks: 0 }
    }

    pub(super) fn inside(&self) -> bool {
        self.inside
    }

    /// Whether only spaces stand before this place in its line.
    pub(super) fn at_line_start(&self) -> bool {
        self.indent
    }

    /// A place where a line might as well begin: after a call.
    pub(super) fn start_line(&mut self) {
        self.indent = true;
        self.ticks = 0;
    }

    pub(super) fn step(&mut self, c: char) {
        match c {
            '\n' => self.start_line(),
            ' ' | '\t' | '\r' if self.indent => {}
            '`' if self.indent || self.ticks > 0 => {
                self.indent = false;
                self.ticks += 1;
                if self.ticks == FENCE_TICKS {
                    self.inside = !self.inside;
                }
            }
            _ => {
                self.indent = false;
                self.ticks = 0;
            }
        }
    }
}
