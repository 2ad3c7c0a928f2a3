//! Which key means what, when.

#[allow(dead_code)] // the scenes use all of it
mod table;

use crossterm::event::{Event as Input, KeyCode, KeyModifiers};
use flint_agent::rules::{Rule, Scope, Word};
use flint_agent::talk::{Asked, Decision, Event, Figures, How, Order, Outcome, Question, State};
use flint_terminal::{Action, Screen, Wish};
use ratatui_core::layout::Size;
use std::time::Duration;
use table::{begun, chord, command, press, running, write};

/// Writes, presses, and tells what came of the last key.
fn after(screen: &mut Screen, text: &str, code: KeyCode) -> Vec<Wish> {
    write(screen, text);
    press(screen, code)
}

fn order(order: Order) -> Vec<Wish> {
    vec![Wish::Order(order)]
}

fn control(screen: &mut Screen, key: char) -> Vec<Wish> {
    chord(screen, KeyCode::Char(key), KeyModifiers::CONTROL)
}

#[test]
fn three_verbs_have_three_keys() {
    let mut screen = begun();
    assert_eq!(after(&mut screen, "a", KeyCode::Enter), order(Order::Submit { text: "a".into() }));
    assert_eq!(after(&mut screen, "b", KeyCode::Tab), order(Order::Submit { text: "b".into() }));
    let mut screen = running();
    assert_eq!(after(&mut screen, "a", KeyCode::Enter), order(Order::Steer { number: 1, text: "a".into() }));
    assert_eq!(after(&mut screen, "b", KeyCode::Tab), order(Order::Queue { number: 2, text: "b".into() }));
    assert_eq!(after(&mut screen, "c", KeyCode::Esc), order(Order::Interrupt));
    assert_eq!(press(&mut screen, KeyCode::Enter), order(Order::Steer { number: 3, text: "c".into() }));
    assert_eq!(after(&mut screen, " \n", KeyCode::Enter), [], "nothing to send");
}

#[test]
fn the_first_letter_warms_the_prompt_once() {
    let mut screen = begun();
    assert_eq!(press(&mut screen, KeyCode::Char('a')), order(Order::Warm));
    assert_eq!(press(&mut screen, KeyCode::Char('b')), []);
    screen.fold(Event::TurnBegan);
    screen.fold(Event::TurnEnded { outcome: Outcome::Done, figures: Figures::default().into() });
    assert_eq!(screen.input(Input::Paste("x".into())), order(Order::Warm));
}

#[test]
fn lines_are_broken_and_pastes_kept_whole() {
    let mut screen = begun();
    write(&mut screen, "a");
    chord(&mut screen, KeyCode::Enter, KeyModifiers::ALT);
    write(&mut screen, "b");
    control(&mut screen, 'j');
    screen.input(Input::Paste("c\r\nd\n".into()));
    let text = "a\nb\nc\nd\n".into();
    assert_eq!(press(&mut screen, KeyCode::Enter), order(Order::Submit { text }));
}

#[test]
fn control_c_clears_then_interrupts_then_quits() {
    let mut screen = running();
    write(&mut screen, "text");
    assert_eq!(control(&mut screen, 'c'), []);
    assert_eq!(control(&mut screen, 'c'), order(Order::Interrupt));
    assert_eq!(control(&mut screen, 'c'), []);
    assert_eq!(control(&mut screen, 'c'), [Wish::Quit]);
    press(&mut screen, KeyCode::Up);
    let cleared = press(&mut screen, KeyCode::Enter);
    assert_eq!(
        cleared,
        order(Order::Steer { number: 1, text: "text".into() }),
        "what was cleared can be had again"
    );
}

#[test]
fn two_presses_far_apart_do_not_quit() {
    let mut screen = begun();
    assert_eq!(control(&mut screen, 'c'), []);
    screen.tick(Duration::from_secs(3));
    assert_eq!(control(&mut screen, 'c'), []);
    press(&mut screen, KeyCode::Left);
    assert_eq!(control(&mut screen, 'c'), [], "a key in between");
}

