//! The JSON schema that editors check a configuration file with.

use super::{KEYS, Key, Kind};
use serde_json::{Map, Value, json};

pub fn json_schema() -> Value {
    let mut root = folder();
    for key in KEYS {
        let parts: Vec<&str> = key.path.split('.').collect();
        place(&mut root, &parts, key);
    }
    // A profile says what the file itself can say.
    let profile = root.clone();
    root["properties"]["profiles"] = json!({"type": "object", "additionalProperties": profile});
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    root["title"] = "Flint's configuration".into();
    root
}

fn folder() -> Value {
    json!({"type": "object", "properties": {}, "additionalProperties": false})
}

fn place(folder_of: &mut Value, parts: &[&str], key: &Key) {
    let (Some((first, rest)), Some(fields)) = (parts.split_first(), folder_of.as_object_mut()) else {
        return;
    };
    let field = if rest.is_empty() { describe(key) } else { folder() };
    let inner = match *first {
        "*" => {
            let inner = fields.entry("additionalProperties").or_insert(Value::Bool(false));
            if inner == &Value::Bool(false) {
                *inner = field;
            }
            inner
        }
        name => {
            let properties = fields.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            let Some(properties) = properties.as_object_mut() else { return };
            properties.entry(name).or_insert(field)
        }
    };
    place(inner, rest, key);
}

fn describe(key: &Key) -> Value {
    let mut schema = match key.kind {
        Kind::Text => json!({"type": "string"}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Integer { least, most } => json!({"type": "integer", "minimum": least, "maximum": most}),
        Kind::Choice(choices) => json!({"enum": choices}),
        Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
    };
    schema["description"] = key.about.into();
    schema
}
