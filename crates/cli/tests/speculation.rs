//! Guesses change nothing that a client reads: two real servers, one that guesses and one that does not, are asked the same
//! in turn, with tools, with stop strings, with predictions, and on in the same session.

mod support;

use serde_json::{Value, json};
use support::server::{Answer, Server};

/// What the model is shown, and copies for a while.
const CODE: &str = "class Order:\n    def __init__(self, number, customer, lines):\n        self.number = number\n        \
    self.customer = customer\n        self.lines = lines\n\n    def total(self):\n        \
    return sum(line.price * line.count for line in self.lines)\n\n    def describe(self):\n        \
    return f\"{self.number}: {self.customer}, {len(self.lines)} lines\"\n";
const LIST: &str = "1. apples from the garden\n2. apples from the market\n3. pears from the garden\n\
    4. pears from the market\n5. plums from the garden\n6. plums from the market\n7. cherries from the garden\n";
const SENTENCE: &str = "The quick brown fox jumps over the lazy dog near the bank of the river. ";

struct Pair {
    guessing: Server,
    plain: Server,
}

/// What both servers said, which is the same, and what the one guessed.
struct Said {
    response: [Value; 2], // of the one that guesses, of the one that does not
    accepted: u64,
}

impl Pair {
    fn start() -> Pair {
        let plain = Server::start_in(tempfile::tempdir().unwrap(), &["--no-speculation"]);
        Pair { guessing: Server::start(), plain }
    }

    /// Asks both, each to go on from its own response if there is one before.
    fn ask(&self, body: &Value, before: Option<&Said>) -> Said {
        let ask = |server: &Server, at: usize| {
            let mut body = body.clone();
            if let Some(before) = before {
                body["previous_response_id"] = before.response[at]["id"].clone();
            }
            let Answer { status, body, .. } = server.post("/v1/responses", &body);
            assert_eq!(status, 200, "{body}");
            serde_json::from_str::<Value>(&body).unwrap()
        };
        let response = [ask(&self.guessing, 0), ask(&self.plain, 1)];
        let [guessed, plain] = response.each_ref().map(said);
        assert_eq!(guessed, plain, "{body:#}");
        for name in ["flint.tokens_cached", "flint.tokens_prefilled"] {
            assert_eq!(number(&response[0], name), number(&response[1], name), "{name}: {body:#}");
        }
        assert_eq!(number(&response[1], "flint.tokens_drafted"), 0, "it does not guess");
        let accepted = number(&response[0], "flint.tokens_accepted");
        Said { response, accepted }
    }
}

impl Said {
    fn text(&self) -> &str {
        let last = self.response[0]["output"].as_array().unwrap().last();
        let text = last.and_then(|item| item["content"][0]["text"].as_str());
        text.unwrap_or_else(|| panic!("no text: {:#}", self.response[0]))
    }
}

/// All that a response says but names, times and what was guessed.
fn said(response: &Value) -> Value {
    let mut output = response["output"].clone();
    for item in output.as_array_mut().unwrap() {
        ["id", "call_id"].iter().for_each(|key| drop(item.as_object_mut().unwrap().remove(*key)));
    }
    json!([output, response["status"], response["incomplete_details"], response["usage"]])
}

fn number(response: &Value, name: &str) -> u64 {
    let metadata = &response["metadata"];
    metadata[name].as_str().unwrap_or_else(|| panic!("no {name}: {metadata}")).parse().unwrap()
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": text})
}

