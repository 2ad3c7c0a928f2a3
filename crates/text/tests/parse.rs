//! Calls, reasoning and text are told apart, however the output is cut, and code that looks like a call stays code.

use flint_text::chat::Tool;
use flint_text::limits::CALL_BYTES_MAX;
use flint_text::parse::{Call, Event, Format, Options, Parser, Piece, calls_in};
use proptest::prelude::*;
use serde_json::json;

fn tool(name: &str, parameters: serde_json::Value) -> Tool {
    Tool { name: name.into(), description: String::new(), parameters }
}

fn tools() -> Vec<Tool> {
    let properties = json!({"properties": {
        "path": {"type": "string"}, "n": {"type": "integer"}, "x": {"type": "number"},
        "on": {"type": "boolean"}, "list": {"type": "array"}, "map": {"type": ["object", "null"]},
    }});
    vec![tool("read", properties.clone()), tool("shell", properties)]
}

/// What events say together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    text: String,
    reasoning: String,
    calls: Vec<Call>,
}

fn said(events: Vec<Event>) -> Said {
    let mut said = Said::default();
    let mut open = false;
    for event in events {
        match event {
            Event::Text(text) => said.text.push_str(&text),
            Event::Reasoning(text) => said.reasoning.push_str(&text),
            Event::CallStart { index, name } => {
                assert!(!open && index == said.calls.len());
                open = true;
                said.calls.push(Call { name, arguments: String::new() });
            }
            Event::CallArguments(text) => {
                assert!(open);
                said.calls.last_mut().unwrap().arguments.push_str(&text);
            }
            Event::CallEnd => assert!(std::mem::take(&mut open)),
        }
    }
    assert!(!open);
    said
}

fn parse_with(options: Options, pieces: &[Piece]) -> Said {
    let mut parser = Parser::new(options);
    let mut events = Vec::new();
    for piece in pieces {
        parser.push(*piece, &mut events);
    }
    parser.finish(&mut events);
    said(events)
}

fn options(format: Format) -> Options {
    Options { format, tools: tools().into(), reasoning_open: false }
}

fn cut<'a>(text: &'a str, cuts: &[usize]) -> Vec<Piece<'a>> {
    let mut at: Vec<usize> =
        cuts.iter().map(|c| c % (text.len() + 1)).filter(|c| text.is_char_boundary(*c)).collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| Piece::Text(&text[pair[0]..pair[1]])).collect()
}

/// Parses `text` whole, at every cut and a character at a time; all must say the same.
fn parse(format: Format, text: &str) -> Said {
    let whole = parse_with(options(format), &[Piece::Text(text)]);
    for at in 0..text.len() {
        assert_eq!(parse_with(options(format), &cut(text, &[at])), whole, "{text:?} cut at {at}");
    }
    let all: Vec<usize> = (0..text.len()).collect();
    assert_eq!(parse_with(options(format), &cut(text, &all)), whole, "{text:?} cut everywhere");
    whole
}

fn call(name: &str, arguments: &str) -> Call {
    Call { name: name.into(), arguments: arguments.into() }
}

#[track_caller]
fn check(format: Format, text: &str, expected_text: &str, calls: impl AsRef<[Call]>) {
    let said = parse(format, text);
    assert_eq!(
        (said.text.as_str(), said.calls.as_slice(), ""),
        (expected_text, calls.as_ref(), said.reasoning.as_str())
    );
}

