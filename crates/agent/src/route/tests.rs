use super::*;

/// What is set and known, besides the text and its files.
#[derive(Clone, Copy)]
enum Checked {
    Never, // no command is set
    Unknown,
    Seconds(u64),
}

use Checked::{Never, Seconds, Unknown};

fn facts<'a>(text: &'a str, files: &[(&str, u64)], check: Checked) -> Facts<'a> {
    let command = |took| Some(Check { command: "make check".to_owned(), took });
    Facts {
        text,
        files: files.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect(),
        check: match check {
            Never => None,
            Unknown => command(None),
            Seconds(seconds) => command(Some(Duration::from_secs(seconds))),
        },
        tokens: 0,
        window: Some(8_000),
    }
}

const A: (&str, u64) = ("a.rs", 900);
const B: (&str, u64) = ("b.rs", 900);

/// Text, files, check, where it goes, and a word of why.
type Case<'a> = (&'a str, &'a [(&'a str, u64)], Checked, To, &'a str);

#[test]
fn each_rule_decides_what_it_is_for() {
    let cases: &[Case<'_>] = &[
        ("Rename size to area in a.rs", &[A], Seconds(3), To::Realtime, "one file (a.rs), and `make check`"),
        ("Rename size to area in a.rs", &[A], Unknown, To::Realtime, "tells whether it is right"),
        ("Rename size to area in a.rs", &[A], Seconds(30), To::Realtime, "within 31 s"),
        ("Rename size to area in a.rs", &[A], Seconds(31), To::Deep, "took 31 s, more than 30"),
        ("Rename size to area in a.rs", &[A], Never, To::Deep, "no verify_command"),
        ("Make the failing test pass", &[], Seconds(3), To::Realtime, "no file is named"),
        ("Make the failing test pass", &[], Never, To::Deep, "no file is named, and no verify_command"),
        ("Rename size in a.rs and b.rs", &[A, B], Seconds(3), To::Deep, "it names 2 files"),
        ("What does a.rs do?", &[A], Never, To::Realtime, "it is a question"),
        ("Explain the loop in a.rs", &[A], Never, To::Realtime, "it is a question"),
        ("Can you rename size in a.rs", &[A], Never, To::Deep, "no verify_command"),
        ("How do a.rs and b.rs differ?", &[A, B], Never, To::Deep, "it names 2 files"),
        ("Is the password compared in constant time?", &[], Seconds(1), To::Deep, "`password`"),
        ("Fix the authentication in a.rs", &[A], Seconds(1), To::Deep, "`authentication`: a mistake there"),
        ("Fix the SQL injection in a.rs.", &[A], Seconds(1), To::Deep, "`injection`"),
        ("Close the Vulnerability!", &[], Seconds(1), To::Deep, "`vulnerability`"),
        ("Rename size in src/security/a.rs", &[A], Seconds(1), To::Realtime, "one file"),
        ("Rename password_field in a.rs", &[A], Seconds(1), To::Realtime, "one file"),
        ("Refactor the parser", &[], Seconds(1), To::Deep, "`refactor`: it goes beyond one file"),
        ("Migrate it to the new API", &[], Seconds(1), To::Deep, "`migrate`"),
        ("Why was the codebase split?", &[], Never, To::Realtime, "it is a question"),
        ("Do:\n1. a\n2. b\n3. c\n4. d", &[], Seconds(1), To::Deep, "a plan of 4 steps"),
        ("Do:\n- a\n- b\n* c", &[], Seconds(1), To::Realtime, "no file is named"),
        ("In 2026. it was\n1.5 times\n-x\n*y\n12", &[], Seconds(1), To::Realtime, "no file"),
        (
            "Shorten big.rs",
            &[("big.rs", 30_000)],
            Seconds(1),
            To::Deep,
            "about 10004 tokens, and the real-time",
        ),
        ("Shorten big.rs", &[("big.rs", u64::MAX)], Seconds(1), To::Deep, "the real-time model holds 8000"),
        ("", &[], Seconds(1), To::Realtime, "no file"),
        ("\u{0}\u{202e}[[[]]]", &[], Seconds(1), To::Realtime, "no file"),
    ];
    for (text, files, check, to, why) in cases {
        let route = route(&facts(text, files, *check));
        assert_eq!(route.to, *to, "{text:?}: {}", route.why);
        assert!(route.why.contains(why), "{text:?}: {}", route.why);
        assert!(!route.why.contains('\n'), "{:?}", route.why);
    }
}

#[test]
fn a_long_conversation_is_for_the_deep_model_where_the_window_is_known() {
    let mut facts = facts("Rename size in a.rs", &[A], Seconds(1));
    facts.tokens = 7_000;
    assert_eq!(route(&facts).to, To::Deep);
    facts.window = Some(32_000);
    assert_eq!(route(&facts).to, To::Realtime);
    facts.window = None;
    assert_eq!(route(&facts).to, To::Realtime);
}

#[test]
fn only_a_leading_tag_is_one() {
    for (text, found) in [
        ("[FAST] go", Some((To::Realtime, "go"))),
        ("  [deep]go", Some((To::Deep, "go"))),
        ("[ Spark ]  go", Some((To::Realtime, "go"))),
        ("[CODEX]", Some((To::Deep, ""))),
        ("go [FAST]", None),
        ("[SLOW] go", None),
        ("[FAST go", None),
        ("[]", None),
    ] {
        assert_eq!(tag(text), found, "{text:?}");
    }
}

#[test]
fn a_long_text_takes_no_long_time() {
    let text = "password_ [FAST] - 1. é".repeat(200_000);
    let began = std::time::Instant::now();
    assert_eq!(route(&facts(&text, &[], Seconds(1))).to, To::Deep);
    assert!(began.elapsed() < Duration::from_secs(1));
}
