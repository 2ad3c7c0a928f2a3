//! The made-up session.

use flint_agent::talk::{
    Connection, Context, Event, Figures, FileChange, FileKind, Item, Outcome, Progress, Served, Step,
    StepState, What,
};
use std::time::Duration;

const ANSWER: &str = "\
# A cache for the parser

The parser reads each file **twice**. I will keep what it found, by *path and time*:

1. a `Cache` with a bound,
2. one place that asks it,
3. a test that counts reads.

| file | reads before | after |
| --- | --- | --- |
| `parse.rs` | 2 | 1 |
| `main.rs` | 2 | 1 |

```rust
/// What was parsed, the oldest first.
pub struct Cache<'a> {
    entries: VecDeque<(PathBuf, Parsed<'a>)>,
    bytes: usize, // of all entries
}

impl Cache<'_> {
    pub fn get(&mut self, path: &Path) -> Option<&Parsed> {
        let found = self.entries.iter().find(|(name, _)| name == path)?;
        Some(&found.1) // a \"hit\"
    }
}
```

> Wide signs stay in line: 日本語のテキスト, 👩‍💻.

";

pub fn events() -> Vec<Event> {
    let mut events = vec![
        Event::Began { session: "made-up".to_owned() },
        Event::Connection(Connection::Open),
        Event::TurnBegan,
        item("said", What::Said { text: "Make the parser read each file once.".to_owned() }),
        Event::ItemEnded(Item { id: "plan".to_owned(), what: What::Plan { steps: plan() } }),
    ];
    events.extend(look());
    events.extend(command());
    for round in 0..20 {
        events.extend(message(round));
    }
    events.push(change());
    events.push(Event::TurnEnded { outcome: Outcome::Done, figures: figures().into() });
    events
}

fn item(id: &str, what: What) -> Event {
    Event::ItemEnded(Item { id: id.to_owned(), what })
}

fn plan() -> Vec<Step> {
    let step = |text: &str, state| Step { text: text.to_owned(), state };
    vec![
        step("read the parser", StepState::Done),
        step("write the cache", StepState::Running),
        step("count the reads in a test", StepState::Open),
    ]
}

fn look() -> Vec<Event> {
    let look = |tool: &str, about: &str| What::Look {
        tool: tool.to_owned(),
        about: about.to_owned(),
        output: "a line\n".repeat(40),
        progress: Progress::Done,
    };
    vec![item("look1", look("read", "src/parse.rs")), item("look2", look("search", "fn parse in src"))]
}

fn command() -> Vec<Event> {
    let what = |output: String, code, progress| What::Command {
        command: "cargo test parse".to_owned(),
        output,
        code,
        took: Duration::from_millis(1_234),
        progress,
    };
    let id = "command".to_owned();
    let mut events =
        vec![Event::ItemBegan(Item { id: id.clone(), what: what(String::new(), None, Progress::Running) })];
    let mut output = String::new();
    for test in 0..200 {
        let text = format!("test parse::case_{test} ... \u{1b}[32mok\u{1b}[0m\n");
        output += &text;
        events.push(Event::ItemGrew { id: id.clone(), text });
    }
    events.push(Event::ItemEnded(Item { id, what: what(output, Some(0), Progress::Done) }));
    events
}

/// A message, a word or so at a time.
fn message(round: usize) -> Vec<Event> {
    let id = format!("message{round}");
    let begin = What::Message { text: String::new() };
    let mut events = vec![Event::ItemBegan(Item { id: id.clone(), what: begin })];
    let words = ANSWER.split_inclusive([' ', '\n']);
    events.extend(words.map(|word| Event::ItemGrew { id: id.clone(), text: word.to_owned() }));
    events.push(Event::ItemEnded(Item { id, what: What::Message { text: ANSWER.to_owned() } }));
    events
}

fn change() -> Event {
    let diff = "@@ -10,3 +10,4 @@ fn main()\n let path = argument();\n-let parsed = parse(&path);\n+let mut cache = Cache::new();\n+let parsed = cache.parse(&path);\n show(parsed);\n";
    let change =
        FileChange { path: "src/main.rs".to_owned(), kind: FileKind::Updated, diff: diff.to_owned() };
    item("files", What::Files { changes: vec![change], progress: Progress::Done })
}

fn figures() -> Figures {
    let served = Served { asked: "made-up".to_owned(), model: "made-up".to_owned(), ..Served::default() };
    Figures {
        served: Some(served),
        requests: 3,
        tokens_in: 12_345,
        tokens_cached: 11_000,
        tokens_out: 2_345,
        took: Duration::from_secs(4),
        first_token: Some(Duration::from_millis(43)),
        tokens_a_second: Some(1_987.0),
        queued: Some(Duration::from_millis(1)),
        context: Context { tokens: 14_000, window: Some(131_072) },
        ..Figures::default()
    }
}
