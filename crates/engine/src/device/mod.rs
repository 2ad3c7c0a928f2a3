//! What computes: each device is a `Runner` of its own kind.

pub mod scripted;
