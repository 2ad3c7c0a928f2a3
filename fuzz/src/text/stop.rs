//! Stop strings: the text ends before the first that is complete, however it was cut.

use super::{cut_text, field, text_field};
use flint_text::StopStrings;

/// The sizes of the parts, the stop strings a line each, then the text.
pub fn stop(input: &[u8]) {
    let rest = &mut &*input;
    let sizes = field(rest);
    let stops: Vec<String> = text_field(rest).lines().map(str::to_owned).collect();
    let text = String::from_utf8_lossy(rest);
    let expected = expected(&stops, &text);
    assert_eq!(streamed(&stops, cut_text(&text, sizes)), expected);
    assert_eq!(streamed(&stops, vec![text.into_owned()]), expected);
}

/// The stop string that is complete first ends the text; of two that end together, the longer.
fn expected(stops: &[String], text: &str) -> (String, bool) {
    let found = stops.iter().filter(|stop| !stop.is_empty());
    let found = found.filter_map(|stop| text.find(stop.as_str()).map(|start| (start + stop.len(), start)));
    match found.min() {
        Some((_, start)) => (text[..start].to_owned(), true),
        None => (text.to_owned(), false),
    }
}

fn streamed(stops: &[String], parts: Vec<String>) -> (String, bool) {
    let longest = stops.iter().map(String::len).max().unwrap_or(0);
    let mut watch = StopStrings::new(stops);
    let (mut told, mut pushed, mut ended) = (String::new(), 0, false);
    for part in parts {
        let (delta, end) = watch.push(&part);
        assert!(!ended || (end && delta.is_empty()), "{delta:?} after the end");
        told.push_str(&delta);
        pushed += part.len();
        ended = end;
        assert!(ended || pushed - told.len() < longest.max(1), "more is held back than a stop string");
    }
    told.push_str(&watch.finish());
    (told, ended)
}
