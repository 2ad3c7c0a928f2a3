//! What the terminal asks for that is no order to the agent: sessions, profiles, rules, a transcript.

use super::{Scene, session};
use crate::config::Config;
use flint_agent::approve::Book;
use flint_agent::hands::Crew;
use flint_agent::history::{self, Record, text_of};
use flint_agent::sessions::{Listed, Sessions};
use flint_agent::talk::Order;
use flint_terminal::{Action, Choice, Reply, Request};
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::time::SystemTime;
use tokio::sync::mpsc;

/// What is looked at besides the agent.
pub struct Outside {
    sessions: Option<Sessions>,
    session: String,
    folder: PathBuf,
    project: PathBuf,
    book: Book,
    profiles: Vec<String>,
    rights: String,
    pub crew: Crew,
}

/// Sessions that are offered.
const OFFERED: usize = 50;

const INIT: &str = "Look at this repository: what it is, how it is built and tested, how its code is laid out and written. Then \
write AGENTS.md at its root: at most 60 lines that a newcomer needs.";

impl Outside {
    pub fn new(config: &Config, scene: &Scene, session: &str) -> Outside {
        Outside {
            sessions: session::all(config).ok(),
            session: session.to_owned(),
            folder: scene.folder.clone(),
            project: scene.loaded.project.clone(),
            book: Book::new(config.data.join("rules.jsonl")),
            profiles: scene.loaded.profiles.clone(),
            crew: Crew::default(),
            rights: format!(
                "approval_policy: {}\nsandbox_mode: {:?}\nnetwork: {}\nthe project is {}\n",
                scene.settings.approvals,
                scene.settings.sandbox,
                if scene.settings.network { "on" } else { "off" },
                if scene.loaded.trusted {
                    "trusted: its settings count"
                } else {
                    "not trusted: its settings are not read"
                },
            ),
        }
    }

    fn reply(&self, action: Action) -> Reply {
        match action {
            Action::Profile { name: Some(_) } | Action::Clear | Action::Fork => Reply::Leave(action),
            Action::Profile { name: None } => self.profiles(),
            Action::Resume { session: Some(_) } => Reply::Leave(action),
            Action::Resume { session: None } => self.resumable(),
            Action::Agents => self.agents(),
            Action::Permissions => self.permissions(),
            Action::Init => Reply::Notice("AGENTS.md is being written".to_owned()),
            Action::Export { file } => self.export(file),
        }
    }

    fn profiles(&self) -> Reply {
        if self.profiles.is_empty() {
            return Reply::Notice(
                "there are no profiles: make a table [profiles.NAME] in config.toml".to_owned(),
            );
        }
        let choice = |name: &String| Choice {
            label: name.clone(),
            about: String::new(),
            action: Action::Profile { name: Some(name.clone()) },
        };
        Reply::Choose { title: "Profiles".to_owned(), choices: self.profiles.iter().map(choice).collect() }
    }

    fn resumable(&self) -> Reply {
        let listed = self.sessions.as_ref().map(Sessions::list);
        let listed = match listed {
            Some(Ok(listed)) => listed,
            Some(Err(error)) => return Reply::Notice(error.to_string()),
            None => Vec::new(),
        };
        let others = listed.into_iter().filter(|one| one.id != self.session).take(OFFERED);
        let choices: Vec<Choice> = others.map(|one| self.choice(&one)).collect();
        match choices.is_empty() {
            true => Reply::Notice("there is no other session".to_owned()),
            false => Reply::Choose { title: "Sessions".to_owned(), choices },
        }
    }

    fn choice(&self, listed: &Listed) -> Choice {
        let ago = SystemTime::now().duration_since(listed.changed).unwrap_or_default().as_secs() / 60;
        let about = format!("{ago} minutes ago, {} KiB", listed.bytes.div_ceil(1024));
        let records = self.sessions.as_ref().and_then(|sessions| sessions.look(&listed.id).ok());
        let first = records.iter().flatten().find_map(|record| record["text"].as_str());
        let label = first.unwrap_or(&listed.id).lines().next().unwrap_or_default().to_owned();
        Choice { label, about, action: Action::Resume { session: Some(listed.id.clone()) } }
    }

    fn agents(&self) -> Reply {
        let none = "There are none: write one as .flint/agents/NAME.toml, or agents/NAME.toml beside config.toml,\n\
                    with a description and developer_instructions.\n";
        Reply::Page { title: "Agents".to_owned(), text: self.crew.board.told(&self.crew.roles, none) }
    }

    fn permissions(&self) -> Reply {
        let mut text = self.rights.clone();
        let now = SystemTime::now();
        match self.book.load(&self.project, now) {
            Ok((rules, _)) if rules.is_empty() => text += "\nNo rule is kept for this project.\n",
            Ok((rules, _)) => {
                text += "\nRules kept for this project:\n";
                text.extend(rules.iter().map(|rule| format!("- {}\n", rule.told(now))));
            }
            Err(error) => text += &format!("\n{error}\n"),
        }
        Reply::Page { title: "Permissions".to_owned(), text }
    }

    /// The conversation as Markdown. A file that is there stays.
    fn export(&self, file: Option<String>) -> Reply {
        let name = file.unwrap_or_else(|| format!("flint-{}.md", self.session));
        let path = self.folder.join(name);
        let records = self.sessions.as_ref().and_then(|sessions| sessions.look(&self.session).ok());
        let text = markdown(&history::records(&records.unwrap_or_default()));
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        Reply::Notice(match written {
            Ok(()) => format!("written to {}", path.display()),
            Err(error) => format!("{}: {error}", path.display()),
        })
    }
}

fn markdown(records: &[Record]) -> String {
    let mut text = String::new();
    for record in records {
        match record {
            Record::Turn { text: said } => text += &format!("## {said}\n\n"),
            Record::Item { item } if item["role"] == "assistant" => text += &format!("{}\n\n", text_of(item)),
            Record::Fact { fact } => text += &format!("- {fact}\n\n"),
            _ => {}
        }
    }
    text
}

/// Answers one request after the other.
pub async fn answer(outside: Outside, mut requests: mpsc::Receiver<Request>, orders: mpsc::Sender<Order>) {
    while let Some(Request { action, reply }) = requests.recv().await {
        if action == Action::Init {
            let _ = orders.send(Order::Submit { text: INIT.to_owned() }).await;
        }
        // Who does not wait any more needs no reply.
        let _ = reply.send(outside.reply(action));
    }
}
