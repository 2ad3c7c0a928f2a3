//! Files of Flint's own: what was not to be changed has the same bits, what was has little error, and damage is found.

#[path = "bad_files/folder_writer.rs"]
mod folder_writer;
#[path = "bad_files/gguf_writer.rs"]
mod gguf_writer;
#[path = "bad_files/temporary.rs"]
mod temporary;
#[path = "bad_files/tiny.rs"]
mod tiny;

mod common;
mod golden_data;

use common::model_path;
use flint_engine::device::Device;
use flint_engine::device::cpu::Cpu;
use flint_engine::device::plain::Plain;
use flint_engine::load::ModelFile;
use flint_engine::model::Loaded;
use flint_engine::quant::Format;
use flint_engine::quantize::{self, Bits, Done, Lies, QuantizeError, Recipe};
use folder_writer::Files;
use golden_data::{MODELS, Model, Reference, Text, files, nll, top};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use temporary::Temporary;

const AS_IT_IS: Recipe = Recipe { bits: Bits::AsItIs, again: false, lies: Lies::Panels };
/// Tokens of the longest prompt of a tiny model.
const TOKENS: usize = 240;

/// The bytes of what a recipe makes of a model, and what is said of it.
fn made(source: &Path, recipe: Recipe) -> Result<(Vec<u8>, Done), QuantizeError> {
    let file = ModelFile::open(source).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Cursor::new(Vec::new());
    let done = quantize::write(&file, recipe, 2, &mut out, &mut |_, _| true)?;
    assert_eq!(out.get_ref().len() as u64, done.bytes);
    Ok((out.into_inner(), done))
}

/// The same, on disk.
fn made_file(source: &Path, recipe: Recipe) -> (Temporary, PathBuf, Done) {
    let (bytes, done) = made(source, recipe).unwrap_or_else(|error| panic!("{error}"));
    let folder = Temporary::new(&Files::from([("made.flint".into(), bytes)]));
    let path = folder.path("made.flint");
    quantize::check(&path).unwrap_or_else(|error| panic!("{error}"));
    (folder, path, done)
}

fn logits<D: Device + 'static>(path: &Path, device: D, tokens: &[u32]) -> Vec<Vec<u32>> {
    let rows = Model::load(path, device, 1, TOKENS.max(tokens.len())).logits(tokens, 64);
    rows.into_iter().map(|row| row.into_iter().map(f32::to_bits).collect()).collect()
}

#[test]
fn what_was_not_quantised_has_the_same_bits() {
    // FP8 is in no file of ours: it becomes Q8_0, which changes it.
    for name in MODELS.into_iter().filter(|name| *name != "qwen3-fp8") {
        let tokens = &Reference::read(name).prompts[0].tokens;
        for source in files(name) {
            let (_folder, path, done) = made_file(&source, AS_IT_IS);
            let what = source.display();
            assert!(done.kinds.values().all(|kind| kind.error == 0.0), "{what}");
            let cpu = |path: &Path| logits(path, Cpu::new(2).unwrap(), tokens);
            assert!(cpu(&path) == cpu(&source), "{what}: the CPU's logits differ");
            let plain = |path: &Path| logits(path, Plain::default(), tokens);
            assert!(plain(&path) == plain(&source), "{what}: plain logits differ");
        }
    }
}

/// A device that wants matrices otherwise takes them out of the panels; and a file of rows is made from one of panels.
#[test]
fn any_layout_is_made_from_any_other() {
    for name in ["quantised", "quantised-moe", "gpt-oss-mxfp4"] {
        let source = &files(name)[0];
        let rows = Recipe { lies: Lies::Rows, ..AS_IT_IS };
        let (_first, panels, _) = made_file(source, AS_IT_IS);
        let (_second, back, _) = made_file(&panels, rows);
        assert!(made(source, rows).unwrap().0 == std::fs::read(&back).unwrap(), "{name}");
        let (_third, again, _) = made_file(&back, AS_IT_IS);
        assert!(std::fs::read(&panels).unwrap() == std::fs::read(&again).unwrap(), "{name}");
    }
}

