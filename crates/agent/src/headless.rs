//! The agent without a terminal: one turn, its events as lines of JSON or as words, and an exit code.

use crate::talk::{
    Asked, Connection, Decision, Event, Failure, Figures, FileKind, Item, Order, Outcome, Progress, Question,
    Routed, Share, State, StepState, What,
};
use serde_json::{Value, json};
use std::io::{self, Write};
use tokio::sync::mpsc;

/// How a turn ended, for who started the program.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    pub code: u8,
    pub message: String, // the last of the model
    pub figures: Figures,
    pub trouble: Option<String>,
}

/// Exit codes.
pub mod code {
    pub const OK: u8 = 0;
    pub const FAILED: u8 = 1;
    pub const MODEL: u8 = 4;
    pub const APPROVAL: u8 = 5;
    pub const VERIFY: u8 = 6;
    pub const TIMEOUT: u8 = 124;
    pub const INTERRUPTED: u8 = 130;
}

/// Where a turn is told.
pub trait Audience {
    fn hear(&mut self, event: &Event) -> io::Result<()>;
}

/// Events as lines of JSON, as the Codex CLI writes them.
#[derive(Debug)]
pub struct Lines<W>(pub W);

/// What happens, in words.
#[derive(Debug)]
pub struct Words<W>(pub W);

/// Sends the prompt and hears the turn to its end. Who interrupts sends `Order::Interrupt` by the same channel.
pub async fn run(
    prompt: String,
    orders: mpsc::Sender<Order>,
    events: &mut mpsc::Receiver<Event>,
    audience: &mut (dyn Audience + Send),
) -> io::Result<Ending> {
    let (mut message, mut needs, mut again) = (String::new(), None, false);
    // An agent that is gone closes its events too.
    let _ = orders.send(Order::Submit { text: prompt }).await;
    while let Some(event) = events.recv().await {
        audience.hear(&event)?;
        match event {
            Event::ItemEnded(Item { what: What::Message { text }, .. }) => message = text,
            Event::Asked(question) => {
                let how =
                    "run it in the terminal, give a rule there, or use `-a never` or another sandbox_mode";
                needs = Some(Failure::NeedsApproval { what: asked(&question), how: how.to_owned() });
                let decision = Decision::No { why: Some("there is nobody to ask".to_owned()) };
                let _ = orders.send(Order::Decide { item: question.item, decision }).await;
                let _ = orders.send(Order::Interrupt).await;
            }
            Event::Routed { how: Routed::Escalated, .. } => again = true,
            // Another turn follows by itself, and how that one ends counts.
            Event::TurnEnded { .. } if again => (again, message) = (false, String::new()),
            Event::TurnEnded { outcome, figures } => {
                let outcome = needs.map_or(outcome, |error| Outcome::Failed { error });
                return Ok(ending(outcome, message, *figures));
            }
            _ => {}
        }
    }
    let error = Failure::Turn("the agent ended before the turn".to_owned());
    Ok(ending(Outcome::Failed { error }, message, Figures::default()))
}

fn asked(question: &Question) -> String {
    let what = match &question.what {
        Asked::Command { shown, .. } => format!("the command `{shown}`"),
        Asked::Files { changes } => {
            let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
            format!("the change of {}", paths.join(", "))
        }
    };
    match &question.who {
        Some(agent) => format!("{what} of the agent {agent}"),
        None => what,
    }
}

fn ending(outcome: Outcome, message: String, figures: Figures) -> Ending {
    let (code, trouble) = match outcome {
        Outcome::Done => (code::OK, None),
        Outcome::Interrupted => (code::INTERRUPTED, Some("interrupted".to_owned())),
        Outcome::Failed { error } => {
            let code = match &error {
                Failure::Turn(_) => code::FAILED,
                Failure::Model(_) => code::MODEL,
                Failure::NeedsApproval { .. } => code::APPROVAL,
                Failure::Verify(_) => code::VERIFY,
            };
            (code, Some(error.to_string()))
        }
    };
    Ending { code, message, figures, trouble }
}

impl<W: Write> Audience for Lines<W> {
    fn hear(&mut self, event: &Event) -> io::Result<()> {
        let Some(line) = line(event) else { return Ok(()) };
        writeln!(self.0, "{line}")?;
        self.0.flush()
    }
}

