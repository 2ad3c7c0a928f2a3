//! One place in an answer that may be a tool call, watched a character at a time.

use super::object::{ObjectScan, Scan};
use super::{Call, xml};
use crate::chat::Tool;
use crate::limits::XML_CLOSES_MAX;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const FENCE: &str = "```";

/// What a fence that holds a call may call its language.
const FENCE_LANGUAGES: [&str; 5] = ["", "json", "jsonc", "tool_call", "tool"];

/// Where in its form a candidate is. Offsets count from where it begins.
#[derive(Debug)]
pub(super) enum Candidate {
    Open { matched: usize },                             // in `<tool_call>`
    Inside,                                              // between the tag and what it holds
    Object { scan: ObjectScan, form: Form },             // in the JSON object
    After { scan: ObjectScan, form: Form, from: usize }, // behind the object, which ended at `from`
    XmlHead { body: usize },                             // in `<function=name>`, which begins at `body`
    XmlBody { body: usize, closes: usize }, // behind it, with so many `</tool_call>` that closed nothing
    FenceOpen,                              // in the line that opens a fence
    FenceInside,                            // between that line and the object
}

/// What stands around a JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Tagged,
    Fenced,
    Bare,
}

/// What a character did to a candidate.
pub(super) enum Verdict {
    More(Candidate),
    /// A call, which ends at `used`.
    Call {
        call: Call,
        used: usize,
    },
    Text,
}

impl Candidate {
    pub(super) fn bare(scan: ObjectScan) -> Self {
        Candidate::Object { scan, form: Form::Bare }
    }

    /// Takes `c`, the last character of `seen`.
    pub(super) fn watch(self, seen: &str, c: char, tools: &[Tool]) -> Verdict {
        let at = seen.len() - c.len_utf8();
        match (self, c) {
            (Candidate::Open { matched }, c) => watch_open(matched, c),
            (Candidate::Inside, '{') => watch_object(ObjectScan::new(), Form::Tagged, seen, c, tools),
            (Candidate::Inside, '<') => Verdict::More(Candidate::XmlHead { body: at }),
            (Candidate::Inside, c) if c.is_whitespace() => Verdict::More(Candidate::Inside),
            (Candidate::Object { scan, form }, c) => watch_object(scan, form, seen, c, tools),
            (Candidate::After { scan, form, from }, c) => watch_after(scan, form, from, seen, c),
            (Candidate::XmlHead { body }, c) => watch_xml_head(body, seen, c, tools),
            (Candidate::XmlBody { body, closes }, c) => watch_xml_body(body, closes, seen, c, tools),
            (Candidate::FenceOpen, _) => watch_fence_open(seen),
            (Candidate::FenceInside, '{') => watch_object(ObjectScan::new(), Form::Fenced, seen, c, tools),
            (Candidate::FenceInside, c) if c.is_whitespace() => Verdict::More(Candidate::FenceInside),
            (Candidate::Inside | Candidate::FenceInside, _) => Verdict::Text,
        }
    }

    /// The call, if nothing is missing but its closing.
    pub(super) fn at_end(self, seen: &str, tools: &[Tool]) -> Option<Call> {
        match self {
            Candidate::After { scan, .. } => scan.call(seen),
            Candidate::XmlBody { body, .. } => xml::parse(seen.get(body..)?, tools),
            Candidate::Open { .. }
            | Candidate::Inside
            | Candidate::Object { .. }
            | Candidate::XmlHead { .. }
            | Candidate::FenceOpen
            | Candidate::FenceInside => None,
        }
    }
}

fn watch_open(matched: usize, c: char) -> Verdict {
    match OPEN[matched..].starts_with(c) {
        true if matched + 1 == OPEN.len() => Verdict::More(Candidate::Inside),
        true => Verdict::More(Candidate::Open { matched: matched + 1 }),
        false => Verdict::Text,
    }
}

fn watch_object(mut scan: ObjectScan, form: Form, seen: &str, c: char, tools: &[Tool]) -> Verdict {
    match scan.step(seen, seen.len() - c.len_utf8(), c, tools) {
        Scan::More => Verdict::More(Candidate::Object { scan, form }),
        Scan::Done => Verdict::More(Candidate::After { scan, form, from: seen.len() }),
        Scan::Bad => Verdict::Text,
    }
}

/// Behind the object its closing must come; behind a bare one, the end of the line or Llama's semicolon.
fn watch_after(scan: ObjectScan, form: Form, from: usize, seen: &str, c: char) -> Verdict {
    let tail = seen[from..].trim_start();
    let used = match form {
        Form::Tagged if tail == CLOSE => seen.len(),
        Form::Fenced if tail == FENCE => seen.len(),
        Form::Bare if c == '\n' => from,
        Form::Bare if c == ';' => seen.len(),
        Form::Tagged if CLOSE.starts_with(tail) => {
            return Verdict::More(Candidate::After { scan, form, from });
        }
        Form::Fenced if FENCE.starts_with(tail) => {
            return Verdict::More(Candidate::After { scan, form, from });
        }
        Form::Bare if tail.is_empty() => return Verdict::More(Candidate::After { scan, form, from }),
        Form::Tagged | Form::Fenced | Form::Bare => return Verdict::Text,
    };
    scan.call(seen).map_or(Verdict::Text, |call| Verdict::Call { call, used })
}

fn watch_xml_head(body: usize, seen: &str, c: char, tools: &[Tool]) -> Verdict {
    match (xml::is_start(&seen[body..], tools), c) {
        (true, '>') => Verdict::More(Candidate::XmlBody { body, closes: 0 }),
        (true, _) => Verdict::More(Candidate::XmlHead { body }),
        (false, _) => Verdict::Text,
    }
}

/// A value may contain `</tool_call>`, so one that leaves an incomplete call closes nothing.
fn watch_xml_body(body: usize, closes: usize, seen: &str, c: char, tools: &[Tool]) -> Verdict {
    let closed = if c == '>' { seen[body..].strip_suffix(CLOSE) } else { None };
    match closed.map(|inner| xml::parse(inner, tools)) {
        Some(Some(call)) => Verdict::Call { call, used: seen.len() },
        Some(None) if closes >= XML_CLOSES_MAX => Verdict::Text,
        Some(None) => Verdict::More(Candidate::XmlBody { body, closes: closes + 1 }),
        None => Verdict::More(Candidate::XmlBody { body, closes }),
    }
}

fn watch_fence_open(seen: &str) -> Verdict {
    let Some(language) = seen.strip_prefix(FENCE) else {
        return if FENCE.starts_with(seen) { Verdict::More(Candidate::FenceOpen) } else { Verdict::Text };
    };
    match language.strip_suffix('\n') {
        Some(language) if FENCE_LANGUAGES.contains(&language.trim()) => Verdict::More(Candidate::FenceInside),
        None if FENCE_LANGUAGES.iter().any(|known| known.starts_with(language.trim())) => {
            Verdict::More(Candidate::FenceOpen)
        }
        Some(_) | None => Verdict::Text,
    }
}
