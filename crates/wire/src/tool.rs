//! The tools that a request declares.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::limits::{GRAMMAR_BYTES_MAX, NAME_BYTES_MAX, TOOLS_MAX};
use serde_json::{Value, json};
use std::sync::Arc;

/// A tool that the client runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    pub namespace: Option<String>,
    pub name: String,
    pub description: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Arguments are JSON under a schema.
    Function { parameters: Value, strict: bool },
    /// Its input is text, perhaps under a grammar in Lark's syntax.
    Custom { grammar: Option<String> },
}

/// The tools of a request, and the kinds that were left out because this server has no such tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tools {
    pub known: Vec<Arc<Tool>>,
    pub skipped: Vec<String>,
}

/// Which tools the model may or must call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Choice {
    #[default]
    Auto,
    None,
    Required,
    /// Exactly this one.
    Named(String),
}

impl Tools {
    /// Adds what `tools`, which stands at `path`, declares.
    pub fn extend(&mut self, path: &str, tools: &[Value]) -> Result<(), ApiError> {
        for (index, tool) in tools.iter().enumerate() {
            self.add(&format!("{path}[{index}]"), tool, None)?;
        }
        Ok(())
    }

    /// Adds what was declared elsewhere.
    pub fn join(&mut self, more: &Tools) -> Result<(), ApiError> {
        self.skipped.extend(more.skipped.iter().cloned());
        more.known.iter().try_for_each(|tool| self.push("tools", tool.clone()))
    }

    fn add(&mut self, path: &str, tool: &Value, namespace: Option<&str>) -> Result<(), ApiError> {
        let mut fields = Fields::at(path, tool)?;
        match fields.required_text("type")? {
            "function" => self.push(path, function(fields, namespace)?.into()),
            "custom" => self.push(path, custom(fields, namespace)?.into()),
            "namespace" if namespace.is_none() => {
                let name = name(&mut fields)?;
                let inner = fields.array("tools", TOOLS_MAX)?.unwrap_or_default();
                for (index, tool) in inner.iter().enumerate() {
                    self.add(&format!("{path}.tools[{index}]"), tool, Some(name))?;
                }
                Ok(())
            }
            other => {
                self.skipped.push(other.chars().take(NAME_BYTES_MAX).collect());
                Ok(())
            }
        }
    }

    fn push(&mut self, path: &str, tool: Arc<Tool>) -> Result<(), ApiError> {
        if self.known.len() + self.skipped.len() >= TOOLS_MAX {
            return Err(ApiError::invalid(path, format!("more than {TOOLS_MAX} tools are declared")));
        }
        // A later declaration of the same tool stands in for the earlier one.
        self.known.retain(|other| (&other.namespace, &other.name) != (&tool.namespace, &tool.name));
        self.known.push(tool);
        Ok(())
    }
}

fn name<'a>(fields: &mut Fields<'a>) -> Result<&'a str, ApiError> {
    let name = fields.short_text("name", NAME_BYTES_MAX)?.ok_or_else(|| fields.missing("name"))?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match !name.is_empty() && name.chars().all(allowed) {
        true => Ok(name),
        false => Err(fields.invalid("name", "must be letters, digits, '_', '-' and '.'")),
    }
}

fn function(mut fields: Fields<'_>, namespace: Option<&str>) -> Result<Tool, ApiError> {
    let parameters = match fields.value("parameters") {
        None => json!({"type": "object", "properties": {}}),
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(_) => return Err(fields.invalid("parameters", "must be an object: a JSON schema")),
    };
    Ok(Tool {
        namespace: namespace.map(str::to_owned),
        name: name(&mut fields)?.to_owned(),
        description: fields.text("description")?.unwrap_or_default().to_owned(),
        kind: Kind::Function { parameters, strict: fields.flag("strict")?.unwrap_or(false) },
    })
}

fn custom(mut fields: Fields<'_>, namespace: Option<&str>) -> Result<Tool, ApiError> {
    let grammar = match fields.object("format")? {
        None => None,
        Some(mut format) => match format.required_text("type")? {
            "grammar" => {
                let definition = format.short_text("definition", GRAMMAR_BYTES_MAX)?;
                definition.filter(|_| format.text("syntax").ok().flatten() == Some("lark"))
            }
            _ => None,
        },
    };
    Ok(Tool {
        namespace: namespace.map(str::to_owned),
        name: name(&mut fields)?.to_owned(),
        description: fields.text("description")?.unwrap_or_default().to_owned(),
        kind: Kind::Custom { grammar: grammar.map(str::to_owned) },
    })
}

impl Choice {
    pub fn parse(fields: &mut Fields<'_>) -> Result<Choice, ApiError> {
        let words = [("auto", Choice::Auto), ("none", Choice::None), ("required", Choice::Required)];
        match fields.value("tool_choice") {
            None => Ok(Choice::Auto),
            Some(Value::String(word)) => match words.into_iter().find(|(name, _)| name == word) {
                Some((_, choice)) => Ok(choice),
                None => Err(fields.invalid("tool_choice", "must be 'auto', 'none', 'required' or an object")),
            },
            Some(value) => Choice::object(Fields::at(fields.path("tool_choice"), value)?),
        }
    }

    /// `{"type":"function","name":..}`, or the same with the name inside `function`.
    fn object(mut fields: Fields<'_>) -> Result<Choice, ApiError> {
        let inner = fields.object("function")?;
        match fields.required_text("type")? {
            "function" | "custom" => {
                let mut named = inner.unwrap_or(fields);
                Ok(Choice::Named(name(&mut named)?.to_owned()))
            }
            "allowed_tools" => {
                let words = [("auto", Choice::Auto), ("required", Choice::Required)];
                let mode = fields.text("mode")?.unwrap_or("auto");
                let found = words.into_iter().find(|(word, _)| *word == mode);
                found
                    .map(|(_, choice)| choice)
                    .ok_or_else(|| fields.invalid("mode", "must be 'auto' or 'required'"))
            }
            _ => Err(fields.invalid("type", "must be 'function', 'custom' or 'allowed_tools'")),
        }
    }
}
