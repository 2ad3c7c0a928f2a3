//! `flint`: the agent in a terminal, one session after the other until the person has enough.

use super::actions::{self, Outside};
use super::{CHANNEL, Scene, router, session, start, trust};
use crate::args::{AgentArgs, ModelArgs};
use crate::config::Config;
use crate::error::CliError;
use flint_agent::Setup;
use flint_agent::history::{self, Record};
use flint_agent::sessions::Session;
use flint_agent::talk::Order;
use flint_terminal::{Action, Ended, Setup as Face};
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc;

/// What the agent has to end in order, before it is left alone.
const GOODBYE: Duration = Duration::from_secs(2);

/// Which session.
pub enum Open {
    New,
    Resume(Option<String>),
    Fork(Option<String>),
}

pub fn terminal(
    config: &Config,
    model: &ModelArgs,
    args: &AgentArgs,
    mut open: Open,
) -> Result<(), CliError> {
    let mut args = args.clone();
    trust::ask(config, &args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(CliError::io("the agent's threads"))?;
    loop {
        let (ended, id) = runtime.block_on(one_session(config, model, &args, open))?;
        open = match ended {
            Ended::Quit | Ended::Signal => {
                println!("go on with it by: flint resume {id}");
                break;
            }
            Ended::For(Action::Resume { session }) => Open::Resume(session),
            Ended::For(Action::Fork) => Open::Fork(Some(id)),
            Ended::For(Action::Profile { name }) => {
                args.profile = name;
                Open::Resume(Some(id))
            }
            Ended::For(
                Action::Clear | Action::Agents | Action::Permissions | Action::Init | Action::Export { .. },
            ) => Open::New,
        };
    }
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(())
}

async fn one_session(
    config: &Config,
    model: &ModelArgs,
    args: &AgentArgs,
    open: Open,
) -> Result<(Ended, String), CliError> {
    let mut scene = Scene::read(config, model, args)?;
    let choices = router::choices(config, model, args, &scene, &[])?;
    let provider = router::provider(config, model, &mut scene, &choices)?;
    let (session, records) = take(config, open)?;
    let (id, face) = (session.id.clone(), face(config, &scene, &session, &records));
    let mut outside = Outside::new(config, &scene, &id);
    let setup = Setup { records, tells_past: true, ..scene.setup(config, provider, session)? };
    let mut setup = router::with(choices, setup);
    setup.crew.stays = true;
    outside.crew = setup.crew.clone();
    let (agent, orders, events) = start(setup);
    let (requests, asked) = mpsc::channel(CHANNEL);
    let helper = tokio::spawn(actions::answer(outside, asked, orders.clone()));
    // The prompt is read while the person thinks. An agent that is gone is told by its events.
    let _ = orders.send(Order::Warm).await;
    let ended = flint_terminal::run(face, orders, events, requests).await;
    helper.abort();
    // A turn that does not end is left to the end of the process; its session is on disk.
    let _ = tokio::time::timeout(GOODBYE, agent).await;
    Ok((ended.map_err(CliError::io("the terminal"))?, id))
}

fn take(config: &Config, open: Open) -> Result<(Session, Vec<Value>), CliError> {
    match open {
        Open::New => Ok((session::new(config)?, Vec::new())),
        Open::Resume(id) => session::resume(config, id.as_deref()),
        Open::Fork(id) => session::fork(config, id.as_deref()),
    }
}

fn face(config: &Config, scene: &Scene, session: &Session, records: &[Value]) -> Face {
    let records = history::records(records);
    let said = |record: &Record| match record {
        Record::Turn { text } => Some(text.clone()),
        _ => None,
    };
    let last = history::waiting(&records).into_iter().map(|(number, _)| number).max();
    Face {
        history: records.iter().filter_map(said).collect(),
        folder: scene.folder.display().to_string(),
        colour: config.colour,
        session: Some(session.id.clone()),
        model: Some(scene.settings.model.clone()).filter(|model| !model.is_empty()),
        notices: Vec::new(),
        first_number: last.unwrap_or(0) + records.len() as u64 + 1,
        painted: None,
    }
}
