//! The chat, driven through a real pseudo-terminal.

mod support;

use support::{MODEL, Terminal, children, flint};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";

#[test]
fn an_answer_streams_and_its_times_are_shown() {
    let mut terminal = Terminal::open(flint().args(["chat", "-m", MODEL]));
    terminal.wait_for("is ready");
    terminal.wait_for("> ");
    terminal.press("Say hello.\r");
    let answer = terminal.stop_answer();
    assert!(answer.contains("first after") && answer.contains(" ms"), "{answer:?}");
    terminal.wait_for("> ");
    terminal.press("And again, please.\r");
    let second = terminal.stop_answer();
    assert!(!second.contains("(0 cached)"), "the second turn should reuse the first: {second:?}");
    terminal.wait_for("> ");
    terminal.press(CTRL_D);
    assert_eq!(terminal.wait().code(), Some(0));
}

#[test]
fn ctrl_c_stops_the_answer_and_then_quits() {
    let mut terminal = Terminal::open(flint().args(["chat", "-m", MODEL]));
    terminal.wait_for("> ");
    terminal.press("Count from one to ten thousand, in words, one number a line.\r");
    let answer = terminal.stop_answer();
    assert!(answer.contains("tokens"), "{answer:?}");
    terminal.wait_for("stopped");
    terminal.wait_for("> ");
    let worker = children(terminal.pid());
    assert_eq!(worker.len(), 1, "the worker lives on after a stopped answer");
    terminal.press(CTRL_C);
    assert_eq!(terminal.wait().code(), Some(130));
    assert!(!std::path::Path::new(&format!("/proc/{}/exe", worker[0])).exists(), "the worker has gone too");
}

#[test]
fn commands_of_the_chat() {
    let mut terminal = Terminal::open(flint().args(["chat", "-m", MODEL]));
    terminal.wait_for("> ");
    terminal.press("/help\r");
    terminal.wait_for("Ctrl-C stops an answer");
    terminal.wait_for("> ");
    terminal.press("/clear\r");
    terminal.wait_for("> ");
    terminal.press("Hi.\r");
    assert!(terminal.stop_answer().contains("(0 cached)"));
    terminal.wait_for("> ");
    terminal.press("/quit\r");
    assert_eq!(terminal.wait().code(), Some(0));
}
