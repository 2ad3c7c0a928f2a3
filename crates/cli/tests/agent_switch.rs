//! From one model to another and back within one conversation, in a real terminal.

mod support;

use serde_json::{Value, json};
use std::process::Command;
use support::server::Server;
use support::vendor::{Vendor, message};
use support::{MODEL, Terminal, flint};

/// An answer with thoughts that only its author can open.
fn thought(seal: &str, text: &str) -> Value {
    let thoughts =
        json!({"id": format!("rs_{seal}"), "type": "reasoning", "summary": [], "encrypted_content": seal});
    json!([thoughts, message(text)])
}

fn open(command: &mut Command) -> Terminal {
    let mut terminal = Terminal::open(command.env("TERM", "xterm-256color"));
    terminal.wait_for("Do you trust it?");
    terminal.press("n\n");
    terminal.wait_for("\x1b[?1049h");
    terminal
}

/// Says something, and waits for the answer and for a status line that begins like this.
fn say(terminal: &mut Terminal, text: &str, answer: &str, status: &str) {
    terminal.press(&format!("{text}\r"));
    wait_for_status(terminal, &format!("{answer} and {status}"), |screen, line| {
        screen.contains(answer) && line.starts_with(status)
    });
}

fn wait_for_status(terminal: &mut Terminal, what: &str, holds: impl Fn(&str, &str) -> bool) {
    terminal.wait_to_see(what, |screen| {
        let line = screen.lines().rfind(|line| !line.trim().is_empty());
        line.is_some_and(|line| holds(screen, line))
    });
}

fn quit(mut terminal: Terminal) {
    terminal.press("\x03\x03\x03");
    terminal.wait_for("flint resume");
    assert_eq!(terminal.wait().code(), Some(0));
}

/// The seals of the thoughts in a request, and all of its input as text.
fn sent(body: &Value) -> (Vec<&str>, String) {
    let items = body["input"].as_array().unwrap();
    (items.iter().filter_map(|item| item["encrypted_content"].as_str()).collect(), body["input"].to_string())
}

#[test]
fn two_models_of_a_provider_take_turns() {
    let answers =
        vec![thought("s1", "First."), thought("s2", "Second."), message("Third."), message("Fourth.")];
    let vendor = Vendor::listing(&["vendor-1", "vendor-2"], "vendor-1", answers);
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = open(vendor.command(folder.path()).args(["-m", "vendor-1"]));
    say(&mut terminal, "one", "First.", "vendor-1 · ");
    terminal.press("/model vendor-2\r");
    wait_for_status(&mut terminal, "the next", |_, line| line.starts_with("vendor-1, next vendor-2 · "));
    say(&mut terminal, "two", "Second.", "vendor-2 · ");
    terminal.press("/model vendor-1\r");
    wait_for_status(&mut terminal, "the first", |_, line| line.starts_with("vendor-2, next vendor-1 · "));
    say(&mut terminal, "three", "Third.", "vendor-1 · ");
    terminal.press("/model vendor-2\r");
    say(&mut terminal, "four", "Fourth.", "vendor-2 · ");
    quit(terminal);

    let said = ["one", "First.", "two", "Second.", "three", "Third.", "four"];
    for (turn, (model, seals)) in
        [("vendor-1", vec![]), ("vendor-2", vec![]), ("vendor-1", vec!["s1"]), ("vendor-2", vec!["s2"])]
            .into_iter()
            .enumerate()
    {
        let body = vendor.asked().body;
        assert_eq!(
            (&body["model"], &body["include"]),
            (&json!(model), &json!(["reasoning.encrypted_content"]))
        );
        let (sealed, text) = sent(&body);
        assert_eq!(sealed, seals, "turn {turn}: {text}");
        let knows = |words: &&&str| text.contains(&format!("\"{words}\""));
        assert_eq!(said.iter().filter(knows).count(), 2 * turn + 1, "turn {turn}: {text}");
        assert!(!text.contains("flint.by"), "{text}");
    }
}

#[test]
fn two_providers_take_turns_and_neither_reads_the_others_thoughts() {
    let here = Vendor::start("vendor-1", vec![thought("s1", "First."), message("Third.")]);
    let there = Vendor::start("other-1", vec![thought("s2", "Second.")]);
    let settings = format!(
        "[profiles.here]\nmodel = \"vendor-1\"\nmodel_provider = \"v\"\n\n\
         [profiles.there]\nmodel = \"other-1\"\nmodel_provider = \"o\"\n\n\
         [model_providers.v]\nbase_url = \"http://{}/v1\"\n\n[model_providers.o]\nbase_url = \"http://{}/v1\"\n",
        here.address, there.address
    );
    let (home, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(home.path().join("config.toml"), settings).unwrap();
    let mut command = flint();
    command.env("FLINT_HOME", home.path()).current_dir(folder.path()).args(["-p", "here"]);
    let mut terminal = open(&mut command);
    say(&mut terminal, "one", "First.", "vendor-1 · ");
    terminal.press("/profile there\r");
    wait_for_status(&mut terminal, "the other profile", |screen, line| {
        screen.contains("First.") && line.starts_with("other-1 (asked)")
    });
    say(&mut terminal, "two", "Second.", "other-1 · ");
    terminal.press("/profile here\r");
    wait_for_status(&mut terminal, "the profile again", |screen, line| {
        screen.contains("Second.") && line.starts_with("vendor-1 (asked)")
    });
    say(&mut terminal, "three", "Third.", "vendor-1 · ");
    quit(terminal);

    let (_, second, third) = (here.asked(), there.asked(), here.asked());
    let (sealed, text) = sent(&second.body);
    assert!(sealed.is_empty() && text.contains("First.") && text.contains("two"), "{text}");
    let (sealed, text) = sent(&third.body);
    assert!(sealed == ["s1"] && text.contains("Second.") && text.contains("three"), "{text}");
}

/// What runs is not asked to be by another model; the next turn is.
#[test]
fn a_model_that_is_chosen_in_a_turn_is_for_the_next() {
    let long = "word ".repeat(100) + "end.";
    let server = Server::scripted(&[("be long", long.as_str()), ("", "Short.")], 100.0);
    let folder = tempfile::tempdir().unwrap();
    let mut terminal =
        open(flint().env("FLINT_HOME", server.home.path()).current_dir(folder.path()).args(["-m", MODEL]));
    terminal.press("be long\r");
    terminal.wait_to_see("its beginning", |screen| screen.contains("word word"));
    terminal.press("/model nobody\r");
    wait_for_status(&mut terminal, "its end", |screen, line| {
        screen.contains("end.") && line.starts_with(&format!("{MODEL} (default), next nobody · "))
    });
    terminal.press("hello\r");
    terminal.wait_to_see("a refusal", |screen| screen.contains("nobody") && screen.contains("not served"));
    terminal.press(&format!("/model {MODEL}\r"));
    say(&mut terminal, "and now?", "Short.", &format!("{MODEL} (default) · "));
    quit(terminal);
}
