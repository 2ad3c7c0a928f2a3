//! Text to tokens and back. No IO.
//!
//! A conversation becomes segments (`template`, or `harmony` for gpt-oss), segments become tokens
//! (`tokenizer`), the model's tokens become text again (`detokenizer`), and that text becomes what it
//! means: an answer, reasoning, tool calls (`parse`).
//!
//! What a person, a file or a tool wrote is a `Segment::Text` and can never become a control token.

#![forbid(unsafe_code)]

pub mod chat;
pub mod detokenizer;
mod error;
pub mod harmony;
pub mod limits;
pub mod parse;
pub mod segment;
mod stop;
pub mod template;
pub mod tokenizer;

pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use segment::{Controls, Segment, push_text};
pub use stop::StopStrings;
pub use template::Template;
pub use template::date::day;
pub use tokenizer::{GgufVocab, TokenKind, Tokenizer};
