//! The commands that need no answer from a model.

mod support;

use serde_json::Value;
use std::process::Command;
use support::{MODEL, flint, model_file, run, stderr, stdout};

fn check(command: &mut Command, words: &[&str]) -> String {
    let output = run(command, "");
    assert!(output.status.success(), "{}", stderr(&output));
    for word in words {
        assert!(stdout(&output).contains(word), "no {word:?} in:\n{}", stdout(&output));
    }
    stdout(&output)
}

#[test]
fn models_are_listed_with_their_speed() {
    check(
        flint().arg("models"),
        &["qwen2.5-coder-1.5b", "(the default)", MODEL, "yes", "this CPU", "tok/s", "GB/s", "gpt-oss-20b"],
    );
}

#[test]
fn doctor_tells_what_it_found() {
    check(
        flint().arg("doctor"),
        &["processor", "memory", "huge pages", "gpu", "this CPU: ", "at about", "pip", MODEL],
    );
}

#[test]
fn a_card_that_is_not_there_is_told_in_a_sentence() {
    if std::path::Path::new("/proc/driver/nvidia").exists() {
        return;
    }
    let output = run(flint().args(["run", "--device", "cuda", "-m", MODEL, "Hello"]), "");
    assert_eq!(output.status.code(), Some(4));
    let said = stderr(&output);
    assert!(said.contains("flint: no NVIDIA driver was found: install it, or use the CPU"), "{said}");
}

#[test]
fn a_made_up_shape_needs_a_card_and_says_so() {
    let refused = |args: &[&str]| {
        let output = run(flint().args(["bench", "--shape"]).args(args), "");
        assert!(!output.status.success());
        stderr(&output)
    };
    let said = refused(&["gpt-oss-20b", "--device", "cpu"]);
    assert_eq!(said.trim(), "flint: --shape makes weights up on an NVIDIA card: use --device cuda");
    assert!(refused(&["gpt-oss-21b"]).contains("[possible values: gpt-oss-20b, gpt-oss-120b"));
    if !std::path::Path::new("/proc/driver/nvidia").exists() {
        let said = refused(&["gpt-oss-20b", "--device", "cuda"]);
        assert_eq!(said.trim(), "flint: no NVIDIA driver was found: install it, or use the CPU");
    }
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        check(flint().args(["completion", shell]), &["flint", "bench", "doctor"]);
    }
}

#[test]
fn help_teaches() {
    check(flint().arg("--help"), &["Examples:", "flint run --raw", "-m, --model", "flint quantize"]);
    check(flint().args(["models", "--help"]), &["flint pull NAME", "hf:OWNER/REPOSITORY"]);
    check(
        flint().args(["quantize", "--help"]),
        &["Examples:", "--to", "as-is", "--again", "--check", "-o, --output"],
    );
    check(flint().args(["bench", "--help"]), &["--peer", "--json", "llama.cpp", "--shape", "--precision"]);
}

#[test]
fn pulling_what_is_here_says_where() {
    let path = check(flint().args(["pull", MODEL]), &[MODEL]);
    assert!(std::path::Path::new(path.trim()).exists());
}

/// What stands under a key of a report: a number above 0.
fn figure(of: &Value, key: &str) -> f64 {
    let value = of[key].as_f64().filter(|value| *value > 0.0 && value.is_finite());
    value.unwrap_or_else(|| panic!("no {key} in {of:#}"))
}

