//! Pre-tokenizers: cutting text into the pieces that byte-pair encoding never merges across.
//!
//! The patterns of real models are ordinary alternations followed by `\s+(?!\S)`: "white space, but
//! leave the last one to the word after it". A backtracking engine could run that look-ahead, and would give
//! up on long runs of spaces. Here the look-ahead is done by hand and the rest by an automaton, so the
//! time is linear in the text for every pattern that these models have.

use crate::error::TextError;
use crate::limits::{PATTERN_AUTOMATON_BYTES_MAX, PATTERN_BYTES_MAX, SPLIT_STAGES_MAX};
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::meta::Regex;
use regex_automata::nfa::thompson;
use regex_automata::util::pool::Pool;
use regex_automata::{Anchored, Input};
use std::panic::{RefUnwindSafe, UnwindSafe};

/// The splits of a model, applied one after the other, each to the pieces of the one before.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    stages: Vec<Stage>,
}

/// Pattern 0 is the model's own; pattern 1, if any, is a run of white space.
#[derive(Debug)]
struct Stage {
    automaton: DFA, // finds where a match ends that begins here, as nearly all do
    states: Caches, // of the automaton, which makes them as it meets them
    regex: Regex,   // finds where one begins
}

type Caches = Pool<Cache, Box<dyn Fn() -> Cache + Send + Sync + UnwindSafe + RefUnwindSafe>>;

/// What a pattern has matched.
struct Found {
    start: usize,
    end: usize,
    is_space: bool,
}

const SPACES: &str = r"\s+";
const SPACES_ENDINGS: [&str; 2] = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)"];

impl Splitter {
    pub(super) fn new(patterns: &[&str]) -> Result<Self, TextError> {
        if patterns.len() > SPLIT_STAGES_MAX {
            let problem = format!("{} steps, at most {SPLIT_STAGES_MAX} are supported", patterns.len());
            return Err(TextError::tokenizer("pre_tokenizer", problem));
        }
        let stages = patterns.iter().map(|pattern| Stage::new(pattern)).collect::<Result<_, _>>()?;
        Ok(Splitter { stages })
    }

    /// Calls `piece` with every piece of `text`, in order.
    pub(super) fn split(&self, text: &str, piece: &mut dyn FnMut(&str)) {
        split_by(&self.stages, text, piece);
    }
}

fn split_by(stages: &[Stage], text: &str, piece: &mut dyn FnMut(&str)) {
    match stages.split_first() {
        Some((stage, rest)) => stage.split(text, &mut |part| split_by(rest, part, piece)),
        None if text.is_empty() => {}
        None => piece(text),
    }
}

impl Stage {
    fn new(pattern: &str) -> Result<Self, TextError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            let problem = format!("a pattern of {} bytes, at most {PATTERN_BYTES_MAX}", pattern.len());
            return Err(TextError::tokenizer("pre_tokenizer", problem));
        }
        let body = SPACES_ENDINGS.iter().find_map(|ending| pattern.strip_suffix(ending));
        let patterns = body.map_or(vec![pattern], |body| vec![body, SPACES]);
        let refused = |reason: String| {
            TextError::tokenizer("pre_tokenizer", format!("cannot use the pattern {pattern:?}: {reason}"))
        };
        let config = Regex::config()
            .nfa_size_limit(Some(PATTERN_AUTOMATON_BYTES_MAX))
            .hybrid_cache_capacity(PATTERN_AUTOMATON_BYTES_MAX);
        let regex = Regex::builder().configure(config).build_many(&patterns);
        let regex = regex.map_err(|error| refused(reason(&error)))?;
        let automaton = DFA::builder()
            .thompson(thompson::Config::new().nfa_size_limit(Some(PATTERN_AUTOMATON_BYTES_MAX)))
            .configure(DFA::config().cache_capacity(PATTERN_AUTOMATON_BYTES_MAX))
            .build_many(&patterns);
        let automaton = automaton.map_err(|error| refused(error.to_string()))?;
        let fresh = automaton.clone();
        let states = Pool::new(Box::new(move || fresh.create_cache()) as Box<_>);
        Ok(Stage { automaton, states, regex })
    }

    /// The first match from here on. Nearly always it begins here: then nothing has to be searched.
    fn next(&self, cache: &mut Cache, text: &str, from: usize) -> Option<Found> {
        let here = Input::new(text).range(from..).anchored(Anchored::Yes);
        if let Ok(Some(found)) = self.automaton.try_search_fwd(cache, &here) {
            return Some(Found {
                start: from,
                end: found.offset(),
                is_space: found.pattern().as_usize() == 1,
            });
        }
        let found = self.regex.search(&here.anchored(Anchored::No))?;
        Some(Found { start: found.start(), end: found.end(), is_space: found.pattern().as_usize() == 1 })
    }

    /// Matches are pieces, and so is what lies between them.
    fn split(&self, text: &str, piece: &mut dyn FnMut(&str)) {
        let mut done = 0; // everything before has been handed out
        let mut from = 0;
        let mut cache = self.states.get();
        while let Some(Found { start, end, is_space }) = self.next(&mut cache, text, from) {
            let end = if is_space { leave_last_space(text, start, end) } else { end };
            from = end;
            if start == end {
                let Some(c) = text[end..].chars().next() else { break };
                from = end + c.len_utf8();
                continue;
            }
            hand_out(&text[done..start], piece);
            piece(&text[start..end]);
            done = end;
        }
        hand_out(&text[done..], piece);
    }
}

