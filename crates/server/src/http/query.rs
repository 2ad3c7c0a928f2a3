//! What stands after the `?`.

use flint_wire::ApiError;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The pairs of a query. Those that nobody asks for change nothing.
pub struct Query<'a>(pub &'a HashMap<String, String>);

impl Query<'_> {
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub fn flag(&self, key: &str) -> Result<bool, ApiError> {
        match self.text(key) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::invalid(key, format!("`{key}` must be true or false"))),
        }
    }

    pub fn number<T: FromStr + PartialOrd + std::fmt::Display>(
        &self,
        key: &str,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        match text.parse().ok().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (low, high) = (range.start(), range.end());
                Err(ApiError::invalid(key, format!("`{key}` must be a whole number from {low} to {high}")))
            }
        }
    }
}
