//! Names that nobody can guess and nobody else has.

use std::fmt::Write;

/// A prefix and 128 random bits, such as `resp_0f8a..`.
pub fn new_id(prefix: &str) -> String {
    let mut id = String::with_capacity(prefix.len() + 33);
    id.push_str(prefix);
    id.push('_');
    for byte in random::<16>() {
        // Writing to a string cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
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