fn hand_out(text: &str, piece: &mut dyn FnMut(&str)) {
    if !text.is_empty() {
        piece(text);
    }
}

/// What `\s+(?!\S)|\s+` matches, given the whole run of spaces: all but the last one when a word follows
/// and there is more than one.
fn leave_last_space(text: &str, start: usize, end: usize) -> usize {
    let last = text[start..end].char_indices().next_back().map_or(0, |(at, _)| at);
    if end == text.len() || last == 0 { end } else { start + last }
}

fn reason(error: &regex_automata::meta::BuildError) -> String {
    match (error.syntax_error(), error.size_limit()) {
        (_, Some(limit)) => format!("it compiles to more than {limit} bytes"),
        (Some(syntax), None) => syntax.to_string().lines().last().unwrap_or_default().to_owned(),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::patterns::{GPT2, LLAMA3, QWEN2, SMOLLM};

    fn pieces(patterns: &[&str], text: &str) -> Vec<String> {
        let mut out = Vec::new();
        Splitter::new(patterns).unwrap().split(text, &mut |p| out.push(p.to_owned()));
        out
    }

    #[test]
    fn splits_as_the_models_do() {
        assert_eq!(pieces(GPT2, "I'll go  far\n\n x"), ["I", "'ll", " go", " ", " far", "\n\n", " x"]);
        assert_eq!(pieces(SMOLLM, "a 123"), ["a", " ", "1", "2", "3"]);
        assert_eq!(pieces(QWEN2, "fn  a(x)\r\n  {"), ["fn", " ", " a", "(x", ")\r\n", " ", " {"]);
        assert_eq!(pieces(LLAMA3, "1234567'S   "), ["123", "456", "7", "'S", "   "]);
        assert_eq!(pieces(GPT2, ""), [""; 0]);
        assert_eq!(pieces(&[], "all of it"), ["all of it"]);
    }

    #[test]
    fn spaces_by_the_million_are_one_piece() {
        let mut text = " ".repeat(3_000_000);
        assert_eq!(pieces(QWEN2, &text).len(), 1);
        text.push('x');
        assert_eq!(pieces(QWEN2, &text).len(), 2);
    }

    #[test]
    fn matches_of_nothing_end() {
        assert_eq!(pieces(&["x*"], "axxé"), ["a", "xx", "é"]);
    }

    #[test]
    fn refuses_what_it_cannot_run() {
        let problem = |pattern: &str| Splitter::new(&[pattern]).unwrap_err().to_string();
        assert!(problem(r"a(?=b)").contains("look-around"), "{}", problem(r"a(?=b)"));
        assert!(problem(r"\p{L}{1000}{1000}{1000}").contains("more than"));
        assert!(problem(&"a".repeat(PATTERN_BYTES_MAX + 1)).contains("at most"));
        assert!(Splitter::new(&["a"; SPLIT_STAGES_MAX + 1]).is_err());
    }
}
