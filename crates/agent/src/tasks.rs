//! A list of tasks as people write it: numbers, bullets or checkboxes, each with a tag for its model or without one.
//!
//! ```text
//! What holds for all of them.
//!
//! 1. [FAST] Rename size to area in shapes.py
//! 2. [DEEP] Split the parser
//!    The lines that follow, indented, belong to it.
//! 3. [ ] Run the tests
//! ```

use crate::limits::{TASKS_BYTES_MAX, TASKS_STEPS_MAX};
use crate::route::{self, To};

/// A whole list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tasks {
    pub before: String, // what stands before the first step
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub line: usize, // from 1
    pub to: Option<To>,
    pub done: bool,      // its box is ticked
    pub section: String, // the heading that it stands under
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TasksError {
    #[error("the list has {0} bytes, at most {TASKS_BYTES_MAX} are read: make several lists of it")]
    Long(usize),
    #[error("the list has more than {TASKS_STEPS_MAX} steps: make several lists of it")]
    Many,
    #[error("line {0}: a step without words: say what is to be done")]
    Empty(usize),
    #[error("there is no step in the list. It looks like this:\n\n{FORM}")]
    None,
}

/// The form of a list, for those who have written another one.
pub const FORM: &str =
    "1. [FAST] Rename size to area in shapes.py\n2. [DEEP] Split the parser into a file for each kind\n";

/// What begins a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Number,
    Bullet,
}

/// A line of the list, outside of code blocks.
enum Line<'a> {
    Step(Mark, &'a str),
    Heading,
    Text,
}

impl Tasks {
    pub fn parse(text: &str) -> Result<Tasks, TasksError> {
        if text.len() > TASKS_BYTES_MAX {
            return Err(TasksError::Long(text.len()));
        }
        // Where there are numbers they are the steps, and bullets belong to them.
        let is =
            |wanted: Mark| lines(text).any(|(_, line)| matches!(line, Line::Step(mark, _) if mark == wanted));
        let mark = if is(Mark::Number) { Mark::Number } else { Mark::Bullet };
        let mut tasks = Tasks { before: String::new(), steps: Vec::new() };
        let (mut section, mut heads) = (String::new(), false);
        for (number, (whole, line)) in (1..).zip(lines(text)) {
            match (line, tasks.steps.last_mut()) {
                (Line::Step(own, rest), _) if own == mark => {
                    if tasks.steps.len() == TASKS_STEPS_MAX {
                        return Err(TasksError::Many);
                    }
                    heads = false;
                    tasks.steps.push(step(number, rest, section.trim()));
                }
                (Line::Heading, Some(_)) => (section, heads) = (format!("{whole}\n"), true),
                (Line::Step(..) | Line::Text, Some(_)) if heads => add(&mut section, whole),
                (Line::Step(..) | Line::Text, Some(last)) => add(&mut last.text, whole),
                (Line::Step(..) | Line::Heading | Line::Text, None) => add(&mut tasks.before, whole),
            }
        }
        tasks.before = tasks.before.trim().to_owned();
        tasks.steps.iter_mut().for_each(|step| step.text = step.text.trim().to_owned());
        if let Some(empty) = tasks.steps.iter().find(|step| step.text.is_empty()) {
            return Err(TasksError::Empty(empty.line));
        }
        if tasks.steps.is_empty() { Err(TasksError::None) } else { Ok(tasks) }
    }

    /// What a step's turn says.
    pub fn said(&self, step: &Step) -> String {
        let parts = [&self.before, &step.section, &step.text];
        let parts: Vec<&str> =
            parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        parts.join("\n\n")
    }
}

