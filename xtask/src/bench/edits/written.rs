//! The traces as tokens, a line of JSON each, for `flint bench --edits`: a machine that measures then needs neither
//! tokenizer nor history.

use super::Group;
use super::traces::{self, Trace};
use crate::Outcome;
use flint_text::Tokenizer;
use serde::Serialize;

#[derive(Serialize)]
struct Line<'a> {
    kind: &'a str,
    name: &'a str,
    prompt: &'a [u32],
    answer: &'a [u32],
}

pub fn write(tokenizer: &str, count: usize, only: &str) -> Outcome {
    let bytes = std::fs::read(tokenizer).map_err(|error| format!("{tokenizer}: {error}"))?;
    let tokenizer = Tokenizer::from_json(&bytes)?;
    let encode = |text: &str| {
        let mut tokens = Vec::new();
        tokenizer.encode_text(text, &mut tokens).map(|()| tokens)
    };
    let copies = traces::of_history(count)?.into_iter().map(Trace::copied).collect();
    let kinds = [
        ("copies", copies),
        ("edits of this repository", traces::of_history(count)?),
        ("edits of HumanEval", traces::of_humaneval(count)?),
    ];
    for (kind, traces) in kinds.iter().filter(|(kind, _)| kind.contains(only)) {
        for trace in traces {
            let (prompt, answer) = (encode(&trace.prompt())?, encode(&trace.answer())?);
            let line = Line { kind, name: &trace.name, prompt: &prompt, answer: &answer };
            println!("{}", serde_json::to_string(&line)?);
        }
    }
    Ok(())
}

/// What was measured here, to be measured elsewhere: a model's own answers among it.
pub fn record(path: &str, groups: &[Group]) -> Outcome {
    let mut text = String::new();
    for group in groups {
        for trace in &group.traces {
            let line =
                Line { kind: &group.name, name: &trace.name, prompt: &trace.prompt, answer: &trace.answer };
            text += &serde_json::to_string(&line)?;
            text.push('\n');
        }
    }
    std::fs::write(path, text).map_err(|error| format!("{path}: {error}").into())
}
