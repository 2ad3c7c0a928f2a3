//! Settings as the text of a file: what belongs together stands together, in the order of the table of keys.

use super::{KEYS, Key, Value};

/// One line of a file that is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub profile: Option<String>,
    pub path: Vec<String>, // within the profile
    pub value: Value,
    pub number: usize, // of the line that it comes from
}

impl Line {
    /// The key's whole name.
    pub fn whole(&self) -> Vec<String> {
        let profile = self.profile.iter().flat_map(|name| ["profiles".to_owned(), name.clone()]);
        profile.chain(self.path.iter().cloned()).collect()
    }

    fn table(&self) -> Vec<String> {
        let mut table = self.whole();
        table.pop();
        table
    }

    /// Where its table comes, and it in there.
    fn rank(&self) -> (usize, Vec<String>, usize) {
        let at = |path: &str| KEYS.iter().position(|key| key.path == path).unwrap_or(KEYS.len());
        let key = Key::find(&self.path).map_or("", |key| key.path);
        let table_of = |path: &'static str| path.rsplit_once('.').map_or("", |(table, _)| table);
        let table = KEYS.iter().position(|other| table_of(other.path) == table_of(key));
        (table.unwrap_or(KEYS.len()), self.table(), at(key))
    }
}

/// Keys outside of tables come first: after the head of a table they would belong to it.
pub fn file(mut lines: Vec<Line>) -> String {
    lines.sort_by_cached_key(|line| (line.profile.clone(), line.rank(), line.path.clone()));
    let (mut text, mut table) = (String::new(), Vec::new());
    for line in &lines {
        if line.table() != table {
            table = line.table();
            let names: Vec<String> = table.iter().map(|part| name(part)).collect();
            text += &format!("\n[{}]\n", names.join("."));
        }
        let key = line.path.last().map_or_else(String::new, |key| name(key));
        text += &format!("{key} = {}\n", value(&line.value));
    }
    text.trim_start().to_owned()
}

fn name(part: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match !part.is_empty() && part.chars().all(bare) {
        true => part.to_owned(),
        false => format!("\"{}\"", escaped(part)),
    }
}

fn value(value: &Value) -> String {
    match value {
        Value::Text(text) if text.contains('\n') => {
            let lines: Vec<String> = text.split('\n').map(escaped).collect();
            format!("\"\"\"\n{}\"\"\"", lines.join("\n"))
        }
        Value::Text(text) => format!("\"{}\"", escaped(text)),
        Value::Flag(flag) => flag.to_string(),
        Value::Integer(integer) => integer.to_string(),
        Value::List(list) => {
            let list: Vec<String> = list.iter().map(self::value).collect();
            format!("[{}]", list.join(", "))
        }
        // No key is of such a kind, so that none is written.
        Value::Other(_) => "\"\"".to_owned(),
    }
}

/// What JSON escapes, TOML escapes alike, and one character more.
fn escaped(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f");
    json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or_default().to_owned()
}
