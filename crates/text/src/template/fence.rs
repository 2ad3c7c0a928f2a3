//! Keeps what people wrote from being read as control tokens.
//!
//! A template yields one string in which its own `<|im_end|>` and one that a user typed look alike. So
//! before rendering, in every string that comes from outside, the characters with which control tokens
//! begin and end are swapped for private-use characters that occur nowhere in the conversation; after
//! rendering, control tokens are looked for first, and only then are the characters swapped back.
//!
//! Templates go on working: a swap changes no length and no white space, so trimming, splitting at lines and
//! slicing see what they would have seen. Only a comparison with those characters comes out differently, and
//! that is the point. The one such test that real templates need is for `<think>` in an assistant's own
//! words, so those two markers stay readable there.
//!
//! A token could still be put together from template text at both ends and a user's word between them
//! (`'<' ~ key ~ '>'`); a string that is the inside of a control token is therefore swapped as well.

use crate::chat::Role;
use crate::error::TextError;
use crate::segment::{Controls, Segment, push_text};
use std::collections::{BTreeSet, HashMap, HashSet};

const STAND_INS: std::ops::RangeInclusive<char> = '\u{F0000}'..='\u{FFFFD}';
const REASONING: [&str; 2] = ["<think>", "</think>"];

pub(super) struct Fence<'a> {
    controls: &'a Controls,
    cores: HashSet<&'a str>, // the insides of control tokens
    out: HashMap<char, char>,
    plain: [bool; 128], // which ASCII characters are not swapped
    back: HashMap<char, char>,
}

/// Whether a character may stand for another one during a render.
pub(super) fn is_stand_in(c: char) -> bool {
    STAND_INS.contains(&c)
}

fn core(text: &str) -> &str {
    text.trim_matches(|c: char| !c.is_alphanumeric())
}

impl<'a> Fence<'a> {
    /// `taken` are the private-use characters that the conversation itself uses.
    pub(super) fn new(controls: &'a Controls, taken: &HashSet<char>) -> Result<Self, TextError> {
        let cores: HashSet<&str> =
            controls.literals().iter().map(|l| core(l)).filter(|c| !c.is_empty()).collect();
        let edges = controls
            .literals()
            .iter()
            .flat_map(|l| l.chars().next().into_iter().chain(l.chars().next_back()));
        // In order, so that a program that compares characters renders the same every time.
        let swapped: BTreeSet<char> = edges.chain(cores.iter().flat_map(|c| c.chars().next())).collect();
        let mut free = STAND_INS.filter(|c| !taken.contains(c));
        let mut out = HashMap::new();
        for c in swapped {
            let stand_in = free.next().ok_or_else(|| {
                TextError::input(
                    "messages",
                    "every private-use character is in use; at least one must be free",
                )
            })?;
            out.insert(c, stand_in);
        }
        let back = out.iter().map(|(&c, &stand_in)| (stand_in, c)).collect();
        let plain = std::array::from_fn(|c| !out.contains_key(&char::from(c as u8)));
        Ok(Fence { controls, cores, out, plain, back })
    }

    /// A string from outside, made harmless. `role` is that of the message whose content it is, if it is.
    pub(super) fn shield(&self, text: &str, role: Option<Role>) -> String {
        if role == Some(Role::Assistant) {
            return self.shield_assistant(text);
        }
        let inside = core(text);
        let start = inside.as_ptr() as usize - text.as_ptr() as usize;
        let inside = if self.cores.contains(inside) { Some(start) } else { None };
        let swap = |(at, c): (usize, char)| match self.stand_in(c) {
            Some(stand_in) if !c.is_alphanumeric() || inside == Some(at) => stand_in,
            Some(_) | None => c,
        };
        text.char_indices().map(swap).collect()
    }

    /// Nearly all text is ASCII, and nearly none of it is swapped.
    fn stand_in(&self, c: char) -> Option<char> {
        match self.plain.get(c as usize) {
            Some(true) => None,
            Some(false) | None => self.out.get(&c).copied(),
        }
    }

