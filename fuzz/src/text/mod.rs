//! Promises of `flint-text` about text, tokens, templates and models' answers.
//!
//! An input of several fields is a text file whose fields end in the control character RS, so that seeds can be
//! read and written with an editor.

mod detokenizer;
mod parser;
mod stop;
mod template;
mod tokenizer;

pub use detokenizer::detokenizer;
pub use parser::parser;
pub use stop::stop;
pub use template::template;
pub use tokenizer::tokenizer;

use flint_text::Tokenizer;
use std::borrow::Cow;
use std::sync::OnceLock;

const FIELD_END: u8 = 0x1E;

/// The next field of the input; empty when there is none.
fn field<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    match rest.iter().position(|byte| *byte == FIELD_END) {
        Some(end) => {
            let field = &rest[..end];
            *rest = &rest[end + 1..];
            field
        }
        None => std::mem::take(rest),
    }
}

fn text_field<'a>(rest: &mut &'a [u8]) -> Cow<'a, str> {
    String::from_utf8_lossy(field(rest))
}

/// Cuts `whole` into parts whose sizes are the bytes of `sizes`, over and over.
fn cut<'a>(whole: &'a [u8], sizes: &[u8]) -> Vec<&'a [u8]> {
    let sizes = if sizes.is_empty() { &[u8::MAX] } else { sizes };
    let mut sizes = sizes.iter().cycle();
    let mut rest = whole;
    let mut parts = Vec::new();
    while let Some(size) = sizes.next().filter(|_| !rest.is_empty()) {
        let (part, after) = rest.split_at(usize::from(*size).clamp(1, rest.len()));
        parts.push(part);
        rest = after;
    }
    parts
}

/// As `cut`, in characters.
fn cut_text(whole: &str, sizes: &[u8]) -> Vec<String> {
    let chars: Vec<char> = whole.chars().collect();
    let marks = vec![0; chars.len()];
    let mut rest = chars.as_slice();
    let lens = cut(&marks, sizes).into_iter().map(<[u8]>::len);
    lens.map(|len| {
        let (part, after) = rest.split_at(len);
        rest = after;
        part.iter().collect()
    })
    .collect()
}

/// A small vocabulary with the control tokens and markers of real ones.
fn small_tokenizer() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    const JSON: &str = include_str!("small_tokenizer.json");
    TOKENIZER.get_or_init(|| Tokenizer::from_json(JSON.as_bytes()).expect("a tokenizer"))
}
