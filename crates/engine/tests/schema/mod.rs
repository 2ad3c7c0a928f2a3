//! JSON schemas to generate for, and a plain reading of what they mean.
#![allow(dead_code, reason = "each test file uses its own part")]

use regex_automata::meta::Regex;
use serde_json::{Map, Value};

/// Fifty schemas whose values are short.
pub fn schemas() -> Vec<Value> {
    include_str!("schemas.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
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
