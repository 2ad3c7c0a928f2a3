//! Constraints: any schema or grammar is taken or refused in words, soon.

use super::check_words;
use flint_engine::constrain::{BadConstraint, Constraint, check};
use std::time::{Duration, Instant};

/// Far above what inputs of a fuzzer's size take, for slow and busy machines.
const CHECK_MAX: Duration = Duration::from_secs(15);

/// A schema where the bytes are JSON, a grammar where they are other text.
pub fn constrain(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let constraint = match serde_json::from_str(text) {
        Ok(schema) => Constraint::json_schema(&schema),
        Err(_) => Constraint::lark(text.to_owned()),
    };
    let begun = Instant::now();
    if let Err(bad) = check(&constraint) {
        check_words(&bad);
        assert_ne!(bad, BadConstraint::TooSlow);
    }
    assert!(begun.elapsed() < CHECK_MAX, "{:?} for {text:?}", begun.elapsed());
}
