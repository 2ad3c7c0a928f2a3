//! A model that is served: its text side, its engine, and the truth about it.

use crate::holds::Holds;
use crate::limits::{CHECKED_CONSTRAINTS_MAX, GUESSED_FILES_MAX, TOOLBOOKS_MAX};
use crate::recent::Recent;
use crate::sessions::{Session, Sessions};
use crate::tail::Last;
use crate::tail::form::Forms;
use crate::tail::local::stops_of_excerpt;
use crate::toolbook::Toolbook;
use flint_engine::constrain::{BadConstraint, Constraint};
use flint_engine::supervise::Handle;
use flint_models::catalogue::{self, Entry};
use flint_open::ModelText;
use flint_text::Template;
use flint_text::parse::Format;
use flint_wire::{Raw, Tool};
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

/// Everything about one served model.
pub struct Model {
    pub name: String,
    pub text: ModelText,
    pub engine: Handle,
    pub truth: Truth,
    pub facts: Facts,
    pub sessions: Sessions,
    pub checked: Recent<Constraint, Result<(), BadConstraint>>,
    pub holds: Holds,
    pub forms: Forms,
    toolbooks: Recent<Vec<Arc<Tool>>, Toolbook>,
    files: Recent<String, Vec<u32>>,                // texts and their tokens
    stops_of_excerpt: [OnceLock<Option<usize>>; 2], // by `Last`, once it was wanted
}

/// What is really served, told with every response.
#[derive(Debug, Clone)]
pub struct Truth {
    pub sha256: String,
    pub quantisation: String,
    pub device: String,
    pub engine: String, // name and version
    pub speculation: bool,
    pub fallback: Option<String>, // what took the place of what, and why
}

/// What clients should know before they ask.
#[derive(Debug, Clone)]
pub struct Facts {
    pub title: String,
    pub context: u32, // tokens
    pub images: bool,
    pub reasoning: Vec<String>, // levels
    pub heeds_effort: bool,     // how long to think changes the prompt
    pub format: Format,
    pub fill_in_the_middle: bool,
    pub created: u64, // unix seconds
}

impl Facts {
    /// From the catalogue where the model is in it, else from what its vocabulary and template show.
    pub fn new(name: &str, text: &ModelText, context: u32, created: u64) -> Facts {
        let entry = catalogue::find(name);
        let control = |literal: &str| text.tokenizer.control_id(literal).is_some();
        let format = format(entry, &control);
        let template = text.template.as_ref();
        Facts {
            title: entry.map_or_else(|| name.to_owned(), |entry| entry.title.clone()),
            context: entry.map_or(context, |entry| entry.context.min(context)),
            images: false,
            reasoning: entry.map_or_else(Vec::new, |entry| entry.reasoning.clone()),
            heeds_effort: format == Format::Harmony || template.is_some_and(Template::heeds_effort),
            format,
            fill_in_the_middle: control("<|fim_prefix|>") && control("<|fim_suffix|>"),
            created,
        }
    }
}

fn format(entry: Option<&Entry>, control: &dyn Fn(&str) -> bool) -> Format {
    match entry.map(|entry| entry.tools.as_str()) {
        Some("harmony") => Format::Harmony,
        Some("llama3") => Format::Llama3,
        Some(_) => Format::Tagged,
        None if control("<|channel|>") && control("<|message|>") => Format::Harmony,
        None if control("<|python_tag|>") => Format::Llama3,
        None => Format::Tagged,
    }
}

impl Model {
    pub fn new(name: String, text: ModelText, engine: Handle, truth: Truth, facts: Facts) -> Model {
        let (sessions, holds, forms) = Default::default();
        Model {
            name,
            text,
            engine,
            truth,
            facts,
            sessions,
            checked: Recent::new(CHECKED_CONSTRAINTS_MAX),
            holds,
            forms,
            toolbooks: Recent::new(TOOLBOOKS_MAX),
            files: Recent::new(GUESSED_FILES_MAX),
            stops_of_excerpt: Default::default(),
        }
    }

    /// Lets a session rest until its conversation goes on, and those go that have rested longest.
    pub fn rest(&self, session: Session) {
        for old in self.sessions.rest(session) {
            // An engine that is down has forgotten the sequence anyway.
            let _ = self.engine.release(old.sequence);
        }
    }

    /// The tools as this model sees them.
    pub fn toolbook(&self, tools: Vec<Arc<Tool>>) -> Toolbook {
        let Ok(book) = self.toolbooks.get(tools, |tools| Ok::<_, Infallible>(Toolbook::new(tools)));
        book
    }

    /// Puts tools that are known already in the place of equal ones. Every later turn then sees at a glance that they are the
    /// same.
    pub fn hold_once(&self, tools: &mut Vec<Arc<Tool>>) {
        *tools = self.toolbook(std::mem::take(tools)).tools();
    }

    /// The tokens of a file, which a session repeats with every turn; none of one that cannot be tokenized.
    pub fn file(&self, text: String) -> Vec<u32> {
        let tokens = self.files.get(text, |text| {
            let mut tokens = Vec::new();
            self.text.tokenizer.encode_text(text, &mut tokens).map(|()| tokens)
        });
        tokens.unwrap_or_default()
    }

    /// If the end of a prompt can be rendered without its beginning: how many stops an excerpt has before it.
    pub fn stops_of_excerpt(&self, last: Last) -> Option<usize> {
        *self.stops_of_excerpt[last as usize].get_or_init(|| stops_of_excerpt(self, last))
    }

    /// What ends an answer; a hole is also full where the model would begin another file.
    pub fn stop_tokens(&self, raw: Option<&Raw>) -> Vec<u32> {
        let mut stops = self.text.stop_tokens.clone();
        if raw.is_some_and(|raw| raw.suffix.is_some()) {
            let marks = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|file_sep|>"];
            stops.extend(marks.iter().filter_map(|mark| self.text.tokenizer.control_id(mark)));
        }
        stops
    }

    /// Tokens that one sequence can have here.
    pub fn context(&self) -> u32 {
        let room = self.engine.facts().sequence_tokens_max();
        self.facts.context.min(room.try_into().unwrap_or(u32::MAX))
    }
}
