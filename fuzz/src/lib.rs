//! What must hold for any input.
//!
//! Each target is a plain function of bytes that panics when a promise is broken. The fuzzers in
//! `fuzz_targets` look for such bytes; `crates/*/tests/corpus.rs` include these same modules and
//! replay every file of `corpus`, so that what was found once stays found.

#![forbid(unsafe_code)]

pub mod agent;
pub mod engine;
pub mod kept;
pub mod socket;
pub mod terminal;
pub mod text;
pub mod wire;
