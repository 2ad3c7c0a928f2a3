//! `flint bench --shape`: weights of a known model's exact shape, made up on the card, where no file is at hand.

use super::floor::{Floor, Machine};
use super::{Job, KV_TOKENS, run};
use crate::args::{BenchArgs, DeviceName, ModelArgs};
use crate::config::Config;
use crate::device::card;
use crate::error::CliError;
use crate::progress::Spinner;
use crate::worker;
use flint_engine::load::{MadeUp, ModelFile};

pub fn bench(config: &Config, model: &ModelArgs, args: &BenchArgs, name: &str) -> Result<(), CliError> {
    if model.device == DeviceName::Cpu {
        return Err(CliError::Usage("--shape makes weights up on an NVIDIA card: use --device cuda".into()));
    }
    let made_up = MadeUp::named(name).ok_or_else(|| CliError::Usage(format!("{name} is no known shape")))?;
    card()?;
    let spinner = Spinner::new(format!("making {name} up"));
    let device = worker::cuda(config, model)?.making_up()?;
    let machine = Machine::card(device.read_bandwidth()?);
    let file = ModelFile::made_up(name, &made_up);
    let pool = ModelArgs { kv_tokens: Some(model.kv_tokens.unwrap_or(KV_TOKENS)), ..model.clone() };
    let loaded = worker::load_file(&pool, &file, device)?;
    if let Some(why) = worker::why_not_alone(loaded.device()) {
        eprintln!("{why}");
    }
    let floor = Floor::of_file(&file);
    let name = format!("{name} (made-up weights)");
    let job = Job { name, path: None, bytes: file.bytes, threads: 0, machine, spinner };
    run(config, args, loaded, floor, job)
}
