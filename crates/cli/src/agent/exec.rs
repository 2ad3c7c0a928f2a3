//! `flint exec`: one turn without a terminal. Standard output has the result, or lines of JSON, and nothing else.

use super::{Scene, router, session, start, tasks, variants};
use crate::args::{AgentArgs, ExecArgs, ModelArgs};
use crate::config::Config;
use crate::error::CliError;
use flint_agent::Setup;
use flint_agent::headless::{self, Audience, Ending, Lines, Words, code};
use flint_agent::talk::{Event, Order};
use std::io::{self, Read, stderr, stdin, stdout};
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;

/// What a prompt may have on standard input.
const PROMPT_BYTES_MAX: u64 = 4 << 20;

pub fn exec(config: &Config, model: &ModelArgs, args: &ExecArgs) -> Result<u8, CliError> {
    if let Some(file) = &args.tasks {
        return finish(&tasks::run(config, model, args, file)?, args);
    }
    let (prompt, resumed) = match &args.command {
        Some(resume) => {
            let (id, prompt) = resume.parts();
            (prompt, Some(id))
        }
        None => (args.prompt.as_deref(), None),
    };
    let prompt = read_prompt(prompt)?;
    let schema = args.output_schema.as_deref().map(read_schema).transpose()?;
    let (mut scene, headless) = scene(config, model, args)?;
    scene.settings.schema = schema;
    if args.variants.is_some() {
        return finish(&variants::run(config, model, args, scene, &prompt)?, args);
    }
    let choices = router::choices(config, model, &headless, &scene, &[])?;
    let provider = router::provider(config, model, &mut scene, &choices)?;
    let (session, records) = match resumed {
        Some(id) => session::resume(config, id)?,
        None => (session::new(config)?, Vec::new()),
    };
    let setup = router::with(choices, Setup { records, ..scene.setup(config, provider, session)? });
    let ending = run(setup, args, async |orders, events, audience| {
        headless::run(prompt, orders, events, audience).await
    })?;
    finish(&ending, args)
}

/// What the settings and the command line say, and how the latter is to be read.
pub fn scene(config: &Config, model: &ModelArgs, args: &ExecArgs) -> Result<(Scene, AgentArgs), CliError> {
    let headless = headless_args(&args.agent);
    let mut scene = Scene::read(config, model, &headless)?;
    if let Some(verify) = &args.verify {
        scene.settings.verify = Some(verify.clone());
        scene.settings.always_verify = true;
    }
    Ok((scene, headless))
}

/// Nobody can be asked, unless somebody says that they want to know.
fn headless_args(args: &AgentArgs) -> AgentArgs {
    let mut args = args.clone();
    args.config.insert(0, "approval_policy=\"never\"".to_owned());
    args
}

/// Starts an agent, lets it work, and hears it to its end.
pub fn run(
    setup: Setup,
    args: &ExecArgs,
    work: impl AsyncFnOnce(
        mpsc::Sender<Order>,
        &mut mpsc::Receiver<Event>,
        &mut (dyn Audience + Send),
    ) -> io::Result<Ending>,
) -> Result<Ending, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(CliError::io("the agent's thread"))?;
    let mut audience: Box<dyn Audience + Send> = match args.json {
        true => Box::new(Lines(stdout())),
        false => Box::new(Words(stderr())),
    };
    let ending = runtime.block_on(async {
        let (agent, orders, mut events) = start(setup);
        let heard = work(orders.clone(), &mut events, &mut *audience);
        let ending = limited(heard, args.timeout, orders).await;
        drop(events);
        // What it could not write down, the turn has said.
        let _ = agent.await;
        ending
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    ending.map_err(CliError::io("standard output"))
}

/// Ctrl-C and the time limit interrupt the turn; it ends in order, or soon after without.
async fn limited(
    heard: impl Future<Output = std::io::Result<Ending>>,
    timeout_s: Option<u64>,
    orders: mpsc::Sender<Order>,
) -> std::io::Result<Ending> {
    let limit = Duration::from_secs(timeout_s.unwrap_or(u64::MAX / 4));
    let mut heard = std::pin::pin!(heard);
    let code = tokio::select! {
        ending = &mut heard => return ending,
        () = tokio::time::sleep(limit) => code::TIMEOUT,
        _ = tokio::signal::ctrl_c() => code::INTERRUPTED,
    };
    let _ = orders.try_send(Order::Interrupt);
    let ended = tokio::time::timeout(Duration::from_secs(5), heard).await;
    let trouble = match code {
        code::TIMEOUT => format!("it took longer than {} s", limit.as_secs()),
        _ => "interrupted".to_owned(),
    };
    let (message, figures) = match ended {
        Ok(Ok(ending)) => (ending.message, ending.figures),
        _ => Default::default(),
    };
    Ok(Ending { code, message, figures, trouble: Some(trouble) })
}

fn finish(ending: &Ending, args: &ExecArgs) -> Result<u8, CliError> {
    if let Some(path) = &args.output_last_message {
        std::fs::write(path, &ending.message).map_err(CliError::io(path.display().to_string()))?;
    }
    if !args.json && ending.code == code::OK {
        println!("{}", ending.message);
    }
    if let Some(trouble) = &ending.trouble {
        eprintln!("flint: {trouble}");
    }
    Ok(ending.code)
}

fn read_prompt(given: Option<&str>) -> Result<String, CliError> {
    let text = match given {
        Some(text) if text != "-" => text.to_owned(),
        _ => {
            let mut text = String::new();
            let read = stdin().take(PROMPT_BYTES_MAX).read_to_string(&mut text);
            read.map_err(CliError::io("standard input"))?;
            text
        }
    };
    match text.trim() {
        "" => {
            Err(CliError::Usage("there is no prompt: give one, or - and write it to standard input".into()))
        }
        text => Ok(text.to_owned()),
    }
}

fn read_schema(path: &Path) -> Result<serde_json::Value, CliError> {
    let text = std::fs::read(path).map_err(CliError::io(path.display().to_string()))?;
    let read = serde_json::from_slice(&text);
    read.map_err(|error| CliError::Usage(format!("{}: not JSON: {error}", path.display())))
}
