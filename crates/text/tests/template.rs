//! Templates as programs: what they may do, and what stops them.

use flint_text::chat::{Message, Prompt, Role};
use flint_text::limits::TEMPLATE_BYTES_MAX;
use flint_text::{GgufVocab, Segment, Template, Tokenizer};

/// Every byte is a token, and `<|end|>` is the only control token.
fn tokenizer() -> Tokenizer {
    let itself = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let plain = (0..=255u8).filter(itself).map(char::from);
    let shifted = (0..=255u8).filter(|b| !itself(b)).zip('\u{100}'..).map(|(_, c)| c);
    let tokens: Vec<String> = plain.chain(shifted).map(String::from).chain(["<|end|>".to_owned()]).collect();
    let types = (0..tokens.len()).map(|id| if id < 256 { 1 } else { 3 }).collect();
    let vocab =
        GgufVocab { model: "gpt2".into(), pre: "gpt-2".into(), tokens, types, ..GgufVocab::default() };
    Tokenizer::from_gguf(vocab).unwrap()
}

fn prompt() -> Prompt {
    Prompt { messages: vec![Message::new(Role::User, " Hi <|end|> ")], ..Prompt::default() }
}

fn render(source: &str) -> Result<String, String> {
    let template = Template::new(source).map_err(|e| e.to_string())?;
    let segments = template.render(&prompt(), &tokenizer()).map_err(|e| e.to_string())?;
    let text = |s: Segment| match s {
        Segment::Text(text) => text,
        Segment::Control(literal) => format!("[{literal}]"),
    };
    Ok(segments.into_iter().map(text).collect())
}

