//! `cargo xtask bench agent`: what a person waits for besides the model.
//!
//! A server that answers at once stands where the model would be, and the real program runs in a pseudo-terminal: from its
//! start to its first request, from Enter to the frame on the wire, from an event to the painted word at 2,000 tokens a
//! second, and from a key to its letter meanwhile.

mod face;
mod model;

use super::Measured;
use crate::Outcome;
use face::Face;
use model::Model;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const STARTS: usize = 20;
const ENTERS: usize = 200;

pub fn measure(program: &Path) -> Outcome<Vec<Measured>> {
    let home = tempfile::tempdir()?;
    let model = Model::listen(home.path())?;
    let mut starts = starts(program, home.path(), &model)?;
    let mut face = Face::open(program, home.path())?;
    model.asked()?; // The prompt is made warm.
    let mut enters = enters(&mut face, &model)?;
    let mut paints = face.paints(&model)?;
    let mut keys = face.keys(&model)?;
    Ok(vec![
        Measured::alone("exec_start_to_request_ms_p50", quantile(&mut starts, 0.5), "ms"),
        Measured::alone("exec_start_to_request_ms_max", quantile(&mut starts, 1.0), "ms"),
        Measured::alone("enter_to_frame_ms_p50", quantile(&mut enters, 0.5), "ms"),
        Measured::alone("enter_to_frame_ms_p99", quantile(&mut enters, 0.99), "ms"),
        Measured::alone("event_to_painted_ms_p50", quantile(&mut paints, 0.5), "ms"),
        Measured::alone("event_to_painted_ms_p99", quantile(&mut paints, 0.99), "ms"),
        Measured::alone("key_to_painted_while_streaming_ms_p50", quantile(&mut keys, 0.5), "ms"),
        Measured::alone("key_to_painted_while_streaming_ms_max", quantile(&mut keys, 1.0), "ms"),
    ])
}

/// From the start of the process to its request.
fn starts(program: &Path, home: &Path, model: &Model) -> Outcome<Vec<f64>> {
    let folder = tempfile::tempdir()?;
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let mut command = Command::new(program);
        command.args(["exec", "hello"]).env("FLINT_HOME", home).current_dir(folder.path());
        let began = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        times.push(milliseconds(model.asked()?.duration_since(began)));
        child.wait()?;
    }
    Ok(times)
}

fn enters(face: &mut Face, model: &Model) -> Outcome<Vec<f64>> {
    let mut times = Vec::new();
    for _ in 0..ENTERS {
        face.press("hello")?;
        face.settle();
        let pressed = Instant::now();
        face.press("\r")?;
        times.push(milliseconds(model.asked()?.duration_since(pressed)));
        face.settle();
    }
    Ok(times)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn quantile(times: &mut [f64], share: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    let last = times.len().saturating_sub(1);
    times.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}
