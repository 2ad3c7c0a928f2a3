//! On a real model: the token that the CPU finds without all logits is the one that they tell, on a text that the model reads
//! token by token.

mod common;
mod golden_data;

use common::model_path;
use flint_engine::batch::Batch;
use flint_engine::device::cpu::{Cpu, default_threads};
use flint_engine::load::ModelFile;
use flint_engine::model::Loaded;
use flint_engine::runner::Runner;
use golden_data::{Text, top};

const MODEL: &str = "qwen2.5-coder-1.5b";
const TOKENS: usize = 256;
const BLOCKS: u32 = TOKENS as u32 / 32;

#[test]
fn the_best_is_that_of_the_logits() {
    let file = ModelFile::open(&model_path(MODEL)).unwrap();
    let device = Cpu::new(default_threads()).unwrap();
    let mut runner = Loaded::new(&file, device, BLOCKS as usize, &mut |_, _| ()).unwrap();
    let table: Vec<u32> = (0..BLOCKS).collect();
    let (_, text) = Text::read(MODEL);
    let mut told = 0;
    for (position, &token) in text.tokens[..TOKENS].iter().enumerate() {
        let mut batch = Batch { greedy: true, ..Batch::default() };
        batch.push(&[token], position, &table, true);
        runner.forward(&batch).unwrap();
        let best = runner.best(0);
        told += usize::from(best.is_some());
        let likeliest = top(runner.logits(0));
        assert!(best.is_none_or(|best| best == likeliest), "position {position}: {best:?}, not {likeliest}");
    }
    println!("told {told} of {TOKENS}");
    assert!(told > TOKENS / 2, "of {TOKENS} tokens {told} were told");
}
