//! What a model reads: plain text and control tokens, kept apart until they are ids.

use aho_corasick::{AhoCorasick, MatchKind};

/// One stretch of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Encoded as ordinary pieces, whatever it spells.
    Text(String),
    /// The literal of one control token of the vocabulary, such as `<|im_end|>`.
    Control(String),
}

/// The literals of a vocabulary's control tokens.
#[derive(Debug, Clone, Default)]
pub struct Controls {
    literals: Vec<String>,
    finder: Option<AhoCorasick>, // `None`: no literals
}

impl Controls {
    /// Empty literals are dropped: they would match everywhere.
    pub fn new(literals: impl IntoIterator<Item = String>) -> Self {
        let literals: Vec<String> = literals.into_iter().filter(|l| !l.is_empty()).collect();
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&literals).ok();
        let finder = finder.filter(|_| !literals.is_empty());
        Controls { literals, finder }
    }

    pub fn literals(&self) -> &[String] {
        &self.literals
    }

    pub fn contains(&self, literal: &str) -> bool {
        self.literals.iter().any(|l| l == literal)
    }

    /// The leftmost, then longest, literal in `text`.
    pub fn find(&self, text: &str) -> Option<std::ops::Range<usize>> {
        Some(self.finder.as_ref()?.find(text)?.range())
    }

    /// Cuts trusted text, such as a rendered template, at every literal.
    pub fn split(&self, text: &str) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut rest = text;
        while let Some(found) = self.find(rest) {
            push_text(&mut segments, &rest[..found.start]);
            segments.push(Segment::Control(rest[found.clone()].to_owned()));
            rest = &rest[found.end..];
        }
        push_text(&mut segments, rest);
        segments
    }
}

/// Appends text, joining it to a text segment before it: pieces form across the seam, as in one string.
pub fn push_text(segments: &mut Vec<Segment>, text: &str) {
    if text.is_empty() {
        return;
    }
    match segments.last_mut() {
        Some(Segment::Text(last)) => last.push_str(text),
        Some(Segment::Control(_)) | None => segments.push(Segment::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_at_the_longest_literal() {
        let controls = Controls::new(["<a>".into(), "<a>b".into(), String::new()]);
        let text = |t: &str| Segment::Text(t.into());
        let control = |t: &str| Segment::Control(t.into());
        assert_eq!(controls.split("x<a>bc<a>"), [text("x"), control("<a>b"), text("c"), control("<a>")]);
        assert_eq!(Controls::default().split("<a>"), [text("<a>")]);
        assert_eq!(controls.split(""), []);
    }
}
