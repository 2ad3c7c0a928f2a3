//! Bounds the memory of a render.
//!
//! Fuel counts instructions, but one instruction can double a string. So every operation that makes new
//! text or lists pays for its size from a budget: filters and methods through wrappers, output through the
//! formatter, and the operators `+`, `*`, `~` and slicing by being compiled into calls of such wrappers.
//! Text that stands in the template itself is emitted unpaid; the fuel is set so that it stays bounded too.
//! What is not paid for is comparing: a program that builds lists of lists of itself can still waste time
//! there.

use crate::limits::{
    PROMPT_BYTES_MAX, RENDER_BYTES_MAX, TEMPLATE_FUEL_EACH, TEMPLATE_FUEL_MAX, TEMPLATE_FUEL_MIN,
    TEMPLATE_LITERAL_BYTES_MAX,
};
use minijinja::machinery::{CompiledTemplate, Instruction};
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::fmt::Write;

struct Budget {
    bytes_left: usize,
}

/// About the memory of one list or map entry.
const ENTRY_BYTES: usize = 32;

/// Takes `bytes` from the render's budget.
pub(super) fn charge(state: &mut State, bytes: usize) -> Result<(), Error> {
    let budget = state.get_or_insert_extension(Budget { bytes_left: RENDER_BYTES_MAX });
    match budget.bytes_left.checked_sub(bytes) {
        Some(left) => {
            budget.bytes_left = left;
            Ok(())
        }
        None => Err(too_much()),
    }
}

fn too_much() -> Error {
    let problem = format!("the render makes more than {RENDER_BYTES_MAX} bytes");
    Error::new(ErrorKind::InvalidOperation, problem)
}

/// About how much memory a copy of `value` would take, one level deep.
pub(super) fn size(value: &Value) -> usize {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => text.len(),
        (None, ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) => {
            value.len().unwrap_or(0).saturating_mul(ENTRY_BYTES)
        }
        (None, _) => ENTRY_BYTES,
    }
}

/// Python's `str(value)`, paid for. Lists that hold each other print far longer than they are, so the length is
/// bounded while it is written.
pub(super) fn text_of(state: &mut State, value: &Value) -> Result<String, Error> {
    let mut text = Bounded { text: String::new() };
    match value.as_str() {
        Some(plain) => text.text.push_str(plain),
        None => write!(text, "{value}").map_err(|_| too_much())?,
    }
    charge(state, text.text.len())?;
    Ok(text.text)
}

struct Bounded {
    text: String,
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        if self.text.len() + part.len() > PROMPT_BYTES_MAX {
            return Err(std::fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

/// Registers `filter` so that it pays for its input.
pub(super) fn add_filter(env: &mut Environment, name: &'static str, filter: Value) {
    env.add_filter(name, move |state: &mut State, args: Rest<Value>, named: Kwargs| {
        charge(state, args.iter().map(size).fold(ENTRY_BYTES, usize::saturating_add))?;
        let mut args = args.0;
        if named.args().next().is_some() {
            args.push(Value::from(named));
        }
        filter.call(state, &args)
    });
}

/// Has the operators that make text or lists call the filters of the same name.
pub(super) fn meter_operators(compiled: &mut CompiledTemplate) {
    let programs = std::iter::once(&mut compiled.instructions).chain(compiled.blocks.values_mut());
    for program in programs {
        let mut at = 0;
        while let Some(instruction) = program.get_mut(at) {
            if let Some((name, operands)) = metered_operator(instruction) {
                *instruction = Instruction::ApplyFilter(name, Some(operands), UNCACHED);
            }
            at += 1;
        }
    }
}

/// Asks the interpreter to look the filter up every time instead of remembering it in a slot.
const UNCACHED: u8 = u8::MAX;

fn metered_operator(instruction: &Instruction) -> Option<(&'static str, u16)> {
    match instruction {
        Instruction::Add => Some(("+", 2)),
        Instruction::Mul => Some(("*", 2)),
        Instruction::StringConcat => Some(("~", 2)),
        Instruction::Slice => Some(("[:]", 4)),
        _ => None,
    }
}

/// The fuel for a conversation of so many messages and tools, with which also the template's own text, emitted over
/// and over, stays in bounds.
pub(super) fn fuel(compiled: &CompiledTemplate, parts: usize) -> u64 {
    let programs = std::iter::once(&compiled.instructions).chain(compiled.blocks.values());
    let instructions = programs.flat_map(|program| (0..).map_while(move |at| program.get(at)));
    let longest = instructions.filter_map(|i| match i {
        Instruction::EmitRaw(text) => Some(text.len()),
        _ => None,
    });
    let longest = longest.max().unwrap_or(0).max(1);
    let wanted = TEMPLATE_FUEL_MIN + TEMPLATE_FUEL_EACH * parts as u64;
    wanted.min(TEMPLATE_FUEL_MAX).min((TEMPLATE_LITERAL_BYTES_MAX / longest) as u64)
}
