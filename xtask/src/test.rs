//! `cargo xtask test`: everything that must hold before a change is good. `.ci/run` is this command.

use crate::cargo::{cargo, of_cargo};
use crate::{Outcome, fetch, must, policy, sources};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Instant;

type Step = (&'static str, fn() -> Outcome);

/// In this order; the first that fails is the last. The tests come last, so that the last line is their sum.
const STEPS: [Step; 5] = [
    ("what the tests need", fetch::everything),
    ("formatting", formatting),
    ("clippy", clippy),
    ("dependency policy", policy::run),
    ("tests", tests),
];

pub fn run(args: &[String]) -> Outcome {
    if !args.is_empty() {
        return Err("usage: cargo xtask test".into());
    }
    for (name, step) in STEPS {
        eprintln!("==> {name}");
        let start = Instant::now();
        let outcome = step();
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Ok(()) if name == "tests" => {}
            Ok(()) => eprintln!("==> {name}: {seconds:.1} s"),
            Err(error) => return Err(format!("{name} failed after {seconds:.1} s: {error}").into()),
        }
    }
    Ok(())
}

fn formatting() -> Outcome {
    must(cargo().args(["fmt", "--all", "--check"]))?;
    must(cargo().args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
}

fn clippy() -> Outcome {
    must(cargo().args(["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn tests() -> Outcome {
    if sources::has_doctests()? {
        must(cargo().args(["test", "--locked", "--workspace", "--doc"]))?;
    }
    match fetch::tool("cargo-nextest") {
        Ok(nextest) => must(of_cargo(nextest).args(["nextest", "run", "--locked", "--workspace"])),
        Err(error) => {
            eprintln!("{error}: the tests run without cargo-nextest");
            plain_tests()
        }
    }
}

/// The tests by `cargo test`, which sums up each program only: the last line sums up all.
fn plain_tests() -> Outcome {
    let mut command = cargo();
    command.args(["test", "--locked", "--workspace", "--all-targets", "--no-fail-fast"]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let (mut passed, mut failed) = (0, 0);
    for line in BufReader::new(child.stdout.take().ok_or("no standard output")?).lines() {
        let line = line?;
        println!("{line}");
        let (more_passed, more_failed) = counts(&line).unwrap_or_default();
        passed += more_passed;
        failed += more_failed;
    }
    let status = child.wait()?;
    eprintln!("{passed} passed, {failed} failed");
    if status.success() { Ok(()) } else { Err(format!("cargo test failed ({status})").into()) }
}

/// The figures of `test result: ok. 3 passed; 0 failed; ...`.
fn counts(line: &str) -> Option<(usize, usize)> {
    let (_, figures) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let figure =
        |name: &str| figures.split("; ").find_map(|part| part.strip_suffix(name)?.trim().parse().ok());
    Some((figure("passed")?, figure("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_cargo_test() {
        let line = "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.00s";
        assert_eq!(counts(line), Some((3, 1)));
        assert_eq!(counts("test a::b ... ok"), None);
        assert_eq!(counts("test result: ok. no figures"), None);
    }

    #[test]
    fn the_continuous_check_is_this_command() {
        let script = std::fs::read_to_string(crate::paths::repository().join(".ci/run")).unwrap();
        assert!(script.ends_with("exec cargo xtask test\n"), "{script}");
    }
}
