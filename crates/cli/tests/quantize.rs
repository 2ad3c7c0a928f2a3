//! `flint quantize` as a new user runs it: the real binary, the real small model, an empty folder.

mod support;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use support::{MODEL, flint, model_file, run, stderr, stdout, succeeds};
use tempfile::{TempDir, tempdir};

fn flint_in(folder: &TempDir) -> Command {
    let mut command = flint();
    command.current_dir(folder.path()).args(["--device", "cpu"]);
    command
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn answer(folder: &TempDir, model: &str) -> String {
    let prompt = ["run", "-m", model, "--max-tokens", "16", "What is Rust?"];
    stdout(&succeeds(flint_in(folder).args(prompt)))
}

#[test]
fn a_model_in_one_file_answers_as_before() {
    let folder = tempdir().unwrap();
    let output = succeeds(flint_in(&folder).args(["quantize", MODEL, "--to", "as-is", "--json"]));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(names(&folder), ["smollm2-135m.flint"], "one file, and nothing half done");
    assert_eq!(report["file"], "smollm2-135m.flint");
    let length = fs::metadata(folder.path().join("smollm2-135m.flint")).unwrap().len();
    assert_eq!(report["bytes_after"], length);
    let fidelity = &report["fidelity"];
    assert_eq!(fidelity["same_bits"], true);
    assert_eq!(fidelity["same_top"], fidelity["tokens"]);
    assert_eq!(fidelity["perplexity_before"], fidelity["perplexity_after"]);
    let kinds = report["kinds"].as_array().unwrap();
    assert!(kinds.len() > 8 && kinds.iter().all(|kind| kind["relative_error"] == 0.0));
    assert_eq!(answer(&folder, "smollm2-135m.flint"), answer(&folder, MODEL));

    let again = run(flint_in(&folder).args(["quantize", MODEL, "--to", "as-is"]), "");
    assert_eq!(again.status.code(), Some(2));
    assert_eq!(
        stderr(&again).trim(),
        "flint: smollm2-135m.flint is there already: give another name with -o, or --force"
    );

    let onto_itself = ["quantize", "smollm2-135m.flint", "-o", "smollm2-135m.flint", "--force"];
    let onto_itself = run(flint_in(&folder).args(onto_itself), "");
    assert!(stderr(&onto_itself).contains("is the source: give another name with -o"));

    let check = |file: &str| run(flint_in(&folder).args(["quantize", "--check", file]), "");
    assert_eq!(stdout(&check("smollm2-135m.flint")).trim(), "smollm2-135m.flint is as it was written");
    let path = folder.path().join("smollm2-135m.flint");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    let damaged = check("smollm2-135m.flint");
    assert_eq!(damaged.status.code(), Some(4));
    assert!(stderr(&damaged).contains("The file is damaged: make it again."), "{}", stderr(&damaged));
    let other = check(&model_file().display().to_string());
    assert!(stderr(&other).contains("only files of flint quantize have one"), "{}", stderr(&other));
}

#[test]
fn a_folder_of_the_hub_becomes_a_smaller_file() {
    let folder = tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/qwen2/folder");
    let output = succeeds(flint_in(&folder).arg("quantize").arg(&source));
    let said = stdout(&output);
    assert_eq!(names(&folder), ["folder-q4.flint"]);
    assert!(said.contains("ffn_up.weight") && said.contains("BF16 to Q4_1"), "{said}");
    // The tiny model has no tokenizer to read a text with.
    assert!(
        said.contains("What that does to answers was not measured: ") && said.contains("tokenizer.json"),
        "{said}"
    );
    assert!(said.contains("Try it: flint run -m folder-q4.flint 'Hello'"), "{said}");
}

#[test]
fn what_cannot_be_done_is_told_and_leaves_nothing() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("cut.gguf"), &fs::read(model_file()).unwrap()[..4 << 20]).unwrap();
    let refused = |args: &[&str]| {
        let output = run(flint_in(&folder).arg("quantize").args(args), "");
        assert!(!output.status.success());
        assert_eq!(names(&folder), ["cut.gguf"]);
        stderr(&output)
    };
    assert!(refused(&["cut.gguf"]).contains("The file is cut short: get it again."));
    assert!(refused(&["nothing.gguf"]).contains("no model is called 'nothing.gguf'"));
    assert!(
        refused(&[MODEL, "-o", "no/such/folder.flint"]).contains("no/such/folder.flint cannot be written")
    );
    assert!(refused(&[MODEL, "--to", "q3"]).contains("[possible values: as-is, q8, q4]"));
}