#[test]
fn everything_that_a_source_says_is_in_the_file() {
    for arch in tiny::ARCHS {
        let gguf = Temporary::new(&Files::from([("model.gguf".into(), tiny::gguf(arch).write())]));
        let folder = Temporary::new(&tiny::folder(arch).files());
        for source in [gguf.path("model.gguf"), folder.path("")] {
            let (_folder, path, _) = made_file(&source, AS_IT_IS);
            let (before, after) = (ModelFile::open(&source).unwrap(), ModelFile::open(&path).unwrap());
            assert_eq!(before.config, after.config, "{arch}");
            assert_eq!(before.tokenizer().unwrap(), after.tokenizer().unwrap(), "{arch}");
            assert_eq!(before.tied(), after.tied(), "{arch}");
            let names =
                |file: &ModelFile| file.tensors().map(|tensor| tensor.name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&before), names(&after), "{arch}");
        }
    }
}

/// Tokens of the tiny models' prompts whose likeliest successor is the reference's.
fn agreement(name: &str, path: &Path) -> f64 {
    let (mut agreed, mut all) = (0, 0);
    for prompt in Reference::read(name).prompts {
        let mut model = Model::load(path, Cpu::new(2).unwrap(), 1, TOKENS);
        model.prefill(0, &prompt.tokens, 64, &mut |position, logits| {
            agreed += usize::from(top(logits) == prompt.top[position]);
            all += 1;
        });
    }
    agreed as f64 / all as f64
}

#[test]
fn fewer_bits_keep_the_answers_of_tiny_models() {
    for name in ["qwen2", "llama", "qwen3-moe", "gpt-oss"] {
        let source = files(name)[0].clone();
        assert!(source.is_dir(), "a Hugging Face folder");
        for (bits, error_max, agreement_min) in [(Bits::Eight, 0.006, 0.98), (Bits::Four, 0.09, 0.8)] {
            let (_folder, path, done) = made_file(&source, Recipe { bits, ..AS_IT_IS });
            for (kind, what) in &done.kinds {
                let error = what.relative_error();
                assert!(error < error_max, "{name} {bits:?} {kind}: {error}");
                let matrix = kind.ends_with("weight") && !kind.contains("norm") && !kind.contains("sinks");
                // Narrow rows of the tiny mixture are no whole blocks.
                let stays = kind.contains("gate_inp")
                    || !matrix
                    || (name, kind.as_str()) == ("qwen3-moe", "ffn_down_exps.weight");
                assert_eq!(error == 0.0, stays, "{name} {bits:?} {kind}");
                assert!(what.after <= what.before || stays, "{name} {bits:?} {kind} grew");
            }
            let agreement = agreement(name, &path);
            println!("{name} {bits:?}: {:.1}% of the likeliest tokens", 100.0 * agreement);
            assert!(agreement >= agreement_min, "{name} {bits:?}: {agreement}");
        }
    }
}

#[test]
fn fp8_becomes_q8_0() {
    let (_folder, path, done) = made_file(&files("qwen3-fp8")[0], AS_IT_IS);
    assert_eq!(done.kinds["ffn_up.weight"].formats, [("FP8", "Q8_0")]);
    assert!(agreement("qwen3-fp8", &path) >= 0.99);
}

/// Perplexity on the first tokens of the fixed text.
fn perplexity(path: &Path, tokens: &[u32]) -> f64 {
    let mut model = Model::load(path, Cpu::new(2).unwrap(), 1, tokens.len());
    let mut sum = 0.0;
    model.prefill(0, tokens, usize::MAX, &mut |position, logits| {
        sum += tokens.get(position + 1).map_or(0.0, |&next| nll(logits, next));
    });
    (sum / (tokens.len() - 1) as f64).exp()
}

#[test]
fn a_real_model_is_what_it_was() {
    let source = model_path("smollm2-135m");
    let tokens = Text::read("smollm2-135m").1.tokens;
    let (_folder, path, done) = made_file(&source, AS_IT_IS);
    let before = std::fs::metadata(&source).unwrap().len();
    assert!(done.bytes < before + before / 20, "{} to {}", before, done.bytes);
    let cpu = |path: &Path| logits(path, Cpu::new(2).unwrap(), &tokens[..128]);
    assert!(cpu(&path) == cpu(&source));
}

