//! JSON schemas to generate for, and a plain reading of what they mean.
#![allow(dead_code, reason = "each test file uses its own part")]

use crate::common::Random;
use regex_automata::meta::Regex;
use serde_json::{Map, Value, json};

/// Fifty schemas whose values are short.
pub fn schemas() -> Vec<Value> {
    include_str!("schemas.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The schema of this number: the higher it is, the more properties it has, and the deeper they nest.
pub fn grown(number: usize) -> Value {
    object_of(1 + number / 12, number % 4, &mut Random(number as u64))
}

fn object_of(count: usize, depth: usize, random: &mut Random) -> Value {
    const NAMES: [&str; 8] =
        ["file_name", "line_number", "is_enabled", "description", "kind", "tags", "owner", "retry_count"];
    let name = |at: usize| match at / NAMES.len() {
        0 => NAMES[at].to_owned(),
        round => format!("{}_{round}", NAMES[at % NAMES.len()]),
    };
    let properties: Map<String, Value> =
        (0..count).map(|at| (name(at), property(depth.saturating_sub(at), random))).collect();
    let required: Vec<String> = properties.keys().cloned().collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn property(depth: usize, random: &mut Random) -> Value {
    if depth > 0 {
        return object_of(1 + random.below(3) as usize, depth - 1, random);
    }
    match random.below(7) {
        0 => json!({"type": "string", "maxLength": 6 + random.below(8)}),
        1 => json!({"type": "integer", "minimum": 0, "maximum": 10 + random.below(9990)}),
        2 => json!({"type": "boolean"}),
        3 => json!({"enum": ["insert_before", "replace_whole_line", "delete", null]}),
        4 => {
            json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3})
        }
        5 => json!({"type": "string", "pattern": "^[a-z]{2,5}-[0-9]{1,3}$"}),
        _ => json!({"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 5}]}),
    }
}

/// Whether the value fits the schema; only keywords of `schemas` are known.
pub fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else { return schema != &Value::Bool(false) };
    keywords.iter().all(|(keyword, limit)| {
        let each = |schema: &Value| fits(root, schema, value);
        let parts = || limit.as_array().unwrap().iter();
        match keyword.as_str() {
            "type" => limit.as_array().map_or_else(|| is(limit, value), |l| l.iter().any(|t| is(t, value))),
            "const" => value == limit,
            "enum" => parts().any(|choice| choice == value),
            "anyOf" => parts().any(each),
            "allOf" => parts().all(each),
            "oneOf" => parts().filter(|schema| each(schema)).count() == 1,
            "$ref" => each(root.pointer(&limit.as_str().unwrap()[1..]).unwrap()),
            "required" => {
                value.as_object().is_none_or(|o| parts().all(|k| o.contains_key(k.as_str().unwrap())))
            }
            _ => {
                number(keyword, limit, value)
                    && text(keyword, limit, value)
                    && list(root, keywords, keyword, value)
                    && object(root, keywords, keyword, value)
            }
        }
    })
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type is called {other}"),
    }
}

fn number(keyword: &str, limit: &Value, value: &Value) -> bool {
    let (Some(limit), Some(number)) = (limit.as_f64(), value.as_f64()) else { return true };
    match keyword {
        "minimum" => number >= limit,
        "maximum" => number <= limit,
        "exclusiveMinimum" => number > limit,
        "exclusiveMaximum" => number < limit,
        "multipleOf" => number % limit == 0.0,
        _ => true,
    }
}

fn text(keyword: &str, limit: &Value, value: &Value) -> bool {
    let Some(text) = value.as_str() else { return true };
    let matches = |pattern: &str| Regex::new(pattern).unwrap().is_match(text);
    match (keyword, limit.as_u64(), limit.as_str()) {
        ("minLength", Some(limit), _) => text.chars().count() as u64 >= limit,
        ("maxLength", Some(limit), _) => text.chars().count() as u64 <= limit,
        ("pattern", _, Some(pattern)) => matches(pattern),
        ("format", _, Some("date")) => matches(r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"),
        ("format", _, Some("ipv4")) => text.parse::<std::net::Ipv4Addr>().is_ok(),
        _ => true,
    }
}

fn list(root: &Value, keywords: &Map<String, Value>, keyword: &str, value: &Value) -> bool {
    let Some(items) = value.as_array() else { return true };
    let limit = &keywords[keyword];
    let prefix = keywords.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
    match keyword {
        "minItems" => items.len() as u64 >= limit.as_u64().unwrap(),
        "maxItems" => items.len() as u64 <= limit.as_u64().unwrap(),
        "items" => items.iter().skip(prefix).all(|item| fits(root, limit, item)),
        "prefixItems" => items.iter().zip(limit.as_array().unwrap()).all(|(item, s)| fits(root, s, item)),
        _ => true,
    }
}

fn object(root: &Value, keywords: &Map<String, Value>, keyword: &str, value: &Value) -> bool {
    let Some(members) = value.as_object() else { return true };
    let limit = &keywords[keyword];
    let none = Map::new();
    let known = keywords.get("properties").and_then(Value::as_object).unwrap_or(&none);
    match keyword {
        "properties" => members.iter().all(|(k, v)| known.get(k).is_none_or(|schema| fits(root, schema, v))),
        "additionalProperties" => members.iter().all(|(k, v)| known.contains_key(k) || fits(root, limit, v)),
        _ => true,
    }
}