    fn shield_assistant(&self, text: &str) -> String {
        let mut shielded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((at, marker)) = first_of(rest, &REASONING) {
            shielded.push_str(&self.shield(&rest[..at], None));
            shielded.push_str(marker);
            rest = &rest[at + marker.len()..];
        }
        shielded.push_str(&self.shield(rest, None));
        shielded
    }

    /// The rendered prompt as segments, with everyone's own characters back.
    pub(super) fn segments(&self, rendered: &str) -> Vec<Segment> {
        let mut segments = Vec::new();
        for segment in self.controls.split(rendered) {
            match segment {
                Segment::Control(literal) => segments.push(Segment::Control(literal)),
                Segment::Text(text) => push_text(&mut segments, &self.restore(&text)),
            }
        }
        segments
    }

    /// Text with everyone's own characters back.
    pub(super) fn restore(&self, text: &str) -> String {
        let back = |c: char| if is_stand_in(c) { self.back.get(&c).copied() } else { None };
        text.chars().map(|c| back(c).unwrap_or(c)).collect()
    }
}

fn first_of<'m>(text: &str, markers: &[&'m str]) -> Option<(usize, &'m str)> {
    markers.iter().filter_map(|marker| Some((text.find(marker)?, *marker))).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn controls() -> Controls {
        Controls::new(["<|im_end|>", "<tool_call>", "</think>", "<think>", "[INST]"].map(str::to_owned))
    }

    fn has_control(segments: &[Segment]) -> bool {
        segments.iter().any(|s| matches!(s, Segment::Control(_)))
    }

    #[test]
    fn outside_text_never_becomes_control() {
        let controls = controls();
        let fence = Fence::new(&controls, &HashSet::new()).unwrap();
        for (before, text, after) in [
            ("", "<|im_end|>", ""),
            ("<|im_", "end|>", ""),
            ("", "<|im_", "end|>"),
            ("<", "tool_call", ">"),
            ("<", "|im_end|", ">"),
            ("[", "INST", "]"),
        ] {
            let rendered = format!("{before}{}{after}", fence.shield(text, None));
            let segments = fence.segments(&rendered);
            assert!(!has_control(&segments), "{before:?} {text:?} {after:?}: {segments:?}");
            assert_eq!(segments, [Segment::Text(format!("{before}{text}{after}"))]);
        }
    }

    #[test]
    fn an_assistant_keeps_its_reasoning_markers_only() {
        let controls = controls();
        let fence = Fence::new(&controls, &HashSet::new()).unwrap();
        let shielded = fence.shield("<think>a<|im_end|></think>b", Some(Role::Assistant));
        assert!(shielded.starts_with("<think>a") && shielded.ends_with("</think>b"));
        assert_eq!(fence.segments(&shielded).iter().filter(|s| matches!(s, Segment::Control(_))).count(), 2);
    }

    #[test]
    fn private_use_characters_survive() {
        let controls = controls();
        let text = "\u{F0000}<|im_end|>\u{F0001}";
        let fence = Fence::new(&controls, &text.chars().filter(|c| is_stand_in(*c)).collect()).unwrap();
        assert_eq!(fence.segments(&fence.shield(text, None)), [Segment::Text(text.into())]);
        assert!(Fence::new(&controls, &STAND_INS.collect()).is_err());
    }

    proptest! {
        #[test]
        fn shield_is_lossless_and_safe(parts in prop::collection::vec("(<|>|[|]|\\||/|im_end|tool_call|think|INST|x|é| ){0,6}", 1..5)) {
            let controls = controls();
            let fence = Fence::new(&controls, &HashSet::new()).unwrap();
            let rendered: String = parts.iter().map(|p| fence.shield(p, None)).collect();
            let segments = fence.segments(&rendered);
            prop_assert!(!has_control(&segments));
            prop_assert_eq!(fence.restore(&rendered), parts.concat());
        }
    }
}
