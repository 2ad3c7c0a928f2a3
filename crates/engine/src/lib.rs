//! Tokens in, tokens out.
//!
//! `load` maps a weights file, `model` says which operations make a token, `device` does them, and
//! `step` drives it all. Text, roles, HTTP and the clock are unknown here.

pub mod batch;
pub mod constrain;
pub mod device;
pub mod draft;
pub mod forced;
pub mod kv;
pub mod limits;
pub mod link;
pub mod load;
pub mod message;
pub mod model;
mod prefix;
pub mod quant;
pub mod quantize;
pub mod runner;
pub mod sample;
pub mod schedule;
pub mod sequence;
pub mod step;
pub mod supervise;
pub mod worker;
