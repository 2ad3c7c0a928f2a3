//! Commands that begin with a slash.

/// Each, with what it is called and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slash {
    Model,
    Profile,
    Fast,
    Status,
    Usage,
    Diff,
    Undo,
    Redo,
    Compact,
    Resume,
    Fork,
    Agents,
    Permissions,
    Init,
    Export,
    Clear,
    Help,
    Quit,
}

pub const ALL: [Slash; 18] = [
    Slash::Model,
    Slash::Profile,
    Slash::Fast,
    Slash::Status,
    Slash::Usage,
    Slash::Diff,
    Slash::Undo,
    Slash::Redo,
    Slash::Compact,
    Slash::Resume,
    Slash::Fork,
    Slash::Agents,
    Slash::Permissions,
    Slash::Init,
    Slash::Export,
    Slash::Clear,
    Slash::Help,
    Slash::Quit,
];

impl Slash {
    pub fn name(self) -> &'static str {
        match self {
            Slash::Model => "model",
            Slash::Profile => "profile",
            Slash::Fast => "fast",
            Slash::Status => "status",
            Slash::Usage => "usage",
            Slash::Diff => "diff",
            Slash::Undo => "undo",
            Slash::Redo => "redo",
            Slash::Compact => "compact",
            Slash::Resume => "resume",
            Slash::Fork => "fork",
            Slash::Agents => "agents",
            Slash::Permissions => "permissions",
            Slash::Init => "init",
            Slash::Export => "export",
            Slash::Clear => "clear",
            Slash::Help => "help",
            Slash::Quit => "quit",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Slash::Model => "choose the model, or name it: /model NAME",
            Slash::Profile => "go on with another profile: /profile NAME",
            Slash::Fast => "be served sooner at a higher price: /fast on, /fast off",
            Slash::Status => "ask the server what it serves, how, and what is ignored",
            Slash::Usage => "tokens and time of each turn",
            Slash::Diff => "all changes to files in this session",
            Slash::Undo => "see what the last turn did, then take it back",
            Slash::Redo => "take an undo back",
            Slash::Compact => "make the conversation short",
            Slash::Resume => "take an earlier session up",
            Slash::Fork => "go on in a copy of this session",
            Slash::Agents => "other agents: /agents NAME TASK, /agents stop ID",
            Slash::Permissions => "what needs no further yes",
            Slash::Init => "write an AGENTS.md for this folder",
            Slash::Export => "write the conversation to a file: /export FILE",
            Slash::Clear => "begin a new session",
            Slash::Help => "keys and commands",
            Slash::Quit => "end the program",
        }
    }
}

/// What a line that begins with a slash means.
#[derive(Debug, PartialEq, Eq)]
pub enum Read<'a> {
    Command(Slash, &'a str),
    Unknown(&'a str),
    /// No command: a path, say, or text.
    Text,
}

pub fn read(text: &str) -> Read<'_> {
    let Some(line) = text.strip_prefix('/').filter(|line| !line.contains('\n')) else { return Read::Text };
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return Read::Text;
    }
    match ALL.into_iter().find(|slash| slash.name() == name) {
        Some(slash) => Read::Command(slash, rest.trim()),
        None => Read::Unknown(name),
    }
}

/// Those that what is typed so far could become.
pub fn completions(text: &str) -> Vec<Slash> {
    match text.strip_prefix('/') {
        Some(begun) => ALL.into_iter().filter(|slash| slash.name().starts_with(begun)).collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        for (text, expected) in [
            ("/model x y ", Read::Command(Slash::Model, "x y")),
            ("/quit", Read::Command(Slash::Quit, "")),
            ("/modle", Read::Unknown("modle")),
            ("/etc/hosts is", Read::Text),
            ("/", Read::Text),
            ("/help\nme", Read::Text),
            ("help", Read::Text),
        ] {
            assert_eq!(read(text), expected, "{text:?}");
        }
        assert_eq!(completions("/re"), [Slash::Redo, Slash::Resume]);
        assert_eq!(completions("/").len(), ALL.len());
        assert!(completions("re").is_empty() && completions("/model x").is_empty());
    }
}
