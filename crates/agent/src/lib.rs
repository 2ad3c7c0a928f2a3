//! The coding agent. So far: what it is told to be (`config`), what it remembers (`sessions`), and how it changes files.
//!
//! What a model wants changed is text (`patch`). It becomes a list of changes, all of them known before the first file is
//! touched, and these are made together or not at all (`files`), beneath one folder (`root`).

#![forbid(unsafe_code)]

pub mod approve;
pub mod config;
pub mod files;
pub mod limits;
pub mod patch;
pub mod root;
pub mod rules;
pub mod sessions;
pub mod talk;
pub mod tools;
