//! What looks like a secret. It is better to leave one setting too many than to copy a key to where nobody expects it.

use super::Value;

/// What keys of well-known services begin with.
const BEGINNINGS: [&str; 13] = [
    "sk-",
    "sk_",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xox",
    "hf_",
    "AKIA",
    "AIza",
    "eyJ",
    "Bearer",
];

/// Shorter words are words.
const SECRET_CHARS_MIN: usize = 16;

const NAMES: [&str; 7] = ["token", "secret", "password", "passwd", "api_key", "apikey", "authorization"];

/// Whether the value of a key, or a name in it, should stay where it is.
pub fn is_secret(path: &[String], value: &Value) -> bool {
    let variable = path.last().is_some_and(|last| last == "env_key");
    path.iter().any(|part| looks_secret(part)) || holds(value, variable)
}

fn holds(value: &Value, variable: bool) -> bool {
    match value {
        Value::Text(text) => looks_secret(text) || (variable && !is_variable(text)),
        Value::List(list) => list.iter().any(|value| holds(value, variable)),
        Value::Flag(_) | Value::Integer(_) | Value::Other(_) => false,
    }
}

/// A key whose name says so: `experimental_bearer_token`, the header `x-api-key`.
pub fn is_named_secret(path: &[String], value: &Value) -> bool {
    let Some(last) = path.last() else { return false };
    let last = last.to_ascii_lowercase().replace('-', "_");
    let of_variable = last.ends_with("_env_var") || path.iter().any(|part| part == "env_http_headers");
    matches!(value, Value::Text(_)) && !of_variable && NAMES.iter().any(|name| last.contains(name))
}

pub fn looks_secret(text: &str) -> bool {
    let apart = |c: char| c.is_whitespace() || "\"'`,;=:/?&()<>[]{}".contains(c);
    let key = |word: &str| {
        word.chars().count() >= SECRET_CHARS_MIN && BEGINNINGS.iter().any(|begin| word.starts_with(begin))
    };
    text.split(apart).any(key) || is_address_with_secret(text)
}

/// `https://name:password@host`, or `https://host/?api_key=..`.
fn is_address_with_secret(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let query = rest.split_once('?').map_or("", |(_, query)| query).to_ascii_lowercase().replace('-', "_");
    host.contains('@') || NAMES.iter().chain(&["key=", "sig="]).any(|name| query.contains(name))
}

/// Whether it can be the name of a variable. Some people put the key itself there.
fn is_variable(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(plain) && !text.starts_with(|c: char| c.is_ascii_digit())
}
