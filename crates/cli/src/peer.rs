//! Another engine on the same file, for comparison: llama.cpp, prebuilt in the package `xllamacpp`.

use crate::config::Config;
use crate::error::CliError;
use crate::progress::Spinner;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PACKAGE: &str = "xllamacpp==2026.10.11549";
const SCRIPT: &str = include_str!("peer.py");
const LOGITS_SCRIPT: &str = include_str!("peer_logits.py");

/// A llama.cpp that waits for measurements to make.
pub struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// What one run took, by the peer's own clock.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct PeerTimes {
    pub prefill_s: f64,
    pub decode_s: f64,
    pub decoded: u32,
}

impl Peer {
    pub fn start(config: &Config, model: &Path, threads: usize, context: usize) -> Result<Peer, CliError> {
        let mut peer = Peer::run(config, SCRIPT, model, threads, context)?;
        peer.line()?;
        Ok(peer)
    }

    fn run(
        config: &Config,
        script: &str,
        model: &Path,
        threads: usize,
        context: usize,
    ) -> Result<Peer, CliError> {
        let python = install(config)?;
        let mut child = Command::new(python)
            .args(["-c", script])
            .arg(model)
            .args([threads.to_string(), context.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(CliError::io("llama.cpp"))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(CliError::Peer("llama.cpp was started without pipes".into()));
        };
        Ok(Peer { child, orders, answers: BufReader::new(answers) })
    }

    /// Prefills these tokens from scratch, then decodes `decode` more.
    pub fn measure(&mut self, tokens: &[u32], decode: u32) -> Result<PeerTimes, CliError> {
        let order = serde_json::json!({ "tokens": tokens, "decode": decode });
        writeln!(self.orders, "{order}").map_err(CliError::io("llama.cpp"))?;
        let line = self.line()?;
        serde_json::from_str(&line)
            .map_err(|error| CliError::Peer(format!("llama.cpp said {line:?}: {error}")))
    }

    fn line(&mut self) -> Result<String, CliError> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).map_err(CliError::io("llama.cpp"))?;
        if read == 0 {
            return Err(CliError::Peer("llama.cpp ended before it answered".into()));
        }
        Ok(line)
    }
}

/// A llama.cpp that tells its logits.
pub struct PeerLogits {
    peer: Peer,
    vocab: usize,
}

impl PeerLogits {
    pub fn start(
        config: &Config,
        model: &Path,
        threads: usize,
        rows_max: usize,
        vocab: usize,
    ) -> Result<PeerLogits, CliError> {
        Ok(PeerLogits { peer: Peer::run(config, LOGITS_SCRIPT, model, threads, rows_max)?, vocab })
    }

    /// Reads these tokens afresh; calls `row` with the logits after each.
    pub fn read(&mut self, tokens: &[u32], mut row: impl FnMut(usize, &[f32])) -> Result<(), CliError> {
        writeln!(self.peer.orders, "{}", serde_json::json!(tokens)).map_err(CliError::io("llama.cpp"))?;
        let mut bytes = vec![0; self.vocab * size_of::<f32>()];
        let mut logits = vec![0.0; self.vocab];
        for at in 0..tokens.len() {
            self.peer.answers.read_exact(&mut bytes).map_err(CliError::io("llama.cpp"))?;
            for (logit, bytes) in logits.iter_mut().zip(bytes.as_chunks().0) {
                *logit = f32::from_le_bytes(*bytes);
            }
            row(at, &logits);
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It is only a measuring device: there is nothing that it could lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Python of its own with the package in it, made on first use.
fn install(config: &Config) -> Result<PathBuf, CliError> {
    let folder = config.cache.join("peer").join(PACKAGE.replace("==", "-"));
    let python = folder.join("bin/python");
    let marker = folder.join("ready");
    if marker.exists() {
        return Ok(python);
    }
    let _spinner = Spinner::new(format!("installing {PACKAGE}"));
    run(Command::new(&config.endpoints.python).args(["-m", "venv"]).arg(&folder))?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", PACKAGE]))?;
    std::fs::write(&marker, "").map_err(CliError::io(marker.display().to_string()))?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<(), CliError> {
    let output = command.stdin(Stdio::null()).output().map_err(CliError::io("python"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(CliError::Peer(format!(
        "llama.cpp could not be installed: {}",
        words.lines().last().unwrap_or("no reason")
    )))
}
