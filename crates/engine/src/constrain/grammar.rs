//! What a caller asks for: a grammar as one string.

use super::error::BadConstraint;
use crate::limits::CONSTRAINT_BYTES_MAX;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
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
    if let Value::Object(keywords) = &mut schema {
        keywords.insert("x-guidance".to_owned(), settings);
    }
    format!("%json {schema}")
}

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
