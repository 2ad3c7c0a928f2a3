//! The process that holds the model.

use crate::args::{ModelArgs, Precision, WorkerArgs};
use crate::config::Config;
use crate::device::{Chosen, compiler_found};
use crate::error::CliError;
use crate::scripted;
use flint_engine::constrain::Vocabulary;
use flint_engine::device::cpu::{Cpu, default_threads};
use flint_engine::device::cuda::{Cuda, CudaError, Way};
use flint_engine::device::{Device, DeviceError};
use flint_engine::limits::KV_BLOCK_TOKENS;
use flint_engine::load::ModelFile;
use flint_engine::model::{Loaded, ModelError};
use flint_engine::runner::{Runner, RunnerError};
use flint_engine::step::Engine;
use flint_engine::worker;
use flint_open::ModelText;
use std::path::Path;
use std::sync::Arc;

/// Tokens of the KV pool where nobody says how many.
const KV_TOKENS_DEFAULT_MAX: usize = 32_768;

pub fn work(config: &Config, model: &ModelArgs, args: &WorkerArgs) -> Result<(), CliError> {
    // Ctrl-C goes to every process of the terminal; what it means is the parent's to say.
    // SAFETY: ignoring a signal has no preconditions.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let link = worker::link_from_stdin().map_err(CliError::io("the worker's link"))?;
    let path = args.path.clone();
    let load = || {
        let runner = runner(config, model, &args.path).map_err(|error| RunnerError(error.to_string()))?;
        let vocabulary = move || vocabulary(&path).map_err(|error| error.to_string());
        Ok(Engine::new(runner).with_vocabulary(Box::new(vocabulary)))
    };
    // What went wrong has been told over the link: the parent says it, once.
    let _ = worker::run(link, load);
    Ok(())
}

/// The model on the device that the arguments say.
pub fn runner(config: &Config, args: &ModelArgs, path: &Path) -> Result<Box<dyn Runner>, CliError> {
    if let Some(script) = &args.scripted {
        return Ok(Box::new(scripted::load(args, script, path)?));
    }
    Ok(match Chosen::of(config, args, path)? {
        Chosen::Cpu { .. } => Box::new(load(args, path, cpu(args)?)?),
        Chosen::Cuda(_) => {
            let loaded = load(args, path, cuda(config, args)?)?;
            if let Some(why) = why_not_alone(loaded.device()) {
                eprintln!("flint: {why}");
            }
            Box::new(loaded)
        }
    })
}

pub fn cpu(args: &ModelArgs) -> Result<Cpu, ModelError> {
    let threads = args.threads.map_or_else(default_threads, usize::from);
    Ok(Cpu::new(threads).map_err(DeviceError::from)?)
}

/// The first card; its compiled kernels are kept beside the models. A loaded model does the same for every batch of a
/// shape, so batches are recorded.
pub fn cuda(config: &Config, args: &ModelArgs) -> Result<Cuda, CliError> {
    if !compiler_found(config) {
        return Err(CudaError::NoCompiler.into());
    }
    let device = Cuda::open(&config.cache.join("kernels"))?.replaying();
    Ok(match args.precision {
        Precision::Fast => device.fast(),
        Precision::Exact => device,
    })
}

/// Why a model that could decode faster alone does not.
pub fn why_not_alone(device: &Cuda) -> Option<String> {
    match device.alone() {
        Way::Not(why) => Some(format!("tokens alone go the general, slower way: {why}")),
        Way::On(_) | Way::Off | Way::Waiting => None,
    }
}

/// Loads a model onto a device as the arguments say.
pub fn load<D: Device + 'static>(args: &ModelArgs, path: &Path, device: D) -> Result<Loaded<D>, ModelError> {
    let file = ModelFile::open(path)?;
    let loaded = load_file(args, &file, device)?;
    file.release();
    drop(file);
    give_back_freed_memory();
    Ok(loaded)
}

pub fn load_file<D: Device + 'static>(
    args: &ModelArgs,
    file: &ModelFile,
    device: D,
) -> Result<Loaded<D>, ModelError> {
    let tokens = args.kv_tokens.map_or(file.config.context.min(KV_TOKENS_DEFAULT_MAX), |n| n as usize);
    Loaded::new(file, device, tokens.div_ceil(KV_BLOCK_TOKENS), &mut |_, _| ())
}

/// What the model's tokens spell, read anew: until a constraint needs it, it would only take room.
pub fn vocabulary(path: &Path) -> Result<Vocabulary, CliError> {
    let tokenizer = ModelText::read(&ModelFile::open(path)?)?.tokenizer;
    Ok(flint_open::vocabulary(&Arc::new(tokenizer)))
}

/// The vocabulary and what else loading needed is freed, but the allocator would keep it.
fn give_back_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}
