//! The tiny models of tests/golden on the card.

use super::cuda;
use crate::golden_data::{MODELS, Model, Reference, files, top};
use std::path::Path;

/// The tiny models against transformers: logits, the most likely tokens, greedy answers, cuts of the prompt.
pub fn models() -> usize {
    println!("{:<26} {:>10} {:>12} {:>8} {:>6}", "model", "logits off", "top tokens", "greedy", "cuts");
    MODELS
        .iter()
        .flat_map(|name| files(name).into_iter().map(move |path| (name, path)))
        .map(|(name, path)| model(name, &path))
        .sum()
}

fn model(name: &str, path: &Path) -> usize {
    let Reference { prompts } = Reference::read(name);
    let mut model = Model::load(path, cuda(), prompts.len(), 240);
    let (mut worst, mut agreed, mut all) = (0.0f32, 0, 0);
    for prompt in &prompts {
        let logits = model.logits(&prompt.tokens, 64);
        agreed += logits.iter().zip(&prompt.top).filter(|(logits, want)| top(logits) == **want).count();
        all += logits.len();
        for (&position, want) in prompt.logit_positions.iter().zip(&prompt.logits) {
            let largest = want.iter().fold(0.0f32, |most, v| most.max(v.abs()));
            let off =
                logits[position].iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest;
            worst = worst.max(off);
        }
    }
    let greedy = model.greedy(&prompts, 64, prompts[0].greedy.len());
    let same = greedy.iter().zip(&prompts).filter(|(answer, prompt)| **answer == prompt.greedy).count();
    let whole = model.logits(&prompts[0].tokens, 64);
    let cut = |chunk: usize| Model::load(path, cuda(), 1, 240).logits(&prompts[0].tokens, chunk) != whole;
    let cuts = [1, 7, 33].into_iter().filter(|&chunk| cut(chunk)).count();
    let file = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    println!(
        "{:<26} {worst:>10.1e} {agreed:>5} of {all:>3} {same:>3} of {} {cuts:>5}",
        format!("{name} {file}"),
        prompts.len()
    );
    let bad = worst > 1e-2 || (agreed as f64) < 0.99 * all as f64 || cuts > 0;
    usize::from(bad)
}
