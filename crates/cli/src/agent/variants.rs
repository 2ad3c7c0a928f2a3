//! `flint exec --variants N --verify CMD`: several attempts at once, each in a copy of the folder, from one prefill. The first
//! that passes the check wins, and its files are the folder's.

use super::{Scene, session, start};
use crate::args::{ExecArgs, ModelArgs};
use crate::config::Config;
use crate::error::CliError;
use flint_agent::headless::{self, Audience, Ending, code};
use flint_agent::talk::{Event, Order};
use flint_agent::tools::Workshop;
use flint_agent::{Setup, files};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What the first attempt is given to read the prompt, before the others begin.
const WARM_TIME: Duration = Duration::from_secs(60);

/// Copies of the folder that go when this does.
struct Copies(PathBuf);

impl Drop for Copies {
    fn drop(&mut self) {
        // What cannot be removed is in the cache, where it may stay.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn run(
    config: &Config,
    model: &ModelArgs,
    args: &ExecArgs,
    mut scene: Scene,
    prompt: &str,
) -> Result<Ending, CliError> {
    let original = scene.workshop(config)?;
    let provider = scene.provider(config, model)?;
    let copies = Copies(config.cache.join("variants").join(session::fresh_id()));
    let mut setups = Vec::new();
    for number in 1..=args.variants.unwrap_or(1) {
        let folder = copies.0.join(number.to_string());
        original.copy_to(&folder).map_err(|error| CliError::Settings(error.to_string()))?;
        let mut attempt = Scene { folder, loaded: scene.loaded.clone(), settings: scene.settings.clone() };
        // The same words for all of them: what one has computed of the prompt the others find.
        attempt.settings.shown_folder = Some(scene.folder.clone());
        attempt.settings.temperature = (number > 1).then(|| 0.3 * f64::from(number.min(4)));
        setups.push(attempt.setup(config, provider.clone(), session::numbered(config, number)?)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(CliError::io("the agents' thread"))?;
    let began = Instant::now();
    let (number, ending) = runtime.block_on(race(setups, prompt, args.json))?;
    runtime.shutdown_timeout(Duration::from_millis(500));
    if ending.code == code::OK {
        take(config, &scene, &original, &copies.0.join(number.to_string()))?;
        eprintln!("variant {number} passed first, after {:.1} s", began.elapsed().as_secs_f32());
    }
    Ok(ending)
}

/// The first that passes, or the last that did not.
async fn race(setups: Vec<Setup>, prompt: &str, json: bool) -> Result<(u32, Ending), CliError> {
    let mut running = JoinSet::new();
    let mut all_orders = Vec::new();
    for (number, setup) in (1..).zip(setups) {
        let (agent, orders, mut events) = start(setup);
        all_orders.push(orders.clone());
        let mut audience = Numbered { number, json };
        if number == 1 {
            warm(&orders, &mut events, &mut audience).await?;
        }
        let (prompt, end) = (prompt.to_owned(), orders.clone());
        running.spawn(async move {
            let ending = headless::run(prompt, orders, &mut events, &mut audience).await;
            drop(events);
            let _ = end.send(Order::End).await;
            // What it could not write down, the turn has said.
            let _ = agent.await;
            (number, ending)
        });
    }
    let mut last = None;
    while let Some(ended) = running.join_next().await {
        let (number, ending) = ended.map_err(|error| CliError::Server(error.to_string()))?;
        let ending = ending.map_err(CliError::io("standard output"))?;
        let passed = ending.code == code::OK;
        last = Some((number, ending));
        if passed {
            break;
        }
    }
    for orders in all_orders {
        // Those that have ended hear nothing.
        let _ = orders.try_send(Order::Interrupt);
        let _ = orders.try_send(Order::End);
    }
    last.ok_or_else(|| CliError::Usage("there is nothing to try".to_owned()))
}

/// Until the server has read the prompt, or says why it does not.
async fn warm(
    orders: &mpsc::Sender<Order>,
    events: &mut mpsc::Receiver<Event>,
    audience: &mut Numbered,
) -> Result<(), CliError> {
    let _ = orders.send(Order::Warm).await;
    let heard = async {
        while let Some(event) = events.recv().await {
            audience.hear(&event).map_err(CliError::io("standard output"))?;
            if matches!(event, Event::Connection(_)) {
                return Ok(());
            }
        }
        Ok(())
    };
    tokio::time::timeout(WARM_TIME, heard).await.unwrap_or(Ok(()))
}

/// The winner's files become those of the folder, all or none.
fn take(config: &Config, scene: &Scene, original: &Workshop, copy: &std::path::Path) -> Result<(), CliError> {
    let won =
        Scene { folder: copy.to_owned(), loaded: scene.loaded.clone(), settings: scene.settings.clone() };
    let won = won.workshop(config)?;
    let changes = original.differences(&won).map_err(|error| CliError::Settings(error.to_string()))?;
    files::make(original.root(), &changes).map_err(|error| CliError::Settings(error.to_string()))
}

/// Says whose event it is.
struct Numbered {
    number: u32,
    json: bool,
}

impl Audience for Numbered {
    fn hear(&mut self, event: &Event) -> io::Result<()> {
        match self.json {
            true => {
                if let Some(mut line) = headless::line(event) {
                    line["variant"] = self.number.into();
                    println!("{line}");
                }
            }
            false => {
                let words = headless::words(event).map(|words| headless::plain(&words));
                words
                    .iter()
                    .flat_map(|words| words.lines())
                    .for_each(|line| eprintln!("[{}] {line}", self.number));
            }
        }
        Ok(())
    }
}