#[test]
fn bench_reports_in_json() {
    let args = ["bench", "-m", MODEL, "--json", "--rounds", "1", "--only", "512"];
    let report: Value = serde_json::from_str(&check(flint().args(args), &[])).unwrap();
    let results = report["results"].as_array().unwrap();
    let names: Vec<&str> = results.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["prefill_512", "decode_d512"]);
    assert!(results.iter().all(|row| row["value"].as_f64().unwrap() > 1.0 && row["unit"] == "tok/s"));
    assert!(results.iter().all(|row| row["peer"].is_null() && row["ratio"].is_null()));
    for row in results {
        let share = figure(row, "value") / figure(row, "floor");
        assert!((figure(row, "share") / share - 1.0).abs() < 1e-6, "{row:#}");
    }
    // What the machine was measured to do, of which the floors follow: some gigabytes and more operations a second.
    let (read, int8) = (figure(&report, "read_gb_per_s"), figure(&report, "int8_gop_per_s"));
    assert!(read > 0.1 && int8 > 1.0, "{report:#}");
    // Bytes read for a token, KV among them. The floor is of one moment, the other figure of several.
    let weights = read / figure(&results[1], "floor") * 1e9;
    let file = figure(&report, "file_bytes");
    assert_eq!(file, model_file().metadata().unwrap().len() as f64);
    assert!((0.25..4.0).contains(&(weights / file)), "{weights} bytes of {file}");
    assert_eq!((figure(&report, "threads") >= 1.0, figure(&report, "rounds")), (true, 1.0));
    assert_eq!(report["fidelity"], Value::Null, "nobody asked for it");
}

#[test]
fn bench_says_what_masks_cost_greedy_and_sampled() {
    let args = ["bench", "-m", MODEL, "--json", "--rounds", "1", "--only", "json"];
    let report: Value = serde_json::from_str(&check(flint().args(args), &[])).unwrap();
    let results = report["results"].as_array().unwrap();
    let names: Vec<&str> = results.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["json_masked", "json_forced", "json_masked_sampled", "free_guessed"]);
    for row in results {
        let ratio = figure(row, "value") / figure(row, "peer");
        assert!((figure(row, "ratio") / ratio - 1.0).abs() < 1e-6 && row["unit"] == "ms", "{row:#}");
    }
}

/// Speed is worth what it costs in the model's words: that is in the same report.
#[test]
fn bench_reports_fidelity_beside_speed() {
    let args = ["bench", "-m", MODEL, "--json", "--rounds", "1", "--only", "none", "--fidelity"];
    let report: Value = serde_json::from_str(&check(flint().args(args), &[])).unwrap();
    let fidelity = &report["fidelity"];
    let [tokens, plain] = ["tokens", "plain_tokens"].map(|key| figure(fidelity, key));
    assert!(tokens > 2000.0 && (1.0..=tokens).contains(&plain), "{fidelity}");
    assert!(
        figure(fidelity, "perplexity") < 100.0 && figure(fidelity, "plain_perplexity") < 1000.0,
        "{fidelity}"
    );
    assert!((figure(fidelity, "plain_ratio") - 1.0).abs() < 0.1, "{fidelity}");
    assert!((0.8 * plain..=plain).contains(&figure(fidelity, "same_top")), "{fidelity}");
    assert_eq!(fidelity["peer"], Value::Null);
}

#[test]
fn bench_writes_the_edits_that_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edits");
    let text: Vec<u32> = (0..80).map(|at| 1000 + at * 37).collect();
    let trace =
        |answer: &[u32]| serde_json::json!({"kind": "copies", "name": "a", "prompt": text, "answer": answer});
    let bench = |path: &std::path::Path| {
        let mut command = flint();
        command
            .args(["bench", "-m", MODEL, "--json", "--rounds", "1", "--only", "none", "--edits"])
            .arg(path);
        command
    };
    std::fs::write(&path, trace(&text).to_string()).unwrap();
    let report: Value = serde_json::from_str(&check(&mut bench(&path), &[])).unwrap();
    let edits = &report["edits"][0];
    assert_eq!(edits["tokens"], 79, "{report}");
    // How much is guessed depends on the machine's pace; what is guessed of a copy is right.
    let count = |name: &str| edits[name].as_u64().unwrap();
    assert_eq!(count("accepted"), count("drafted"), "{report}");
    assert_eq!(count("accepted") + count("passes"), 79, "{report}");
    std::fs::write(&path, trace(&[1, u32::MAX]).to_string()).unwrap();
    assert!(stderr(&run(&mut bench(&path), "")).contains("the model has no token 4294967295"));
}
