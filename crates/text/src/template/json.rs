//! JSON as Python's `json.dumps` writes it, which is what templates were trained with.

use super::fence::is_stand_in;
use crate::limits::{JSON_DEPTH_MAX, PROMPT_BYTES_MAX};
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

/// The arguments of `json.dumps` that templates use.
#[derive(Debug, Clone)]
pub(super) struct Style {
    pub(super) indent: Option<usize>,
    pub(super) ensure_ascii: bool,
    pub(super) sort_keys: bool,
    pub(super) item: String, // between items
    pub(super) key: String,  // between key and value
}

impl Style {
    pub(super) fn new(indent: Option<usize>) -> Self {
        let item = if indent.is_some() { "," } else { ", " };
        Style { indent, ensure_ascii: false, sort_keys: false, item: item.into(), key: ": ".into() }
    }
}

pub(super) fn dumps(value: &Value, style: &Style) -> Result<String, Error> {
    let mut out = String::new();
    write_value(&mut out, value, style, 0)?;
    Ok(out)
}

fn write_value(out: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    if depth > JSON_DEPTH_MAX {
        let problem = format!("tojson: nested deeper than {JSON_DEPTH_MAX} levels");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    if out.len() > PROMPT_BYTES_MAX {
        let problem = format!("tojson: more than {PROMPT_BYTES_MAX} bytes");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    match value.kind() {
        ValueKind::None => push(out, "null"),
        ValueKind::Bool => push(out, if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => push(out, &number(value)),
        ValueKind::String => {
            write_string(out, value.as_str().unwrap_or_default(), style.ensure_ascii);
            Ok(())
        }
        ValueKind::Seq | ValueKind::Iterable => write_list(out, value, style, depth),
        ValueKind::Map => write_map(out, value, style, depth),
        other => {
            let problem = format!("tojson: a value of type {other} is no JSON");
            Err(Error::new(ErrorKind::InvalidOperation, problem))
        }
    }
}

fn push(out: &mut String, text: &str) -> Result<(), Error> {
    out.push_str(text);
    Ok(())
}

fn write_list(out: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    out.push('[');
    let mut any = false;
    for item in value.try_iter()? {
        separate(out, style, depth + 1, any);
        any = true;
        write_value(out, &item, style, depth + 1)?;
    }
    close(out, style, depth, any, ']');
    Ok(())
}

fn write_map(out: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    out.push('{');
    let mut keys: Vec<Value> = value.try_iter()?.collect();
    if style.sort_keys {
        keys.sort();
    }
    for (at, key) in keys.iter().enumerate() {
        separate(out, style, depth + 1, at > 0);
        write_string(out, &key.to_string(), style.ensure_ascii);
        out.push_str(&style.key);
        write_value(out, &value.get_item(key)?, style, depth + 1)?;
    }
    close(out, style, depth, !keys.is_empty(), '}');
    Ok(())
}

fn separate(out: &mut String, style: &Style, depth: usize, any: bool) {
    if any {
        out.push_str(&style.item);
    }
    new_line(out, style, depth);
}

fn close(out: &mut String, style: &Style, depth: usize, any: bool, bracket: char) {
    if any {
        new_line(out, style, depth);
    }
    out.push(bracket);
}

fn new_line(out: &mut String, style: &Style, depth: usize) {
    if let Some(indent) = style.indent {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', indent * depth));
    }
}

fn write_string(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => escape(out, c as u16),
            // A stand-in is a bracket in disguise; escaping it would show.
            c if ensure_ascii && !c.is_ascii() && !is_stand_in(c) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escape(out, *unit));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn escape(out: &mut String, unit: u16) {
    let _ = write!(out, "\\u{unit:04x}");
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| "null".into(), python_float)
}

/// Python's `repr` of a float: the fewest digits that read back, with an exponent outside 1e-4..1e16.
fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-4..1e16).contains(&magnitude) {
        let plain = value.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_read_as_in_python() {
        let cases = [(1.0, "1.0"), (0.1, "0.1"), (-0.0, "-0.0"), (1e16, "1e+16"), (1.5e-7, "1.5e-07")];
        for (value, text) in cases.into_iter().chain([(1e15, "1000000000000000.0"), (1e100, "1e+100")]) {
            assert_eq!(python_float(value), text);
        }
    }

    #[test]
    fn strings_are_escaped_as_in_python() {
        let mut style = Style::new(None);
        let text = Value::from("a\"\\\n\u{1}é😀<'&\u{7f}");
        assert_eq!(dumps(&text, &style).unwrap(), "\"a\\\"\\\\\\n\\u0001é😀<'&\u{7f}\"");
        style.ensure_ascii = true;
        assert_eq!(dumps(&text, &style).unwrap(), "\"a\\\"\\\\\\n\\u0001\\u00e9\\ud83d\\ude00<'&\u{7f}\"");
    }

    #[test]
    fn indents_as_python_does() {
        let list = Value::from(vec![Value::from(1), Value::from(Vec::<Value>::new())]);
        assert_eq!(dumps(&list, &Style::new(None)).unwrap(), "[1, []]");
        assert_eq!(dumps(&list, &Style::new(Some(2))).unwrap(), "[\n  1,\n  []\n]");
    }
}
