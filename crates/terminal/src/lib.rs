//! The agent in a terminal.
//!
//! What happens (`Event`s) is folded into a `Screen`, the screen is drawn, and keys become `Order`s. There is no network
//! here, no program is run and no setting is read: what is neither an order nor a view is asked for outside (`Action`).

#![forbid(unsafe_code)]

mod clean;
mod code;
mod composer;
mod diff;
mod draw;
mod flow;
mod item;
mod limits;
mod markdown;
mod outside;
mod pace;
mod run;
mod screen;
mod slash;
mod style;
mod transcript;
mod tty;
mod view;
mod words;
mod wrap;

pub use clean::{clean, is_clean};
pub use draw::draw;
pub use outside::{Action, Choice, Ended, Reply, Request, Wish};
pub use run::run;
pub use screen::{Screen, Setup};