#[test]
fn hermes_calls() {
    let read = call("read", r#"{"path": "a.rs"}"#);
    let one = r#"<tool_call>
{"name": "read", "arguments": {"path": "a.rs"}}
</tool_call>"#;
    check(Format::Tagged, one, "", [read.clone()]);
    check(
        Format::Tagged,
        &format!("Let me look.\n{one}\n{one}"),
        "Let me look.\n\n",
        [read.clone(), read.clone()],
    );
    check(
        Format::Tagged,
        r#"<tool_call>{"arguments":{},"name":"shell"}</tool_call>"#,
        "",
        [call("shell", "{}")],
    );
    // The closing may be missing at the end of the turn, and may stand inside a string.
    check(Format::Tagged, one.trim_end_matches("</tool_call>"), "", [read.clone()]);
    let tricky = r#"{"path": "</tool_call> \" } é <tool_call>", "n": [1, {"a": null}]}"#;
    let text = format!(r#"<tool_call>{{"name":"read","arguments":{tricky}}}</tool_call>"#);
    check(Format::Tagged, &text, "", [call("read", tricky)]);
}

#[test]
fn xml_calls() {
    let text = "Sure.\n<tool_call>\n<function=read>\n<parameter=path>\nsrc/a b.rs\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>";
    check(Format::Tagged, text, "Sure.\n", [call("read", r#"{"path":"src/a b.rs","n":3}"#)]);
    let nested = "<tool_call>\n<function=shell>\n<parameter=path>\n<a>\n</parameter> & </function>\n</tool_call> \"\n  <parameter=q>\n</parameter>\n</function>\n</tool_call> x";
    let value = "<a>\n</parameter> & </function>\n</tool_call> \"\n  <parameter=q>";
    check(Format::Tagged, nested, " x", [call("shell", &json!({"path": value}).to_string())]);
    let typed = "<tool_call><function=read><parameter=on>True</parameter><parameter=x>1</parameter><parameter=n>1.5</parameter>\
                 <parameter=list>[1, 2]</parameter><parameter=map>null</parameter><parameter=path>17</parameter><parameter=other>{}</parameter></function></tool_call>";
    let arguments = r#"{"on":true,"x":1,"n":"1.5","list":[1,2],"map":null,"path":"17","other":"{}"}"#;
    check(Format::Tagged, typed, "", [call("read", arguments)]);
    check(Format::Tagged, "<tool_call><function=shell></function></tool_call>", "", [call("shell", "{}")]);
    check(Format::Tagged, "<tool_call>\n<function=shell>\n</function>", "", [call("shell", "{}")]);
}

#[test]
fn llama_calls() {
    let text = r#"{"name": "read", "parameters": {"path": "a"}}"#;
    let read = call("read", r#"{"path": "a"}"#);
    check(Format::Llama3, text, "", [read.clone()]);
    check(Format::Llama3, &format!("{text}; {text}"), " ", [read.clone(), read.clone()]);
    check(Format::Llama3, &format!("I will.\n  {text}\nDone."), "I will.\n  \nDone.", [read.clone()]);
    check(Format::Llama3, "<tool_call> is text here", "<tool_call> is text here", []);
    let pieces = [
        Piece::Text("Sure: "),
        Piece::Control("<|python_tag|>"),
        Piece::Text(text),
        Piece::Control("<|eom_id|>"),
    ];
    let expected = Said { text: "Sure: ".into(), calls: vec![read], ..Said::default() };
    assert_eq!(parse_with(options(Format::Llama3), &pieces), expected);
}

#[test]
fn fenced_and_bare_objects_are_calls() {
    let object = "{\n  \"name\": \"shell\",\n  \"arguments\": {\n    \"path\": \"ls\"\n  }\n}";
    let shell = call("shell", "{\n    \"path\": \"ls\"\n  }");
    for format in [Format::Tagged, Format::Llama3] {
        check(format, &format!("```json\n{object}\n```"), "", [shell.clone()]);
        check(
            format,
            &format!("I run it:\n\n```\n{object}```\nthen"),
            "I run it:\n\n\nthen",
            [shell.clone()],
        );
        check(format, object, "", [shell.clone()]);
    }
    let (text, calls) = calls_in(&format!("a\n```json\n{object}\n```"), &tools());
    assert_eq!((text.as_str(), calls), ("a\n", vec![shell]));
}

#[test]
fn what_looks_like_a_call_is_text() {
    let fenced_example =
        "```xml\n<tool_call>\n{\"name\": \"read\", \"arguments\": {}}\n</tool_call>\n```\nas above";
    let cases = [
        "let s = \"<tool_call>\"; // never a call",
        "the `<tool_call>` tag, and <tool_call",
        "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>{\"name\": \"read\", \"arguments\": {}} and more</tool_call>",
        "<tool_call>{\"name\": \"read\", \"arguments\": []}</tool_call>",
        "<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": }}</tool_call>",
        "<tool_call>{\"name\": \"read\", \"arguments\": {\"a\": 1",
        "<tool_call>{'name': 'read'}</tool_call>",
        "<tool_call><function=rm></function></tool_call>",
        "<tool_call><function=read><parameter=path>x</function></tool_call>",
        "</tool_call></think><think> <|im_end|>",
        fenced_example,
        "```rust\nfn f() {\n{\"name\": 1}\n}\n```",
        "```json\n{\"name\": \"read\", \"version\": \"1\"}\n```",
        "```json\n{\"name\": \"read\", \"arguments\": {}}\n{}\n```",
        "{\"name\": \"read\", \"arguments\": {}} is how you call it",
        "use {\"name\": \"read\", \"arguments\": {}}\n",
        "int main()\n{\n  return 0;\n}\n",
        "{\"name\": \"rm\", \"arguments\": {}}",
        "{\"\\\"name\": \"read\", \"arguments\": {}}",
        "`",
        "``",
        "```",
        "``` json",
        "{",
        "<",
        "",
    ];
    for text in cases {
        check(Format::Tagged, text, text, []);
        check(Format::Llama3, text, text, []);
    }
}

#[test]
fn reasoning_comes_first() {
    let think = |text: &str| {
        let said = parse(Format::Tagged, text);
        (said.reasoning, said.text)
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(think("<think>\nhm </thin\n</think>\n\nyes"), pair("hm </thin", "yes"));
    assert_eq!(think("\n<think>a</think>b<think>c</think>"), pair("a", "b<think>c</think>"));
    assert_eq!(think("<think>never closed"), pair("never closed", ""));
    assert_eq!(think("a <think>b</think>"), pair("", "a <think>b</think>"));
    assert_eq!(think("  <thin"), pair("", "  <thin"));
    let long = format!("{}<think>a</think>", " ".repeat(2000));
    assert_eq!(think(&long), pair("", &long));
    let open = Options { reasoning_open: true, ..options(Format::Tagged) };
    let said = parse_with(open, &[Piece::Text("x\n</th"), Piece::Text("ink>\n"), Piece::Text("\ny")]);
    assert_eq!((said.reasoning.as_str(), said.text.as_str()), ("x", "y"));
    let call_after = parse(
        Format::Tagged,
        "<think>I could <tool_call></think>\n\n<tool_call>{\"name\":\"read\",\"arguments\":{}}</tool_call>",
    );
    assert_eq!((call_after.reasoning.as_str(), call_after.calls.len()), ("I could <tool_call>", 1));
}

#[test]
fn harmony_channels() {
    use Piece::{Control as C, Text as T};
    let pieces = [
        C("<|channel|>"),
        T("ana"),
        T("lysis"),
        C("<|message|>"),
        T("Need <|end|> it."),
        C("<|end|>"),
        C("<|start|>"),
        T("assistant"),
        C("<|channel|>"),
        T("commentary"),
        C("<|message|>"),
        T("Plan. "),
        C("<|end|>"),
        C("<|start|>"),
        T("assistant"),
        C("<|channel|>"),
        T("commentary to=functions.re"),
        T("ad "),
        C("<|constrain|>"),
        T("json"),
        C("<|message|>"),
        T("{\"path\":"),
        T("\"a\"}"),
        C("<|call|>"),
        C("<|start|>"),
        T("assistant to=functions.shell"),
        C("<|channel|>"),
        T("commentary json"),
        C("<|message|>"),
        T("{}"),
        C("<|call|>"),
        C("<|start|>"),
        T("assistant"),
        C("<|channel|>"),
        T("final"),
        C("<|message|>"),
        T("Do"),
        T("ne."),
        C("<|return|>"),
    ];
    let said = parse_with(options(Format::Harmony), &pieces);
    let calls = vec![call("read", r#"{"path":"a"}"#), call("shell", "{}")];
    let expected = Said { text: "Plan. Done.".into(), reasoning: "Need <|end|> it.".into(), calls };
    assert_eq!(said, expected);
    let cut_off = [C("<|channel|>"), T("commentary to=functions.read"), C("<|message|>"), T("{\"pa")];
    assert_eq!(parse_with(options(Format::Harmony), &cut_off).calls, [call("read", "{\"pa")]);
    assert_eq!(parse_with(options(Format::Harmony), &[C("<|message|>"), T("x")]).text, "x");
}

/// Memory and time stay bounded when a call never ends, and nothing is lost.
#[test]
fn endless_candidates_become_text() {
    for (open, fill) in [
        ("<tool_call>{\"name\":\"read\",\"arguments\":{\"path\":\"", "a"),
        ("<tool_call><function=read><parameter=path>", "<tool_call><function=read>"),
        ("<tool_call><function=read><parameter=path>", "</function></tool_call>"),
        ("", "<"),
        ("", "<tool_call>"),
        ("```json\n{\"name\": \"read\", \"arguments\": {\"a\": [", "1, "),
    ] {
        let text = open.to_owned() + &fill.repeat((CALL_BYTES_MAX + 4096) / fill.len());
        let whole = parse_with(options(Format::Tagged), &[Piece::Text(&text)]);
        assert!(whole.text == text && whole.calls.is_empty(), "{open} {fill}");
        let cuts: Vec<usize> = (0..text.len()).step_by(1000).collect();
        assert!(parse_with(options(Format::Tagged), &cut(&text, &cuts)).text == text, "{open} {fill}");
    }
}

fn fragments() -> impl Strategy<Value = String> {
    let fragment = prop::sample::select(vec![
        "<tool_call>",
        "</tool_call>",
        "{\"name\": \"read\", \"arguments\": {\"path\": \"",
        "\"}}",
        "{\"name\":\"shell\",\"arguments\":{}}",
        "<function=read>",
        "<parameter=path>",
        "</parameter>",
        "</function>",
        "<think>",
        "</think>",
        "```json\n",
        "```\n",
        "```",
        "\n",
        " ",
        "{",
        "}",
        "\"",
        "\\",
        "x",
        "é",
        "🙂",
        ";",
        "<",
        "`",
        "1",
        ",",
        ":",
        "[",
        "]",
        "fn main() {}\n",
    ]);
    prop::collection::vec(fragment, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn any_cut_says_the_same(text in fragments(), cuts in prop::collection::vec(0usize..4096, 0..12), llama in any::<bool>()) {
        let format = if llama { Format::Llama3 } else { Format::Tagged };
        let whole = parse_with(options(format), &[Piece::Text(&text)]);
        prop_assert_eq!(&parse_with(options(format), &cut(&text, &cuts)), &whole);
        if whole.calls.is_empty() && whole.reasoning.is_empty() && !text.trim_start().starts_with("<think>") {
            prop_assert_eq!(&whole.text, &text);
        }
        for call in &whole.calls {
            let arguments: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_str(&call.arguments);
            prop_assert!(arguments.is_ok() && tools().iter().any(|tool| tool.name == call.name));
        }
    }

    #[test]
    fn without_tools_all_is_text(text in fragments(), cuts in prop::collection::vec(0usize..4096, 0..12)) {
        prop_assume!(!text.trim_start().starts_with("<think>"));
        let options = Options { format: Format::Tagged, tools: [].into(), reasoning_open: false };
        prop_assert_eq!(parse_with(options, &cut(&text, &cuts)).text, text);
    }
}
