//! Replays the corpora of the fuzzers, with the fuzzers' own assertions: what was found once stays found. And holds random
//! sessions to the same promises.

#[path = "../../../fuzz/src/terminal.rs"]
mod promises;
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

use proptest::prelude::*;

#[test]
fn terminal() {
    replay::corpus("terminal", promises::terminal);
}

/// What a hostile or unlucky text is made of.
const WORDS: [&str; 28] = [
    "a",
    " ",
    "\n",
    "\t",
    "\r",
    "\u{1b}[31m",
    "\u{9b}",
    "\u{202e}",
    "\u{200d}",
    "\u{301}",
    "日",
    "👩",
    "\u{fe0f}",
    "`",
    "```rs\n",
    "**",
    "> ",
    "- ",
    "1. ",
    "|",
    "|-|\n",
    "@@ -1 +1 @@\n",
    "&#27;",
    "/status\n",
    "\u{34f}",
    "\u{e0041}",
    "\u{3164}",
    "\u{fe01}",
];

const LETTERS: &str = "BEmgMrhcoCqQSpxbuUzsfladtnkkkkPwRL";

fn record() -> impl Strategy<Value = String> {
    let letter = prop::sample::select(LETTERS.chars().collect::<Vec<_>>());
    let word = prop_oneof![
        4 => prop::sample::select(&WORDS[..]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
        1 => prop::sample::select(&["/diff\n", "/usage\n", "/model\n", "y", "a1", "r", "^_{}$!|#@", "C", "OOX"][..])
            .prop_map(str::to_owned),
    ];
    (letter, prop::collection::vec(word, 0..12))
        .prop_map(|(letter, words)| format!("\n%{letter}{}", words.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_session_is_painted_safely(
        size in any::<(u8, u8)>(),
        records in prop::collection::vec(record(), 0..24),
    ) {
        let mut bytes = vec![size.0, size.1];
        bytes.extend(records.concat().bytes());
        promises::terminal(&bytes);
    }

    #[test]
    fn any_text_is_made_safe(text in any::<String>(), words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..20)) {
        promises::terminal(format!("{text}{}", words.concat()).as_bytes());
    }
}
