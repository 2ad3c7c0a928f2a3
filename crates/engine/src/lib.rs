//! Tokens in, tokens out.
//!
//! `load` maps a weights file, `model` says which operations make a token, `device` does them, and
//! `step` drives it all. Text, roles, HTTP and the clock are unknown here.

pub mod batch;
pub mod device;
pub mod limits;
pub mod load;
pub mod model;
pub mod quant;
pub mod runner;
