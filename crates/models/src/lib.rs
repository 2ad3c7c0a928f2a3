//! Names to files.
//!
//! `catalogue` says what models there are, `name` what a person may write for one, `store` where they
//! lie on this machine, and `pull` brings them there: resumed, digest-checked, moved into place whole.

#![forbid(unsafe_code)]

pub mod catalogue;
mod digest;
mod error;
mod http;
mod hub;
mod name;
mod partial;
mod pull;
mod split;
mod store;
mod wheels;

pub use catalogue::Price;
pub use digest::{sha256_of_file, sha256_of_model};
pub use error::PullError;
pub use name::ModelName;
pub use pull::{Progress, pull};
pub use store::{Endpoints, Store};

/// Bytes of an answer of the hub's listing, at most.
const LISTING_BYTES_MAX: u64 = 16 << 20;

/// Bytes of one file, at most: more than any model has.
const FILE_BYTES_MAX: u64 = 1 << 42;