/// Its matrices of 6 bits go to 4: perplexity rises by less than 6%.
#[test]
fn a_real_model_loses_little_with_fewer_bits() {
    let source = model_path("qwen2.5-coder-1.5b");
    let tokens = &Text::read("qwen2.5-coder-1.5b").1.tokens[..256];
    let (_folder, path, done) =
        made_file(&source, Recipe { bits: Bits::Four, again: true, lies: Lies::Panels });
    assert!(done.kinds["ffn_down.weight"].formats.contains(&("Q6_K", "Q4_K")));
    assert!(done.bytes < std::fs::metadata(&source).unwrap().len());
    let (before, after) = (perplexity(&source, tokens), perplexity(&path, tokens));
    println!("perplexity {before:.3} to {after:.3} ({:+.2}%)", 100.0 * (after / before - 1.0));
    assert!(after < 1.06 * before, "{before} to {after}");
}

#[test]
fn a_weight_that_is_no_number_is_told_of() {
    let mut folder = tiny::folder("qwen2");
    let offsets = &folder.weights.header["model.layers.0.mlp.up_proj.weight"]["data_offsets"];
    let at = offsets[0].as_u64().unwrap() as usize + 40;
    folder.weights.data[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let source = Temporary::new(&folder.files());
    let error = made(&source.path(""), Recipe { bits: Bits::Eight, ..AS_IT_IS }).unwrap_err().to_string();
    assert_eq!(error, "blk.0.ffn_up.weight: a weight is not a number. The model is damaged: get it again.");
}

#[test]
fn a_scale_that_is_no_number_is_found_when_it_is_loaded() {
    let source = Temporary::new(&Files::from([("model.gguf".into(), tiny::gguf("qwen2").write())]));
    let (mut bytes, _) = made(&source.path("model.gguf"), AS_IT_IS).unwrap();
    let header = flint_engine::load::gguf::parse(&bytes).unwrap();
    let up = header.tensors.iter().find(|tensor| tensor.name == "blk.0.ffn_up.weight").unwrap();
    assert!(up.lies == Lies::Panels && up.format == Format::Q4_0);
    bytes[up.offset..up.offset + 2].copy_from_slice(&0x7E00u16.to_le_bytes());
    let folder = Temporary::new(&Files::from([("made.flint".into(), bytes)]));
    let path = folder.path("made.flint");
    let file = ModelFile::open(&path).unwrap();
    let error = Loaded::new(&file, Cpu::new(1).unwrap(), 4, &mut |_, _| ()).err().unwrap().to_string();
    assert_eq!(error, "blk.0.ffn_up.weight: a scale is not a number. The file is damaged: get it again");
    let error = quantize::check(&path).unwrap_err().to_string();
    assert!(error.contains("The file is damaged: make it again."), "{error}");
}

#[test]
fn a_file_for_cards_is_refused_elsewhere() {
    for name in ["gpt-oss-mxfp4", "quantised"] {
        let recipe = Recipe { lies: Lies::Tiles, ..AS_IT_IS };
        let (_folder, path, _) = made_file(&files(name)[0], recipe);
        let file = ModelFile::open(&path).unwrap();
        let words = "is laid out for NVIDIA cards: use --device cuda, or make one for this device of its source, \
                     with flint quantize --device cpu";
        let refused =
            |error: Option<flint_engine::model::ModelError>| error.unwrap().to_string().ends_with(words);
        assert!(refused(Loaded::new(&file, Cpu::new(1).unwrap(), 4, &mut |_, _| ()).err()));
        assert!(refused(Loaded::new(&file, Plain::default(), 4, &mut |_, _| ()).err()));
        let error = made(&path, AS_IT_IS).unwrap_err().to_string();
        assert!(error.contains("start from the model that the file was made of"), "{error}");
    }
}

/// Fewer bits are the same bits for a card: only the arrangement differs.
#[test]
fn a_file_for_cards_has_the_same_errors() {
    let recipe = |lies| Recipe { bits: Bits::Four, again: false, lies };
    let kinds = |lies| made(&files("qwen2")[0], recipe(lies)).unwrap().1.kinds;
    let errors =
        |lies| kinds(lies).values().map(flint_engine::quantize::Kind::relative_error).collect::<Vec<_>>();
    assert_eq!(errors(Lies::Tiles), errors(Lies::Panels));
}

#[test]
fn writing_stops_when_it_is_told_to() {
    let file = ModelFile::open(&files("qwen2")[0]).unwrap();
    let stopped = quantize::write(&file, AS_IT_IS, 1, &mut Cursor::new(Vec::new()), &mut |_, _| false);
    assert!(matches!(stopped, Err(QuantizeError::Stopped)));
}
