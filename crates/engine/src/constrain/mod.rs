//! Generations that must fit a grammar: a JSON schema, a regular expression, the shape of a tool call.
//!
//! A `Constraint` is text in llguidance's Lark dialect. It is compiled on a thread of its own (`compile`)
//! while the prompt is computed; the generation then has a `Guide`, which tells the tokens that the grammar allows
//! before one is sampled, and hears of the token that was.

mod check;
mod compile;
mod error;
mod grammar;
mod guide;
mod scan;
mod vocabulary;

pub use check::check;
pub use compile::{Compiler, VocabularySource};
pub use error::BadConstraint;
pub use grammar::{Constraint, json_block};
pub use guide::{Allowed, Guide, Mask};
pub use vocabulary::{Piece, Vocabulary};