impl Step {
    /// Its first line.
    pub fn title(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

fn add(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Each line, and what it is.
fn lines(text: &str) -> impl Iterator<Item = (&str, Line<'_>)> {
    let mut fence: Option<&str> = None;
    text.lines().map(move |whole| {
        let inner = whole.trim();
        let ticks = &inner[..inner.len() - inner.trim_start_matches(['`', '~']).len()];
        match fence {
            Some(open) if inner.starts_with(open) && inner == ticks => fence = None,
            None if ticks.len() >= 3 => fence = Some(ticks),
            Some(_) | None => return (whole, if fence.is_some() { Line::Text } else { line(whole) }),
        }
        (whole, Line::Text)
    })
}

/// Steps and headings stand at the beginning of their line.
fn line(whole: &str) -> Line<'_> {
    let number = whole.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = number.strip_prefix(['.', ')']).filter(|_| whole.starts_with(|c: char| c.is_ascii_digit()));
    let marked = number.map(|rest| (Mark::Number, rest));
    let marked = marked.or_else(|| whole.strip_prefix(['-', '*', '+']).map(|rest| (Mark::Bullet, rest)));
    match marked.filter(|(_, rest)| rest.is_empty() || rest.starts_with([' ', '\t'])) {
        Some((mark, rest)) => Line::Step(mark, rest),
        None if whole.starts_with('#') && whole.trim_start_matches('#').starts_with(' ') => Line::Heading,
        None => Line::Text,
    }
}

/// A box and a tag may stand before the words, in any order.
fn step(line: usize, rest: &str, section: &str) -> Step {
    let (mut rest, mut to, mut done) = (rest.trim(), None, false);
    loop {
        let boxed = ["[ ]", "[x]", "[X]"].iter().find_map(|mark| Some((*mark, rest.strip_prefix(mark)?)));
        match (boxed, route::tag(rest)) {
            (Some((mark, after)), _) => (rest, done) = (after.trim_start(), done || mark != "[ ]"),
            (None, Some((tagged, after))) if to.is_none() => (rest, to) = (after, Some(tagged)),
            (None, _) => break,
        }
    }
    Step { line, to, done, section: section.to_owned(), text: format!("{rest}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step's model, whether it is done, and its text.
    fn steps(text: &str) -> Vec<(Option<To>, bool, String)> {
        let tasks = Tasks::parse(text).unwrap();
        tasks.steps.into_iter().map(|step| (step.to, step.done, step.text)).collect()
    }

    #[test]
    fn lists_as_people_write_them() {
        let (fast, deep) = (Some(To::Realtime), Some(To::Deep));
        for (text, expected) in [
            (
                "1. [FAST] a\n2. [DEEP] b\n3. c",
                vec![(fast, false, "a"), (deep, false, "b"), (None, false, "c")],
            ),
            ("1) [spark] a\n10) [Codex]b", vec![(fast, false, "a"), (deep, false, "b")]),
            (
                "- [ ] [FAST] a\n- [x] b\n* [DEEP] [X] c",
                vec![(fast, false, "a"), (None, true, "b"), (deep, true, "c")],
            ),
            (
                "1. a\n   more\n\n   - x\n2. b",
                vec![(None, false, "a\n   more\n\n   - x"), (None, false, "b")],
            ),
            // Bullets are no steps where there are numbers.
            ("1. a\n- x\n2. b", vec![(None, false, "a\n- x"), (None, false, "b")]),
            (
                "1. a\n```\n2. no step\n```\n2. b",
                vec![(None, false, "a\n```\n2. no step\n```"), (None, false, "b")],
            ),
            ("1. [FAST] [DEEP] a", vec![(fast, false, "[DEEP] a")]),
            ("1. a\n1.5 times\n-x\n2026", vec![(None, false, "a\n1.5 times\n-x\n2026")]),
            ("1. [SLOW] a", vec![(None, false, "[SLOW] a")]),
            ("1.\n  later", vec![(None, false, "later")]),
        ] {
            let expected: Vec<_> =
                expected.into_iter().map(|(to, done, text)| (to, done, text.to_owned())).collect();
            assert_eq!(steps(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_stands_before_and_above_is_said_with_each_step() {
        let tasks = Tasks::parse("# Plan\n- be brief\n\n1. a\n## Then\nslowly\n\n2. b\n   c\n").unwrap();
        let said: Vec<String> = tasks.steps.iter().map(|step| tasks.said(step)).collect();
        assert_eq!(said, ["# Plan\n- be brief\n\na", "# Plan\n- be brief\n\n## Then\nslowly\n\nb\n   c"]);
        assert_eq!((tasks.steps[1].line, tasks.steps[1].title()), (8, "b"));
    }

    #[test]
    fn what_is_no_list_says_so() {
        let error = |text: &str| Tasks::parse(text).unwrap_err();
        assert_eq!(error(""), TasksError::None);
        assert!(error("Do it.\n  1. indented").to_string().contains("1. [FAST] Rename"));
        assert_eq!(error("1. a\n2. [FAST]\n"), TasksError::Empty(2));
        assert_eq!(error(&"1. a\n".repeat(TASKS_STEPS_MAX + 1)), TasksError::Many);
        assert_eq!(error(&" ".repeat(TASKS_BYTES_MAX + 1)), TasksError::Long(TASKS_BYTES_MAX + 1));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_list_or_an_error(text in "([0-9]{1,3}[.)]|[-*+#]|\\[(x| |FAST|deep)\\]|```|~~~|[ \ta-zé\u{0}\n]){0,60}") {
            if let Ok(tasks) = Tasks::parse(&text) {
                proptest::prop_assert!(tasks.steps.iter().all(|step| !step.text.trim().is_empty()));
            }
        }
    }
}