#[test]
fn speaks_the_python_of_templates() {
    for (source, expected) in [
        (
            "{{ 1.0 }} {{ none }} {{ true }} {{ [1, 'a', none] }} {{ {'a': 1} }}",
            "1.0 None True [1, 'a', None] {'a': 1}",
        ),
        ("{{ ' a '.strip() }}{{ 'a,b'.split(',')[-1] }}{{ 'ab'.startswith('a') }}", "abTrue"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
        (
            "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "3",
        ),
        ("{{ [1, 2, 3][::-1] }}{{ 'hello'[1:-1] }}{{ messages[0]['content'][:3] | trim }}", "[3, 2, 1]ellHi"),
        ("{{ {'b': [1, {}], 'a': 'é\"<'} | tojson }}", r#"{"b": [1, {}], "a": "é\"<"}"#),
        (
            "{{ {'b': 1, 'a': [2]} | tojson(indent=2, sort_keys=true) }}",
            "{\n  \"a\": [\n    2\n  ],\n  \"b\": 1\n}",
        ),
        ("{{ 'é' | tojson(ensure_ascii=true) }}{{ [1] | tojson(separators=(',', ':')) }}", "\"\\u00e9\"[1]"),
        ("{{ 'x' * 3 ~ (1 + 2) }}{{ [1] + [2] }}{{ 7 // 2 }}{{ 2 ** 3 }}{{ 7 % 3 }}", "xxx3[1, 2]381"),
        ("{{ strftime_now('%Y') }}{{ '{} {}'.format(1, 'b') }}{{ 'a-b'.replace('-', '+') }}", "19701 ba+b"),
        ("{%- generation -%} a {%- endgeneration %}\n{% if true %}\n  b\n{% endif %}", "a  b\n"),
        (
            "{{ messages | map(attribute='role') | join(',') }}{{ messages | selectattr('role', 'equalto', 'x') | list | length }}",
            "user0",
        ),
        (
            "{{ x is defined }}{{ none is iterable }}{{ 'a' is sequence }}{{ {} is mapping }}{{ x | default('d') }}",
            "FalseFalseTrueTrued",
        ),
        ("{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}<|end|>", "12[<|end|>]"),
        ("{{ messages[0].content }}<|end|>", " Hi <|end|> [<|end|>]"),
        ("{{ messages[0].content | tojson(ensure_ascii=true) }}", "\" Hi <|end|> \""),
    ] {
        assert_eq!(render(source).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn faults_name_the_line() {
    for (source, expected) in [
        ("a\n{% if %}", "chat template, line 2: syntax error: unexpected end of block"),
        ("\n\n{{ 'a' + 1 }}", "chat template, line 3: invalid operation: cannot use + on string and number"),
        ("{{ messages.x.y }}", "chat template, line 1: undefined value"),
        (
            "{{ raise_exception('Roles must alternate') }}",
            "the model's chat template refuses this conversation: Roles must alternate",
        ),
        ("{{ 'a' | nothing }}", "chat template, line 1: unknown filter: filter nothing is unknown"),
        (
            "{% include 'x' %}",
            "chat template, line 1: template not found: tried to include non-existing template 'x'",
        ),
    ] {
        assert_eq!(render(source).unwrap_err(), expected, "{source}");
    }
}

/// Programs made to exhaust memory, stack or patience end with an error within moments.
#[test]
fn hostile_programs_are_stopped() {
    let doubling = |what: &str, grow: &str, then: &str| {
        format!(
            "{{% set ns = namespace(v={what}) %}}{{% for i in range(60) %}}{{% set ns.v = {grow} %}}{{% endfor %}}{{{{ {then} }}}}"
        )
    };
    let nested = |grow: &str| {
        let body = format!("{{% set ns.v = {grow} %}}").repeat(4);
        format!("{{% set ns = namespace(v=[]) %}}{{% for i in range(100000) %}}{body}{{% endfor %}}")
    };
    let text = "x".repeat(4000);
    for (source, expected) in [
        (doubling("'a'", "ns.v ~ ns.v", "ns.v | length"), "more than 268435456 bytes"),
        (doubling("'a'", "ns.v + ns.v", "1"), "more than 268435456 bytes"),
        (doubling("'a'", "ns.v * 2", "1"), "more than 268435456 bytes"),
        (doubling("[1]", "ns.v + ns.v", "1"), "more than 268435456 bytes"),
        (doubling("'a'", "ns.v | replace('a', 'aa')", "1"), "more than 268435456 bytes"),
        (doubling("'a'", "[ns.v, ns.v] | join", "1"), "more than 268435456 bytes"),
        (doubling("'a'", "ns.v[:] ~ ns.v", "1"), "more than 268435456 bytes"),
        (doubling("[1]", "[ns.v, ns.v]", "ns.v"), "more than 268435456 bytes"),
        (doubling("[1]", "[ns.v, ns.v]", "ns.v | tojson"), "tojson: more than"),
        (doubling("[1]", "[ns.v, ns.v]", "ns.v | string | length"), "more than 268435456 bytes"),
        ("{{ 'a\na' | indent(100000000000) }}".into(), "more than 268435456 bytes"),
        ("{{ '{:>99999999999}'.format(1) }}".into(), "not supported"),
        (nested("[ns.v]"), "too many steps"),
        (nested("{'a': ns.v}"), "too many steps"),
        (nested("namespace(a=ns.v)"), "too many steps"),
        (
            "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}".into(),
            "too many steps",
        ),
        (
            format!(
                "{{% for i in range(100000) %}}{{% for j in range(100000) %}}{text}{{% endfor %}}{{% endfor %}}"
            ),
            "too many steps",
        ),
        ("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}".into(), "recursion limit"),
        (format!("{{{{ {}1{} }}}}", "(".repeat(1000), ")".repeat(1000)), "recursion limits"),
        ("x".repeat(TEMPLATE_BYTES_MAX + 1), "at most"),
    ] {
        let error = render(&source).map(|text| text.len()).expect_err(&source);
        assert!(error.contains(expected), "{source:.200}: {error:.300}");
    }
}

/// Values nested as deep as the fuel allows are printed, compared and dropped without a stack overflow.
#[test]
fn deep_values_are_survived() {
    let deep = "{% set a = namespace(v=[]) %}{% set b = namespace(v=[]) %}{% for i in range(4000) %}\
                {% set a.v = [[a.v]] %}{% set b.v = [[b.v]] %}{% endfor %}";
    assert_eq!(render(&format!("{deep}{{{{ a.v == b.v }}}}")).as_deref(), Ok("True"));
    assert_eq!(render(&format!("{deep}{{{{ a.v | string | length }}}}")).as_deref(), Ok("16002"));
    let loops = "{% set ns = namespace(v=[]) %}{% for i in range(5000) %}{% for x in [ns.v] %}{% set ns.v = loop %}{% endfor %}{% endfor %}";
    assert_eq!(render(loops).as_deref(), Ok(""));
}
