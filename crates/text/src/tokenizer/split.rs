//! Pre-tokenizers: cutting text into the pieces that byte-pair encoding never merges across.
//!
//! The patterns of real models are ordinary alternations followed by `\s+(?!\S)`: "white space, but
//! leave the last one to the word after it". A backtracking engine could run that look-ahead, and would give
//! up on long runs of spaces. Here the look-ahead is done by hand and the rest by automata, so the
//! time is linear in the text for every pattern that these models have.

use super::ascii::Ascii;
use crate::error::TextError;
use crate::limits::{PATTERN_AUTOMATON_BYTES_MAX, PATTERN_BYTES_MAX, SPLIT_STAGES_MAX};
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::meta::Regex;
use regex_automata::nfa::thompson::{self, NFA};
use regex_automata::util::pool::{Pool, PoolGuard};
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
    ascii: Option<Ascii>, // finds where a match ends that begins here, as nearly all do, and is all ASCII
    automaton: DFA,       // the same for any text
    states: Caches,       // of the automaton, which makes them as it meets them
    regex: Regex,         // finds where one begins
}

type MakeCache = Box<dyn Fn() -> Cache + Send + Sync + UnwindSafe + RefUnwindSafe>;
type Caches = Pool<Cache, MakeCache>;

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
        let nfa = NFA::compiler()
            .configure(thompson::Config::new().nfa_size_limit(Some(PATTERN_AUTOMATON_BYTES_MAX)))
            .build_many(&patterns)
            .map_err(|error| refused(error.to_string()))?;
        let ascii = Ascii::new(&nfa);
        let automaton = DFA::builder()
            .configure(DFA::config().cache_capacity(PATTERN_AUTOMATON_BYTES_MAX))
            .build_from_nfa(nfa)
            .map_err(|error| refused(error.to_string()))?;
        let fresh = automaton.clone();
        let states = Pool::new(Box::new(move || fresh.create_cache()) as MakeCache);
        Ok(Stage { ascii, automaton, states, regex })
    }

    /// The first match from here on. Nearly always it begins here: then nothing has to be searched.
    fn next<'a>(&'a self, states: &mut States<'a>, text: &str, from: usize) -> Option<Found> {
        let found = |start, end, pattern| Some(Found { start, end, is_space: pattern == 1 });
        if let Some((end, pattern)) = self.ascii.as_ref().and_then(|ascii| ascii.match_at(text, from)) {
            return found(from, end, pattern);
        }
        let here = Input::new(text).range(from..).anchored(Anchored::Yes);
        let cache = states.get_or_insert_with(|| self.states.get());
        if let Ok(Some(end)) = self.automaton.try_search_fwd(cache, &here) {
            return found(from, end.offset(), end.pattern().as_usize());
        }
        let later = self.regex.search(&here.anchored(Anchored::No))?;
        found(later.start(), later.end(), later.pattern().as_usize())
    }

    /// Matches are pieces, and so is what lies between them.
    fn split(&self, text: &str, piece: &mut dyn FnMut(&str)) {
        let mut done = 0; // everything before has been handed out
        let mut from = 0;
        let mut states = None;
        while let Some(Found { start, end, is_space }) = self.next(&mut states, text, from) {
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

/// Of an automaton, once they were needed.
type States<'a> = Option<PoolGuard<'a, Cache, MakeCache>>;

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
    use crate::tokenizer::patterns::{DEFAULT, GPT2, GPT4O, LLAMA3, QWEN2, QWEN35, SMOLLM};
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn the_table_for_ascii_changes_nothing(text in "([a-zA-Z]{1,4}|[0-9]{1,4}|'(s|LL|d)|[ \\r\\n\\t]{1,3}|[-:/._$<]{1,3}|é|ſ|你|\u{a0}){0,12}") {
            for patterns in [GPT2, SMOLLM, QWEN2, QWEN35, LLAMA3, GPT4O, DEFAULT] {
                let mut splitter = Splitter::new(patterns).unwrap();
                prop_assert!(splitter.stages.iter().all(|stage| stage.ascii.is_some()));
                let mut with = Vec::new();
                splitter.split(&text, &mut |piece| with.push(piece.to_owned()));
                splitter.stages.iter_mut().for_each(|stage| stage.ascii = None);
                let mut without = Vec::new();
                splitter.split(&text, &mut |piece| without.push(piece.to_owned()));
                prop_assert_eq!(with, without);
            }
        }
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
