//! `cargo xtask golden`: the reference data in tests/golden, by transformers in f32.

use crate::{Outcome, paths, python};

pub fn run(args: &[String]) -> Outcome {
    let parts: Vec<&str> = args.iter().map(String::as_str).collect();
    let (tiny, perplexity) = match parts.as_slice() {
        [] => (true, true),
        ["tiny"] => (true, false),
        ["perplexity"] => (false, true),
        _ => return Err("usage: cargo xtask golden [tiny|perplexity]".into()),
    };
    let interpreter = python::interpreter()?;
    let golden = paths::repository().join("tests/golden");
    if tiny {
        python::must(python::command(&interpreter, "golden.py").arg(&golden))?;
    }
    if perplexity {
        let models = paths::cache()?.join("models");
        python::must(python::command(&interpreter, "perplexity.py").arg(&golden).arg(models))?;
    }
    Ok(())
}
