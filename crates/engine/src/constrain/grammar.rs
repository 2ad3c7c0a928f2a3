//! What a caller asks for: a grammar as one string.

use super::error::BadConstraint;
use crate::limits::CONSTRAINT_BYTES_MAX;
use llguidance::api::TopLevelGrammar;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A grammar in llguidance's Lark dialect, cheap to copy.
///
/// It may hold `%json {schema}` blocks (see `json_block`), regular expressions, and tokens by their id, as
/// in `<[151657]>`, or by their name, as in `<tool_call>`. Text of the grammar never stands for a special token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint(Arc<str>);

impl Constraint {
    /// A grammar whose first rule is `start`.
    pub fn lark(grammar: String) -> Constraint {
        Constraint(grammar.into())
    }

    /// One JSON value that fits the schema, and nothing before or after it.
    pub fn json_schema(schema: &Value) -> Constraint {
        Constraint::lark(format!("start: {}\n", json_block(schema)))
    }

    pub fn grammar(&self) -> &str {
        &self.0
    }

    pub(super) fn top_level(&self) -> TopLevelGrammar {
        TopLevelGrammar::from_lark(self.0.to_string())
    }

    /// What can be refused without a look at the grammar.
    pub fn check_size(&self) -> Result<(), BadConstraint> {
        match self.0.len() {
            0 => Err(BadConstraint::Empty),
            1..=CONSTRAINT_BYTES_MAX => Ok(()),
            bytes => Err(BadConstraint::TooLarge { bytes: bytes as u64 }),
        }
    }
}

/// A JSON value that fits the schema, as an item of a rule.
///
/// A separator may have one space after it, and there is no other white space: a weak model that may break a
/// line does so for ever.
pub fn json_block(schema: &Value) -> String {
    let settings = json!({ "item_separator": ", ?", "key_separator": ": ?", "whitespace_flexible": false });
    let mut schema = match schema {
        Value::Bool(true) => json!({}),
        other => other.clone(),
    };
    tighten(&mut schema);
    if let Value::Object(keywords) = &mut schema {
        keywords.insert("x-guidance".to_owned(), settings);
    }
    format!("%json {schema}")
}

/// Makes bounds of numbers tighter where llguidance cannot take them as they are: what fits the tighter one fits
/// the schema too. Bounds of 64 bits, which schemas of types have, are more than it can take; and above an
/// excluded 0 it would allow a 0.
fn tighten(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(tighten),
        Value::Object(keywords) => {
            step_off_zero(keywords, "exclusiveMinimum", "minimum", STEP);
            step_off_zero(keywords, "exclusiveMaximum", "maximum", -STEP);
            let schemas = |(keyword, _): &(&String, &mut Value)| !DATA.contains(&keyword.as_str());
            keywords.iter_mut().filter(schemas).for_each(|(keyword, value)| match value.as_f64() {
                Some(bound) if keyword.ends_with("inimum") && bound < -BOUND => *value = json!(-BOUND),
                Some(bound) if keyword.ends_with("aximum") && bound > BOUND => *value = json!(BOUND),
                _ => tighten(value),
            });
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn step_off_zero(keywords: &mut Map<String, Value>, excluded: &str, included: &str, step: f64) {
    if keywords.get(excluded).and_then(Value::as_f64) != Some(0.0) {
        return;
    }
    keywords.shift_remove(excluded);
    let tighter = keywords.get(included).and_then(Value::as_f64).filter(|bound| bound / step > 0.0);
    keywords.insert(included.to_owned(), json!(tighter.unwrap_or(step)));
}

/// Keywords whose values are no schemas.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];
const BOUND: f64 = 9e15;
const STEP: f64 = 1e-9;

impl Serialize for Constraint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Constraint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Constraint, D::Error> {
        String::deserialize(deserializer).map(Constraint::lark)
    }
}