#[test]
fn the_end_of_input_quits_as_control_c_does() {
    let mut screen = begun();
    assert_eq!(control(&mut screen, 'd'), []);
    assert_eq!(control(&mut screen, 'd'), [Wish::Quit]);
    let mut screen = begun();
    write(&mut screen, "ab");
    press(&mut screen, KeyCode::Home);
    assert_eq!(control(&mut screen, 'd'), [], "with text it deletes");
    assert_eq!(press(&mut screen, KeyCode::Enter), order(Order::Submit { text: "b".into() }));
}

#[test]
fn history_is_there_and_back() {
    let mut screen = begun();
    after(&mut screen, "newer", KeyCode::Enter);
    write(&mut screen, "draft");
    press(&mut screen, KeyCode::Up);
    press(&mut screen, KeyCode::Up);
    press(&mut screen, KeyCode::Up);
    let text = "an earlier text".to_owned();
    assert_eq!(press(&mut screen, KeyCode::Enter), order(Order::Submit { text }));
}

fn waiting(screen: &mut Screen, number: u64, text: &str) {
    let text = text.into();
    screen.fold(Event::Sent { number, text, how: How::Queued, state: State::Waiting });
}

#[test]
fn what_waits_can_be_changed_and_withdrawn() {
    let mut screen = running();
    waiting(&mut screen, 4, "first");
    waiting(&mut screen, 5, "second");
    write(&mut screen, "draft");
    let alt_up = |screen: &mut Screen| chord(screen, KeyCode::Up, KeyModifiers::ALT);
    alt_up(&mut screen);
    assert_eq!(
        after(&mut screen, "!", KeyCode::Enter),
        order(Order::Edit { number: 5, text: "second!".into() })
    );
    alt_up(&mut screen);
    alt_up(&mut screen);
    assert_eq!(control(&mut screen, 'x'), order(Order::Withdraw { number: 4 }));
    alt_up(&mut screen);
    control(&mut screen, 'u');
    assert_eq!(press(&mut screen, KeyCode::Enter), order(Order::Withdraw { number: 5 }));
    assert_eq!(press(&mut screen, KeyCode::Enter), order(Order::Steer { number: 6, text: "draft".into() }));
}

#[test]
fn what_is_on_its_way_is_no_longer_edited() {
    let mut screen = running();
    waiting(&mut screen, 1, "text");
    chord(&mut screen, KeyCode::Up, KeyModifiers::ALT);
    let text = "text".to_owned();
    screen.fold(Event::Sent { number: 1, text: text.clone(), how: How::Queued, state: State::Sent });
    assert_eq!(press(&mut screen, KeyCode::Enter), order(Order::Steer { number: 2, text }));
}

fn rule() -> Rule {
    Rule {
        argv: vec![Word::Exactly("rm".into()), Word::Any],
        scope: Scope::Session,
        until: None,
        unconfined: false,
    }
}

/// A question that has been on a screen of this height for a second.
fn asked(height: u16) -> Screen {
    let mut screen = running();
    let what = Asked::Command { argv: vec!["rm".into()], shown: "rm".into(), unconfined: false };
    screen.fold(Event::Asked(Question {
        item: "q".into(),
        who: None,
        what,
        why: "why".into(),
        rules: vec![rule()],
    }));
    screen.lay_out(Size { width: 60, height });
    screen.tick(Duration::from_secs(2));
    screen
}

fn decided(decision: Decision) -> Vec<Wish> {
    order(Order::Decide { item: "q".into(), decision })
}

#[test]
fn answers() {
    for (key, decision) in [
        ('y', Decision::Yes),
        ('a', Decision::Always(rule())),
        ('1', Decision::Always(rule())),
        ('n', Decision::No { why: None }),
    ] {
        assert_eq!(press(&mut asked(30), KeyCode::Char(key)), decided(decision), "{key}");
    }
    let mut screen = asked(30);
    press(&mut screen, KeyCode::Char('r'));
    let why = Some("no need".to_owned());
    assert_eq!(after(&mut screen, "no need", KeyCode::Enter), decided(Decision::No { why }));
    assert_eq!(press(&mut asked(30), KeyCode::Esc), order(Order::Interrupt));
    assert_eq!(press(&mut asked(30), KeyCode::Char('2')), [], "there is no second rule");
}