/// The line of an event, if it has one.
pub fn line(event: &Event) -> Option<Value> {
    let of_item = |kind: &str, item: &Item| self::item(item).map(|item| json!({"type": kind, "item": item}));
    match event {
        Event::Began { session } => Some(json!({"type": "thread.started", "thread_id": session})),
        Event::TurnBegan => Some(json!({"type": "turn.started"})),
        Event::ItemBegan(item) => of_item("item.started", item),
        Event::ItemEnded(item) => of_item("item.completed", item),
        Event::TurnEnded { outcome, figures } => Some(turn_end(outcome, figures)),
        Event::Connection(Connection::Lost { why }) => Some(json!({"type": "error", "message": why})),
        Event::Sent { text, state: State::Failed { why }, .. } => {
            Some(json!({"type": "error", "message": format!("{text:?} was not said: {why}")}))
        }
        Event::Notice { text } => Some(json!({"type": "flint.notice", "message": text})),
        Event::Routed { profile, model, why, how } => Some(json!({
            "type": "flint.routed", "profile": profile, "model": model, "why": why, "how": routed(*how)})),
        Event::Connection(_)
        | Event::ItemGrew { .. }
        | Event::Asked(_)
        | Event::Sent { .. }
        | Event::Previewed { .. }
        | Event::Rewound { .. }
        | Event::Compacted { .. }
        | Event::Probed(_)
        | Event::Counted(_) => None,
    }
}

/// What a turn took is told however it ended.
fn turn_end(outcome: &Outcome, figures: &Figures) -> Value {
    let (kind, error) = match outcome {
        Outcome::Done => ("turn.completed", None),
        Outcome::Interrupted => ("turn.failed", Some("interrupted".to_owned())),
        Outcome::Failed { error } => ("turn.failed", Some(error.to_string())),
    };
    let mut line = json!({"type": kind, "usage": usage(figures), "flint": self::figures(figures)});
    if let Some(message) = error {
        line["error"] = json!({"message": message});
    }
    line
}

fn item(item: &Item) -> Option<Value> {
    let mut json = match &item.what {
        What::Said { .. } => return None,
        What::Message { text } => json!({"type": "agent_message", "text": text}),
        What::Reasoning { text } => json!({"type": "reasoning", "text": text}),
        What::Command { command, output, code, progress, .. } => json!({
            "type": "command_execution", "command": command, "aggregated_output": output, "exit_code": code,
            "status": status(*progress)}),
        What::Files { changes, progress } => {
            let change =
                |change: &crate::talk::FileChange| json!({"path": change.path, "kind": kind(&change.kind)});
            let changes: Vec<Value> = changes.iter().map(change).collect();
            json!({"type": "file_change", "changes": changes, "status": status(*progress)})
        }
        What::Look { tool, about, output, progress } => json!({
            "type": "flint_tool_call", "tool": tool, "about": about, "output": output, "status": status(*progress)}),
        What::Agent { name, task, report, figures, progress } => json!({
            "type": "collab_tool_call", "agent": name, "task": task, "report": report, "status": status(*progress),
            "usage": usage(figures), "flint": self::figures(figures)}),
        What::Plan { steps } => {
            let step = |step: &crate::talk::Step| json!({"text": step.text, "completed": step.state == StepState::Done});
            json!({"type": "todo_list", "items": steps.iter().map(step).collect::<Vec<_>>()})
        }
        What::Trouble { message } => json!({"type": "error", "message": message}),
    };
    json["id"] = item.id.as_str().into();
    Some(json)
}

fn routed(how: Routed) -> &'static str {
    match how {
        Routed::Suggested => "suggested",
        Routed::Chosen => "chosen",
        Routed::Escalated => "escalated",
    }
}

/// What the router did, in a line.
pub fn routed_words(profile: &str, model: &str, why: &str, how: Routed) -> String {
    let profile = if profile.is_empty() { "the settings" } else { profile };
    let model = if model.is_empty() { "the server's own model" } else { model };
    let verb = match how {
        Routed::Suggested => "would take",
        Routed::Chosen => "takes",
        Routed::Escalated => "goes on with",
    };
    format!("the router {verb} {profile} ({model}): {why}")
}

fn status(progress: Progress) -> &'static str {
    match progress {
        Progress::Running => "in_progress",
        Progress::Done => "completed",
        Progress::Failed => "failed",
        Progress::Declined => "declined",
    }
}

fn kind(kind: &FileKind) -> &'static str {
    match kind {
        FileKind::Added => "add",
        FileKind::Deleted => "delete",
        FileKind::Updated | FileKind::Moved { .. } => "update",
    }
}

fn usage(figures: &Figures) -> Value {
    json!({"input_tokens": figures.tokens_in, "cached_input_tokens": figures.tokens_cached,
        "output_tokens": figures.tokens_out, "reasoning_output_tokens": figures.tokens_reasoning})
}

/// What Codex has no place for.
fn figures(figures: &Figures) -> Value {
    let served = figures.served.as_ref();
    json!({
        "model_asked": served.map(|served| &served.asked), "model_served": served.map(|served| &served.model),
        "weights_sha256": served.and_then(|served| served.digest.as_ref()),
        "device": served.and_then(|served| served.device.as_ref()),
        "requests": figures.requests, "seconds": figures.took.as_secs_f64(),
        "first_token_ms": figures.first_token.map(|time| time.as_secs_f64() * 1e3),
        "tokens_per_second": figures.tokens_a_second,
        "agents": figures.agents.iter().map(share).collect::<Vec<_>>(),
    })
}

