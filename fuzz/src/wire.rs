//! What must hold for any request: it is taken whole and within its bounds, or refused in words.

use flint_wire::chat::{ChatRequest, Chunks, completion};
use flint_wire::completion::{CompletionRequest, TextChunks, text_completion};
use flint_wire::{ApiError, Frame, Item, Request};
use serde_json::Value;

/// One body, read as each of the three kinds of request, and as an event of each of the older answers.
pub fn request(bytes: &[u8]) {
    let Ok(json) = serde_json::from_slice::<Value>(bytes) else { return };
    valid(Request::parse(&json));
    valid(ChatRequest::parse(&json).map(|chat| chat.request));
    valid(CompletionRequest::parse(&json).map(|completion| completion.request));
    let (mut chunks, mut texts) = (Chunks::new(true), TextChunks::new(None, true));
    chunks.event(&json);
    texts.event(&json);
    completion(&json);
    text_completion(&json, "");
}

/// Lines, each a frame of one connection.
pub fn frames(bytes: &[u8]) {
    for line in String::from_utf8_lossy(bytes).lines() {
        match Frame::parse(line) {
            Ok(Frame::Create(create)) => valid(Request::parse(&create.body)),
            Ok(Frame::Steer { input, .. }) => input.iter().for_each(same_when_read_again),
            Ok(Frame::Interrupt { .. } | Frame::Cancel { .. }) => {}
            Err(error) => in_words(&error),
        }
    }
}

fn valid(parsed: Result<Request, ApiError>) {
    let request = match parsed {
        Ok(request) => request,
        Err(error) => return in_words(&error),
    };
    let within = |number: Option<f64>, low, high| number.is_none_or(|number| (low..=high).contains(&number));
    let sampling = &request.sampling;
    assert!(within(sampling.temperature, 0.0, 2.0));
    assert!(within(sampling.top_p, 0.0, 1.0) && within(sampling.min_p, 0.0, 1.0));
    assert!(within(sampling.presence_penalty, -2.0, 2.0) && within(sampling.frequency_penalty, -2.0, 2.0));
    assert!(within(sampling.repetition_penalty, 0.1, 10.0));
    assert!(request.max_output_tokens.is_none_or(|tokens| tokens > 0));
    assert!(request.top_logprobs.is_none_or(|top| top <= 20));
    assert!(request.store || !request.background);
    request.settings();
    request.input.iter().for_each(same_when_read_again);
}

/// What is stored of an item means what the item meant.
fn same_when_read_again(item: &Item) {
    assert_eq!(Item::parse("input", &item.json).as_ref(), Ok(item));
}

fn in_words(error: &ApiError) {
    assert!((400..500).contains(&error.status), "{error:?}");
    assert!(!error.message.is_empty() && !error.code.is_empty());
    error.frame(Some("lane"));
}
