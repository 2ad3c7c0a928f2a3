//! What goes over the wire: requests, items, events, errors, as types. No IO.
//!
//! `Request::parse` is the only way in. What it returns is valid: every number within its bounds, every item
//! of a known shape. What it did not understand but may ignore, it names.

#![forbid(unsafe_code)]

pub mod chat;
pub mod completion;
mod error;
mod event;
mod fields;
mod frame;
mod item;
pub mod limits;
mod request;
mod response;
mod tool;

pub use error::ApiError;
pub use event::{Event, Numbered};
pub use fields::Fields;
pub use frame::{Create, Frame};
pub use item::{Item, Meaning, Part, Role, input_items, output};
pub use request::{Format, Previous, Raw, Request, Sampling, Tier};
pub use response::{Failure, Incomplete, Response, Settings, Status, Usage};
pub use tool::{Choice, Kind, Tool, Tools};

/// What is served over HTTP, as an OpenAPI document.
pub const OPENAPI: &str = include_str!("../openapi.json");
