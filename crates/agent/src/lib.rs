//! The coding agent: what it is told to be, how it asks a model, what it does for it, and what it remembers.
//!
//! Follow a turn from `turn`: a person's words join the conversation (`history`, on disk in `sessions`), the model is asked
//! (`client`), and what it calls for is done (`tools`) if it may be (`approve`). What a model wants changed is text (`patch`,
//! `tools::edit`). It becomes a list of changes, all of them known before the first file is touched, and these are made
//! together or not at all (`files`), beneath one folder (`root`). Whoever shows all that speaks `talk` and nothing else.

#![forbid(unsafe_code)]

mod access;
mod agent;
pub mod approve;
pub mod client;
pub mod config;
pub mod diagnose;
pub mod facts;
pub mod files;
pub mod hands;
pub mod headless;
pub mod history;
mod ignored;
pub mod limits;
mod mend;
pub mod patch;
pub mod prompt;
pub mod provider;
mod question;
mod replay;
mod rewind;
pub mod root;
pub mod route;
pub mod router;
pub mod rules;
mod server;
pub mod sessions;
pub mod settings;
mod shorten;
pub mod talk;
pub mod tasks;
pub mod tools;
mod turn;
mod undo;

pub use agent::{Agent, Setup};
