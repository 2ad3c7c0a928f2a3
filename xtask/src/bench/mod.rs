//! `cargo xtask bench`: measurements of what stands around the engine.

mod agent;
mod edits;
mod llama;
mod served;
mod session;
mod tls;
mod wire;

use crate::cargo::cargo;
use crate::{Outcome, must, paths};
use serde::Serialize;
use std::path::{Path, PathBuf};

const USAGE: &str = "usage: cargo xtask bench wire|agent [--json] [--bin PATH]\n       cargo xtask bench served MODEL [--json] [--bin PATH]\n       cargo xtask bench edits [--traces N] [--only TEXT] [--rounds N] [--json]";

/// One figure, and another's beside it.
#[derive(Debug, Serialize)]
struct Measured {
    name: &'static str,
    value: f64,
    unit: &'static str,
    peer: Option<f64>,
    ratio: Option<f64>, // value / peer
}

#[derive(Debug, Serialize)]
struct Report {
    peers: Vec<(&'static str, String)>, // of which figure, and what it is
    results: Vec<Measured>,
}

impl Measured {
    fn alone(name: &'static str, value: f64, unit: &'static str) -> Measured {
        Measured { name, value, unit, peer: None, ratio: None }
    }

    fn beside(name: &'static str, value: f64, unit: &'static str, peer: f64) -> Measured {
        Measured { name, value, unit, peer: Some(peer), ratio: Some(value / peer) }
    }
}

pub fn run(args: &[String]) -> Outcome {
    match args.split_first() {
        Some((what, rest)) if what == "wire" => run_around(rest, wire::measure),
        Some((what, rest)) if what == "agent" => {
            run_around(rest, |program| Ok(Report { peers: Vec::new(), results: agent::measure(program)? }))
        }
        Some((what, [model, rest @ ..])) if what == "served" => {
            run_around(rest, |program| served::measure(program, model))
        }
        Some((what, rest)) if what == "edits" => edits::run(rest),
        _ => Err(USAGE.into()),
    }
}

/// Measures a program that is built already, or the release build.
fn run_around(args: &[String], measure: impl Fn(&Path) -> Outcome<Report>) -> Outcome {
    let (mut json, mut program) = (false, None);
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--json" => json = true,
            "--bin" => program = Some(PathBuf::from(words.next().ok_or(USAGE)?)),
            _ => return Err(USAGE.into()),
        }
    }
    let report = measure(&program.map_or_else(release_build, Ok)?)?;
    match json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print_table(&report),
    }
    Ok(())
}

/// The program as people have it.
pub fn release_build() -> Outcome<PathBuf> {
    must(cargo().args(["build", "--release", "--locked", "-p", "flint"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    Ok(paths::repository().join(target).join("release/flint"))
}

fn print_table(report: &Report) {
    println!("{:<30} {:>10} {:<4} {:>10} {:>7}", "", "flint", "", "peer", "ratio");
    for Measured { name, value, unit, peer, ratio } in &report.results {
        let peer = peer.map_or(String::new(), |peer| format!("{peer:.1}"));
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x"));
        println!("{name:<30} {value:>10.1} {unit:<4} {peer:>10} {ratio:>7}");
    }
    for (name, peer) in &report.peers {
        println!("peer of {name}: {peer}");
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    let pair = values.get(middle).zip(values.get(values.len() / 2));
    pair.map_or(f64::NAN, |(low, high)| (low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert!(median(vec![]).is_nan());
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
