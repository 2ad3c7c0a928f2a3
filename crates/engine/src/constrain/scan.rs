//! A look at a grammar before llguidance gets it: what would take it for ever is refused, and what it refuses is
//! found in the schema.
//!
//! Its own limits hold between two steps of its work. One step on the intersection of many regular expressions
//! takes time and memory that double with each of them, and patterns of properties are compared each with each.

use super::BadConstraint;
use crate::limits::{CONSTRAINT_INTERSECTIONS_MAX, CONSTRAINT_PATTERN_PROPERTIES_MAX};
use serde_json::{Deserializer, Map, Value};
use std::collections::HashMap;

const BLOCK: &str = "%json";

/// The schemas of a grammar.
pub(super) fn schemas(grammar: &str) -> Vec<Value> {
    let blocks = grammar.match_indices(BLOCK).map(|(at, _)| &grammar[at + BLOCK.len()..]);
    blocks.filter_map(|block| Deserializer::from_str(block).into_iter().next()?.ok()).collect()
}

/// Refuses what cannot be compiled in bounds.
pub(super) fn check(grammar: &str) -> Result<(), BadConstraint> {
    if intersections(grammar) > CONSTRAINT_INTERSECTIONS_MAX {
        return Err(BadConstraint::refused(format!("more than {CONSTRAINT_INTERSECTIONS_MAX} times `&`")));
    }
    for schema in schemas(grammar) {
        let mut scan = Scan { root: &schema, known: HashMap::new(), patterns: 0 };
        scan.walk(&schema, &mut String::new())?;
    }
    Ok(())
}

/// Operators between regular expressions: `&` outside of JSON and literals.
fn intersections(grammar: &str) -> usize {
    let lines = grammar.lines().filter(|line| !line.contains(BLOCK));
    lines.map(|line| outside_of_literals(line).filter(|&c| c == '&').count()).sum()
}

fn outside_of_literals(line: &str) -> impl Iterator<Item = char> {
    let (mut literal, mut escaped) = (None, false);
    line.chars().filter(move |&c| {
        let outside = literal.is_none();
        match literal {
            None if matches!(c, '"' | '/') => literal = Some(c),
            Some(quote) if c == quote && !escaped => literal = None,
            None | Some(_) => {}
        }
        escaped = c == '\\' && !escaped;
        outside
    })
}

struct Scan<'a> {
    root: &'a Value,
    known: HashMap<&'a str, usize>, // regular expressions of what a $ref stands for
    patterns: usize,                // patterns of properties so far
}

impl<'a> Scan<'a> {
    fn walk(&mut self, value: &'a Value, at: &mut String) -> Result<(), BadConstraint> {
        if let Value::Object(keywords) = value {
            self.check_object(keywords, at)?;
        }
        children(value, at, &mut |_, child, at| self.walk(child, at))
    }

    fn check_object(&mut self, keywords: &'a Map<String, Value>, at: &str) -> Result<(), BadConstraint> {
        let max = CONSTRAINT_PATTERN_PROPERTIES_MAX;
        self.patterns += keywords.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        if self.patterns > max {
            return Err(refused(format!("more than {max} patterns of properties"), at));
        }
        if keywords.get("multipleOf").is_some_and(|step| digits(step) > MULTIPLE_OF_MAX) {
            return Err(refused(format!("multipleOf has digits above {MULTIPLE_OF_MAX}"), at));
        }
        let max = CONSTRAINT_INTERSECTIONS_MAX;
        match self.at_once(keywords, 0) {
            Some(count) if count <= max => Ok(()),
            Some(_) => {
                Err(refused(format!("more than {max} patterns, formats and lengths for one text"), at))
            }
            None => Err(refused(format!("more than {REFERENCES_MAX} references within one another"), at)),
        }
    }

    /// How many regular expressions one text has to match at once; none: the references go too deep.
    fn at_once(&mut self, keywords: &'a Map<String, Value>, depth: usize) -> Option<usize> {
        if depth > REFERENCES_MAX {
            return None;
        }
        let own = ["pattern", "format", "minLength", "maxLength", "multipleOf"];
        let mut count = own.iter().filter(|keyword| keywords.contains_key(**keyword)).count();
        for (keyword, value) in keywords {
            let mut parts = value.as_array().into_iter().flatten().filter_map(Value::as_object);
            let found = match keyword.as_str() {
                "allOf" => parts
                    .try_fold(0usize, |sum, part| Some(sum.saturating_add(self.at_once(part, depth + 1)?))),
                "anyOf" | "oneOf" => {
                    parts.try_fold(0, |most, part| Some(self.at_once(part, depth + 1)?.max(most)))
                }
                "$ref" => value.as_str().map_or(Some(0), |name| self.behind(name, depth + 1)),
                _ => Some(0),
            };
            count = count.saturating_add(found?);
        }
        Some(count)
    }

    fn behind(&mut self, name: &'a str, depth: usize) -> Option<usize> {
        if let Some(&known) = self.known.get(name) {
            return Some(known);
        }
        self.known.insert(name, 0); // while it is looked at: a circle adds nothing
        let target = name.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let count =
            target.and_then(Value::as_object).map_or(Some(0), |target| self.at_once(target, depth))?;
        self.known.insert(name, count);
        Some(count)
    }
}

/// References and combinations within one another.
const REFERENCES_MAX: usize = 1000;

/// The digits of a `multipleOf`: the lexer gets a state for each remainder.
const MULTIPLE_OF_MAX: u64 = 10_000;

/// A number without its decimal point and the zeros at either end.
fn digits(number: &Value) -> u64 {
    let text = format!("{}", number.as_f64().unwrap_or(0.0).abs());
    let digits = text.replace('.', "");
    digits.trim_matches('0').parse().unwrap_or(if digits.len() < 20 { 0 } else { u64::MAX })
}

/// Where in the schema the words are about: a keyword they quote, or a value they repeat.
pub(super) fn place(schema: &Value, words: &str) -> Option<String> {
    let mut found = None;
    let _ = find(schema, &mut String::new(), words, &mut found);
    found
}

fn find(value: &Value, at: &mut String, words: &str, found: &mut Option<String>) -> Result<(), ()> {
    children(value, at, &mut |keyword, child, at| {
        let repeated = matches!(keyword, "format" | "type" | "pattern" | "$ref")
            && child.as_str().is_some_and(|text| !text.is_empty() && words.contains(text));
        let quoted =
            words.contains(&format!("\"{keyword}\"")) || (keyword == "oneOf" && words.contains(keyword));
        if repeated || quoted {
            *found = Some(at.clone());
            return Err(());
        }
        find(child, at, words, found)
    })
}

/// Calls `each` with the name, the value and the JSON pointer of everything directly in `value`.
fn children<'a, E>(
    value: &'a Value,
    at: &mut String,
    each: &mut dyn FnMut(&str, &'a Value, &mut String) -> Result<(), E>,
) -> Result<(), E> {
    let mut visit = |name: &str, child: &'a Value| {
        let len = at.len();
        at.extend(["/", name]);
        let outcome = each(name, child, at);
        at.truncate(len);
        outcome
    };
    match value {
        Value::Object(map) => map.iter().try_for_each(|(name, child)| visit(name, child)),
        Value::Array(list) => list.iter().enumerate().try_for_each(|(i, child)| visit(&i.to_string(), child)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn refused(what: String, at: &str) -> BadConstraint {
    let at = if at.is_empty() { "the top" } else { at };
    BadConstraint::refused(format!("{what}, at {at}"))
}