/// What another agent took.
fn share(share: &Share) -> Value {
    let served = share.figures.served.as_ref();
    json!({"id": share.id, "agent": share.name, "usage": usage(&share.figures),
        "model_served": served.map(|served| &served.model), "seconds": share.figures.took.as_secs_f64()})
}

impl<W: Write> Audience for Words<W> {
    fn hear(&mut self, event: &Event) -> io::Result<()> {
        let Some(words) = words(event) else { return Ok(()) };
        writeln!(self.0, "{}", plain(&words))?;
        self.0.flush()
    }
}

/// An event in words, if there are any for it.
pub fn words(event: &Event) -> Option<String> {
    match event {
        Event::ItemBegan(Item { what: What::Command { command, .. }, .. }) => Some(format!("$ {command}")),
        Event::ItemBegan(Item { what: What::Agent { name, task, .. }, .. }) => {
            Some(format!("{name} begins: {task}"))
        }
        Event::ItemGrew { .. } => None,
        Event::ItemEnded(item) => ended(&item.what),
        Event::Notice { text } => Some(format!("note: {text}")),
        Event::Routed { profile, model, why, how } => {
            Some(format!("note: {}", routed_words(profile, model, why, *how)))
        }
        Event::Connection(Connection::Lost { why }) => Some(format!("note: {why}")),
        Event::Connection(Connection::Requests { why }) => {
            Some(format!("note: no WebSocket, a request for each turn instead: {why}"))
        }
        Event::Compacted { .. } => Some("note: the conversation was made short".to_owned()),
        Event::TurnEnded { figures, .. } => Some(summary(figures)),
        Event::Began { .. }
        | Event::Connection(_)
        | Event::TurnBegan
        | Event::ItemBegan(_)
        | Event::Asked(_)
        | Event::Sent { .. }
        | Event::Previewed { .. }
        | Event::Rewound { .. }
        | Event::Probed(_)
        | Event::Counted(_) => None,
    }
}

fn ended(what: &What) -> Option<String> {
    match what {
        What::Said { .. } | What::Reasoning { .. } => None,
        What::Message { text } => Some(text.clone()),
        What::Command { output, code, took, progress, .. } => {
            let end = match (code, progress) {
                (_, Progress::Declined) => "not run".to_owned(),
                (Some(code), _) => format!("exit code {code}"),
                (None, _) => "ended".to_owned(),
            };
            Some(format!("{}[{end}, {:.1} s]", with_newline(output), took.as_secs_f32()))
        }
        What::Files { changes, progress } => {
            let verb = if *progress == Progress::Done { "changed" } else { "not changed:" };
            let change =
                |change: &crate::talk::FileChange| format!("{verb} {}\n{}", change.path, change.diff);
            Some(changes.iter().map(change).collect::<String>().trim_end().to_owned())
        }
        What::Look { tool, about, progress: Progress::Done, .. } => Some(format!("{tool} {about}")),
        What::Look { tool, about, output, .. } => Some(format!("{tool} {about}: {output}")),
        What::Agent { name, report, figures, .. } => Some(format!("{name}: {report}\n{}", summary(figures))),
        What::Plan { steps } => {
            let step = |step: &crate::talk::Step| {
                let mark = match step.state {
                    StepState::Open => ' ',
                    StepState::Running => '>',
                    StepState::Done => 'x',
                };
                format!("[{mark}] {}\n", step.text)
            };
            Some(steps.iter().map(step).collect::<String>().trim_end().to_owned())
        }
        What::Trouble { message } => Some(message.clone()),
    }
}

fn with_newline(text: &str) -> String {
    match text.trim_end() {
        "" => String::new(),
        text => format!("{text}\n"),
    }
}

fn summary(figures: &Figures) -> String {
    let served = figures.served.as_ref().map_or("no model", |served| &served.model);
    let cached = 100 * figures.tokens_cached / figures.tokens_in.max(1);
    let mut text = format!(
        "[{served}: {} requests, {} tokens in ({cached}% cached), {} out, {:.1} s",
        figures.requests,
        figures.tokens_in,
        figures.tokens_out,
        figures.took.as_secs_f32()
    );
    if let Some(rate) = figures.tokens_a_second {
        text += &format!(", {rate:.0} tok/s");
    }
    text + "]"
}

/// Without what a terminal would obey.
pub fn plain(text: &str) -> String {
    let harmless = |c: char| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
    text.chars().map(harmless).collect()
}