#[test]
fn who_types_does_not_say_yes() {
    let mut screen = asked(30);
    write(&mut screen, "my way");
    assert_eq!(press(&mut screen, KeyCode::Char('y')), []);
    screen.tick(Duration::from_secs(4));
    assert_eq!(press(&mut screen, KeyCode::Char('y')), decided(Decision::Yes));
}

#[test]
fn what_is_not_seen_is_not_answered() {
    assert_eq!(press(&mut asked(5), KeyCode::Char('y')), []);
    // Room for the question, but not for the rule.
    let mut screen = asked(11);
    assert_eq!(press(&mut screen, KeyCode::Char('a')), []);
    let mut screen = asked(30);
    screen.fold(Event::Asked(Question { item: "next".into(), ..question() }));
    assert_eq!(press(&mut screen, KeyCode::Char('y')), decided(Decision::Yes));
    assert_eq!(press(&mut screen, KeyCode::Char('y')), [], "the next one has not been read");
}

fn question() -> Question {
    let what = Asked::Files { changes: Vec::new() };
    Question { item: "q".into(), who: None, what, why: String::new(), rules: Vec::new() }
}

#[test]
fn a_question_below_a_page_is_answered_there() {
    let mut screen = asked(40);
    command(&mut screen, "/help");
    screen.lay_out(Size { width: 60, height: 40 });
    assert_eq!(press(&mut screen, KeyCode::Char('y')), [], "a key has just been pressed");
    screen.tick(Duration::from_secs(4));
    assert_eq!(press(&mut screen, KeyCode::Down), []);
    assert_eq!(press(&mut screen, KeyCode::Char('y')), decided(Decision::Yes));
}

#[test]
fn commands_become_orders_and_actions() {
    let action = |action| vec![Wish::Action(action)];
    for (text, expected) in [
        ("/model gpt", order(Order::Model { name: "gpt".into() })),
        ("/model", order(Order::Probe)),
        ("/status", order(Order::Probe)),
        ("/fast", order(Order::Fast { on: true })),
        ("/fast off", order(Order::Fast { on: false })),
        ("/undo", order(Order::Preview { undo: true })),
        ("/redo", order(Order::Preview { undo: false })),
        ("/compact", order(Order::Compact)),
        ("/profile deep", action(Action::Profile { name: Some("deep".into()) })),
        ("/resume", action(Action::Resume { session: None })),
        ("/fork", action(Action::Fork)),
        ("/agents", action(Action::Agents)),
        ("/agents a look at it", order(Order::Delegate { role: "a".into(), task: "look at it".into() })),
        ("/agents stop 2", order(Order::StopAgent { id: "2".into() })),
        ("/agents a", vec![]),
        ("/permissions", action(Action::Permissions)),
        ("/init", action(Action::Init)),
        ("/export a.md", action(Action::Export { file: Some("a.md".into()) })),
        ("/clear", action(Action::Clear)),
        ("/quit", vec![Wish::Quit]),
        ("/usage", vec![]),
        ("/fast maybe", vec![]),
        ("/unknown", vec![]),
        ("/etc/hosts", order(Order::Submit { text: "/etc/hosts".into() })),
    ] {
        assert_eq!(command(&mut begun(), text), expected, "{text}");
    }
}

#[test]
fn a_begun_command_is_completed() {
    let mut screen = begun();
    assert_eq!(after(&mut screen, "/per", KeyCode::Enter), [Wish::Action(Action::Permissions)]);
    assert_eq!(after(&mut screen, "/mo", KeyCode::Tab), []);
    assert_eq!(after(&mut screen, "x", KeyCode::Enter), order(Order::Model { name: "x".into() }));
}
