//! What a model is: its sizes, and which operations make a token.

pub mod config;
