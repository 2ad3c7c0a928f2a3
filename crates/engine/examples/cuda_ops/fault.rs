//! A kernel that writes where nothing is: the worker says so and ends, another one takes over, and the answer is whole.

use super::cuda;
use crate::common::{request, run, tokens_of};
use crate::golden_data::{Reference, files};
use flint_engine::batch::Batch;
use flint_engine::device::cuda::Cuda;
use flint_engine::load::ModelFile;
use flint_engine::message::{Base, Command as Order, Event};
use flint_engine::model::Loaded;
use flint_engine::runner::{Runner, RunnerError, RunnerFacts};
use flint_engine::step::Engine;
use flint_engine::supervise::{Options, Supervisor};
use flint_engine::worker;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const MODEL: &str = "gpt-oss-heads";
const ANSWER: u32 = 40;
const BROKEN_PASS: u32 = 12;
const PATIENCE: Duration = Duration::from_secs(20);

/// A model whose device breaks at a pass, if at any.
struct Breaking {
    loaded: Loaded<Cuda>,
    passes_left: Option<u32>,
}

impl Runner for Breaking {
    fn facts(&self) -> RunnerFacts {
        self.loaded.facts()
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), RunnerError> {
        self.passes_left = self.passes_left.map(|left| left.saturating_sub(1));
        if self.passes_left == Some(0) {
            self.loaded.device().write_outside();
        }
        self.loaded.forward(batch)
    }

    fn logits(&mut self, index: usize) -> &mut [f32] {
        self.loaded.logits(index)
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        self.loaded.copy_block(from, to);
    }
}

fn engine(path: &Path, passes_left: Option<u32>) -> Engine {
    let file = ModelFile::open(path).unwrap();
    let loaded = Loaded::new(&file, cuda().replaying().fast(), 16, &mut |_, _| ()).unwrap();
    Engine::new(Box::new(Breaking { loaded, passes_left }))
}

/// The worker's process. What it says of a failure goes over the link, and to its standard error.
pub fn work(passes: &str) -> usize {
    let path = &files(MODEL)[0];
    let outcome = worker::run(worker::link_from_stdin().unwrap(), || Ok(engine(path, passes.parse().ok())));
    if let Err(error) = &outcome {
        eprintln!("  the worker's last words: {error}");
    }
    usize::from(outcome.is_err())
}

pub fn fault() -> usize {
    let prompt = &Reference::read(MODEL).prompts[0].tokens;
    let asked = request(1, Base::New, prompt, ANSWER);
    let mut whole = engine(&files(MODEL)[0], None);
    whole.command(&Order::Generate(asked.clone()), &mut Vec::new());
    let want = tokens_of(&run(&mut whole), 1);
    let mut passes = [Some(BROKEN_PASS)].into_iter();
    let worker = move || {
        let passes = passes.next().flatten().map_or("none".into(), |passes| passes.to_string());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["worker", &passes]).stdout(Stdio::null());
        command
    };
    let supervisor = Supervisor::start(worker, Options::default()).unwrap();
    let generation = supervisor.handle().generate(asked).unwrap();
    let events: Vec<Event> =
        std::iter::from_fn(|| generation.next_within(PATIENCE).expect("the generation goes on")).collect();
    let (got, deaths) = (tokens_of(&events, 1), supervisor.handle().deaths());
    println!(
        "{:<24} {deaths} worker died, {} of {} tokens came, the same: {}",
        "fault",
        got.len(),
        want.len(),
        got == want
    );
    usize::from(got != want || deaths != 1 || want.len() != ANSWER as usize)
}
