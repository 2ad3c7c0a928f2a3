//! JSON schemas as the TypeScript-like declarations on which gpt-oss was trained, down to their odd
//! indentation.

use crate::limits::JSON_DEPTH_MAX;
use serde_json::Value;

/// The type of a schema. Lines after the first begin with `indent`.
pub(super) fn type_of(schema: &Value, indent: &str) -> String {
    if indent.len() > JSON_DEPTH_MAX * 4 {
        return "any".into();
    }
    if let Some(variants) = schema["oneOf"].as_array() {
        return variants
            .iter()
            .map(|variant| format!("\n{indent} | {}", variant_line(variant, indent, None)))
            .collect();
    }
    if let Some(kinds) = schema["type"].as_array() {
        let names: Vec<&str> = kinds.iter().filter_map(Value::as_str).map(simple_name).collect();
        return names.join(" | ");
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, indent),
        Some("string") => string(schema),
        Some("array") if schema["items"].is_null() => "Array<any>".into(),
        Some("array") => type_of(&schema["items"], indent) + "[]",
        Some(kind @ ("number" | "integer" | "boolean")) => simple_name(kind).into(),
        Some(_) | None => "any".into(),
    }
}

fn simple_name(kind: &str) -> &str {
    if kind == "integer" { "number" } else { kind }
}

fn string(schema: &Value) -> String {
    let values = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let values: Vec<String> = values.map(|value| format!("\"{value}\"")).collect();
    if values.is_empty() { "string".into() } else { values.join(" | ") }
}

fn nullable_type(schema: &Value, indent: &str) -> String {
    let name = type_of(schema, indent);
    let nullable = schema["nullable"] == true && !name.contains("null");
    if nullable { name + " | null" } else { name }
}

fn object(schema: &Value, indent: &str) -> String {
    let mut text = comment(&schema["description"], indent);
    text.push_str("{\n");
    let required = schema["required"].as_array();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let mark = if required.is_some_and(|names| names.iter().any(|n| n == name)) { "" } else { "?" };
        text.push_str(&property_lines(&format!("{name}{mark}"), property, indent));
    }
    text + indent + "}"
}

fn comment(text: &Value, indent: &str) -> String {
    text.as_str().map(|text| format!("{indent}// {text}\n")).unwrap_or_default()
}

/// A property, with what is said about it on the lines before.
fn property_lines(name: &str, property: &Value, indent: &str) -> String {
    let mut text = String::new();
    if let Some(title) = property["title"].as_str() {
        text.push_str(&format!("{indent}// {title}\n{indent}//\n"));
    }
    let variants = property["oneOf"].as_array();
    if variants.is_none() {
        text.push_str(&comment(&property["description"], indent));
    }
    let examples: Vec<&Value> = property["examples"].as_array().into_iter().flatten().collect();
    if !examples.is_empty() {
        text.push_str(&format!("{indent}// Examples:\n"));
    }
    for example in examples.into_iter().filter_map(Value::as_str) {
        text.push_str(&format!("{indent}// - \"{example}\"\n"));
    }
    match variants {
        Some(variants) => text + &union_lines(name, property, variants, indent),
        None => {
            let default = default_of(property).map(|d| format!(" // {d}")).unwrap_or_default();
            text + &format!(
                "{indent}{name}: {},{default}\n",
                nullable_type(property, &format!("{indent}    "))
            )
        }
    }
}

/// A property of several types, each on its line.
fn union_lines(name: &str, property: &Value, variants: &[Value], indent: &str) -> String {
    let description = property["description"].as_str();
    let repeats =
        description.is_some() && variants.first().is_some_and(|v| v["description"].as_str() == description);
    let mut text = if repeats { String::new() } else { comment(&property["description"], indent) };
    if let Some(default) = default_of(property) {
        text.push_str(&format!("{indent}// {default}\n"));
    }
    text.push_str(&format!("{indent}{name}:\n"));
    for (at, variant) in variants.iter().enumerate() {
        // What is said above is not said again, and the first variant then says nothing.
        let said = if at == 0 && description.is_some() && !repeats {
            variant["description"].as_str()
        } else {
            description
        };
        text.push_str(&format!("{indent} | {}\n", variant_line(variant, indent, said)));
    }
    text + indent + ",\n"
}

/// One of several types, with what is said about it behind, unless that is `said` already.
fn variant_line(variant: &Value, indent: &str, said: Option<&str>) -> String {
    let mut line = nullable_type(variant, &format!("{indent}   "));
    let description = variant["description"].as_str().filter(|text| Some(*text) != said);
    let notes: Vec<String> = description.map(str::to_owned).into_iter().chain(default_of(variant)).collect();
    if !notes.is_empty() {
        line.push_str(&format!(" // {}", notes.join(" ")));
    }
    line
}

/// The default of a schema; that of an enumeration stands without quotes.
fn default_of(schema: &Value) -> Option<String> {
    let enumeration = schema["enum"].as_array().is_some_and(|values| !values.is_empty());
    match schema.get("default")? {
        Value::String(text) if enumeration => Some(format!("default: {text}")),
        Value::String(text) => Some(format!("default: \"{text}\"")),
        other => Some(format!("default: {other}")),
    }
}
