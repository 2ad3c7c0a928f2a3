//! Names that nobody can guess and nobody else has.

use std::fmt::Write;

/// A prefix and 128 random bits, such as `resp_0f8a..`.
pub fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", hex(&random::<16>()))
}

pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Random bytes of the operating system.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// The id of a response's `index`-th item: the same whenever it is made again.
pub fn item_id(prefix: &str, response: &str, index: usize) -> String {
    let unique = response.strip_prefix("resp_").unwrap_or(response);
    format!("{prefix}_{unique}{index:04x}")
}
