//! `cargo xtask shape NAME OUT.gguf`: a mixture with random weights, scaled down or (gpt-oss-20b, 13 GB) whole, to measure with
//! `flint bench -m OUT.gguf` or `cargo xtask bench served -m OUT.gguf`.

use crate::{Outcome, paths, python};

const USAGE: &str = "usage: cargo xtask shape gpt-oss|gpt-oss-20b|qwen3-moe OUT.gguf";

pub fn run(args: &[String]) -> Outcome {
    let [name, out] = args else { return Err(USAGE.into()) };
    if !["gpt-oss", "gpt-oss-20b", "qwen3-moe"].contains(&name.as_str()) {
        return Err(USAGE.into());
    }
    // Its vocabulary; the tests have fetched it.
    let vocabulary = paths::cache()?.join("models/smollm2-135m.gguf");
    if !vocabulary.exists() {
        return Err("the vocabulary comes from SmolLM2: run flint pull smollm2-135m first".into());
    }
    let interpreter = python::interpreter()?;
    python::must(python::command(&interpreter, "shape.py").arg(name).arg(vocabulary).arg(out))
}