fn request(input: Value) -> Value {
    json!({"model": support::MODEL, "input": input, "temperature": 0, "max_output_tokens": 120})
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Prompts after which the model copies.
fn prompts() -> Vec<Value> {
    let copies = [
        format!("Repeat this code, all of it:\n\n{CODE}"),
        format!("Write this list once more, word by word:\n\n{LIST}"),
        format!("Write this again and again: {}", SENTENCE.repeat(3)),
    ];
    copies.iter().map(|text| request(json!([user(text)]))).collect()
}

#[test]
fn answers_and_the_turns_that_follow_are_the_same() {
    let pair = Pair::start();
    let mut accepted = 0;
    for sampling in [json!({}), json!({"temperature": 0.7, "seed": 5, "top_p": 0.9})] {
        for prompt in prompts() {
            let first = pair.ask(&with(prompt, sampling.clone()), None);
            let again = with(request(json!([user("Once more, the same.")])), sampling.clone());
            let second = pair.ask(&again, Some(&first));
            accepted += first.accepted + second.accepted;
        }
    }
    assert!(accepted > 100, "only {accepted} guesses were right: nothing is shown");
}

/// A client that says what it expects gets what it would have got, in fewer passes.
#[test]
fn a_prediction_is_guessed_from_and_changes_nothing() {
    let pair = Pair::start();
    // Sampled: greedy words of a small model soon repeat themselves, and are then guessed without a prediction.
    let prompt = request(json!([user("Explain in plain words what a compiler does.")]));
    let prompt = with(prompt, json!({"temperature": 0.8, "seed": 3}));
    let free = pair.ask(&prompt, None);
    let expected = with(prompt.clone(), json!({"prediction": {"type": "content", "content": free.text()}}));
    let right = pair.ask(&expected, None);
    assert_eq!(right.text(), free.text());
    let tokens = number(&right.response[0], "flint.tokens_generated");
    let (without, with_it) = (free.accepted, right.accepted);
    assert!(
        without * 4 < tokens && with_it * 2 > tokens,
        "{without} and {with_it} right guesses of {tokens} tokens"
    );
    let other =
        with(prompt, json!({"prediction": {"type": "content", "content": free.text().to_uppercase()}}));
    assert_eq!(pair.ask(&other, None).text(), free.text());
}

/// A tool with files, of which the model is not told. It is none that edits, so they are no part of its grammar either.
fn writer(files: &Value) -> Value {
    let parameters = json!({"type": "object", "required": ["text"],
        "properties": {"text": {"type": "string", "maxLength": 160}},
        "additionalProperties": false, "x-flint-edits": files});
    json!([{"type": "function", "name": "write", "description": "Writes a text.", "parameters": parameters}])
}

/// A file that stands nowhere but beside a tool's schema is guessed from, in an answer and in a call.
#[test]
fn a_file_that_only_a_tool_has_is_guessed_from_and_changes_nothing() {
    type Written = fn(&Said) -> String;
    let pair = Pair::start();
    let text = |said: &Said| said.text().to_owned();
    let argument = |said: &Said| {
        let call = &said.response[0]["output"][0];
        let arguments = call["arguments"].as_str().unwrap_or_else(|| panic!("no call: {call}"));
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        arguments["text"].as_str().unwrap().to_owned()
    };
    let ways: [(&str, &str, Written); 2] = [
        ("none", "Explain in plain words what a compiler does.", text),
        ("required", "Write a text that explains in plain words what a compiler does.", argument),
    ];
    for (choice, words, written) in ways {
        let prompt = with(
            request(json!([user(words)])),
            json!({"temperature": 0.8, "seed": 3, "max_output_tokens": 200}),
        );
        let asked = |files: Value| {
            let asked = with(prompt.clone(), json!({"tools": writer(&files), "tool_choice": choice}));
            pair.ask(&asked, None)
        };
        let free = asked(json!({}));
        let told = asked(json!({"a.py": CODE, "b.md": format!("# Notes\n\n{}\n", written(&free))}));
        assert_eq!(written(&told), written(&free));
        let tokens = number(&told.response[0], "flint.tokens_generated");
        let (without, with_it) = (free.accepted, told.accepted);
        assert!(with_it > without + tokens / 4, "{without} and {with_it} right guesses of {tokens} tokens");
    }
}

/// What a tool has put out is part of the conversation.
#[test]
fn the_output_of_a_tool_is_guessed_from() {
    let pair = Pair::start();
    let call = json!({"type": "function_call", "call_id": "a", "name": "show_file",
        "arguments": json!({"file_name": "list.txt"}).to_string()});
    let output = json!({"type": "function_call_output", "call_id": "a", "output": LIST});
    let input = json!([user("Show me list.txt."), call, output, user("Repeat it.")]);
    let said = pair.ask(&with(request(input), json!({"max_output_tokens": 40})), None);
    assert!(LIST.starts_with(said.text()), "it copies: {}", said.text());
    let (right, tokens) = (said.accepted, number(&said.response[0], "flint.tokens_generated"));
    assert!(right * 2 > tokens, "{right} right guesses of {tokens} tokens");
}

/// Pieces of a text, from one place after the other: they begin and end within tokens.
fn stops(text: &str) -> impl Iterator<Item = String> {
    let starts = (1..6).map(|sixth| text.len() * sixth / 6);
    starts.map(|start| text.chars().skip(start).take(9).collect()).filter(|stop: &String| !stop.is_empty())
}

/// Where a stop string stands in the middle of what is guessed right, what was computed behind it is neither said nor remembered.
#[test]
fn a_stop_string_within_guesses_ends_the_answer_where_it_would_have_ended() {
    let pair = Pair::start();
    let mut beyond = 0; // answers of which more was guessed right than there is
    for prompt in prompts() {
        let free = pair.ask(&prompt, None);
        let prompt = with(prompt, json!({"prediction": {"type": "content", "content": free.text()}}));
        for stop in stops(free.text()) {
            let stopped = pair.ask(&with(prompt.clone(), json!({"stop": [stop]})), None);
            assert_eq!(Some(stopped.text()), free.text().split(&stop).next(), "{stop:?}");
            beyond += usize::from(stopped.accepted > number(&stopped.response[0], "flint.tokens_generated"));
            let brief = |text: &str| with(request(json!([user(text)])), json!({"max_output_tokens": 30}));
            let next = pair.ask(&brief("Go on."), Some(&stopped));
            assert!(number(&next.response[0], "flint.tokens_cached") > 20, "the session goes on warm");
            pair.ask(&brief("And once more."), Some(&next));
        }
    }
    assert!(beyond > 0, "no right guess went beyond a stop string: nothing is shown");
}

fn tools() -> Value {
    let line = json!({"type": "integer", "minimum": 1, "maximum": 999});
    let text = json!({"type": "string", "maxLength": 24});
    json!([
        {"type": "function", "name": "replace_lines_of_file", "description": "Replaces lines of a file.",
            "parameters": {"type": "object", "additionalProperties": false,
                "required": ["file_name", "first_line", "last_line", "replacement_text"],
                "properties": {"file_name": text, "first_line": line, "last_line": line, "replacement_text": text}}},
        {"type": "function", "name": "show_file", "description": "Shows a file.",
            "parameters": {"type": "object", "additionalProperties": false, "required": ["file_name"],
                "properties": {"file_name": text}}},
    ])
}

/// A session in which the model has called tools before: it goes on as it began.
fn calls_before() -> Value {
    let call = |id: &str, name: &str| {
        let arguments = json!({"file_name": name}).to_string();
        json!({"type": "function_call", "call_id": id, "name": "show_file", "arguments": arguments})
    };
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": CODE});
    json!([
        user("Call show_file for orders/first_order.py."),
        call("a", "orders/first_order.py"),
        output("a"),
        user("Call show_file for orders/second_order.py."),
        call("b", "orders/second_order.py"),
        output("b"),
        user("Call show_file for orders/third_order.py."),
    ])
}

#[test]
fn calls_of_tools_are_the_same_and_so_is_what_follows() {
    let pair = Pair::start();
    let (mut accepted, mut called) = (0, 0);
    for choice in
        [json!("required"), json!("auto"), json!({"type": "function", "name": "replace_lines_of_file"})]
    {
        for input in [calls_before(), json!([user("Replace line 3 of orders.py by an empty one.")])] {
            let body = with(request(input), json!({"tools": tools(), "tool_choice": choice}));
            let first = pair.ask(&body, None);
            accepted += first.accepted;
            let output = first.response[0]["output"].as_array().unwrap();
            let calls: Vec<&Value> = output.iter().filter(|item| item["type"] == "function_call").collect();
            called += calls.len();
            assert!(choice == "auto" || calls.len() == 1, "{output:?}");
            // Each server's own session goes on with the output of its own call, or with words.
            let more = with(
                request(json!([user("And once more.")])),
                json!({"tools": tools(), "tool_choice": choice}),
            );
            if calls.is_empty() {
                accepted += pair.ask(&more, Some(&first)).accepted;
            }
        }
    }
    assert!(called >= 4 && accepted > 60, "{called} calls, {accepted} right guesses: nothing is shown");
}
