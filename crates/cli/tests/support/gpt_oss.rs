//! A server of a model that thinks: gpt-oss's own vocabulary and format, with a script in place of its weights.

use super::fetched;
use super::served::play;
use super::server::Server;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const VOCAB: u64 = 201_088;

/// Says these things: after the end of a message, what is written from `<|start|>assistant` on.
pub fn scripted(lines: &[(&str, &str)], rate: f64) -> Server {
    let home = tempfile::tempdir().unwrap();
    let model = folder(home.path());
    let cue =
        |(said, answer): &(&str, &str)| (format!("{said}<|end|><|start|>assistant"), answer.to_string());
    let script = play(home.path(), &lines.iter().map(cue).collect::<Vec<_>>(), Some(rate));
    Server::start_in(home, &["-m", model.to_str().unwrap(), "--scripted", &script])
}

/// A small model of the architecture, of whose weights there are only the names, shapes and places.
fn folder(home: &Path) -> PathBuf {
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/gpt-oss/folder");
    let folder = home.join("gpt-oss");
    fs::create_dir(&folder).unwrap();
    let mut config: Value = serde_json::from_slice(&fs::read(small.join("config.json")).unwrap()).unwrap();
    config["vocab_size"] = VOCAB.into();
    config["max_position_embeddings"] = 16_384.into();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let ends = json!({"eos_token_id": [200_002, 199_999, 200_012]});
    fs::write(folder.join("generation_config.json"), ends.to_string()).unwrap();
    let tokenizer = fetched("tokenizers/gpt-oss/tokenizer.json");
    std::os::unix::fs::symlink(tokenizer, folder.join("tokenizer.json")).unwrap();
    weights(&small.join("model.safetensors"), &folder.join("model.safetensors"));
    folder
}

/// The same tensors, with as many rows as the vocabulary where they had the small one's, and zeros for all values.
fn weights(small: &Path, large: &Path) {
    let mut size = [0; 8];
    let mut file = File::open(small).unwrap();
    file.read_exact(&mut size).unwrap();
    let mut header = vec![0; u64::from_le_bytes(size) as usize];
    file.read_exact(&mut header).unwrap();
    let mut header: serde_json::Map<String, Value> = serde_json::from_slice(&header).unwrap();
    header.remove("__metadata__");
    let mut end = 0;
    for tensor in header.values_mut() {
        if tensor["shape"][0] == 288 {
            tensor["shape"][0] = VOCAB.into();
        }
        let values: u64 =
            tensor["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).product();
        let begin = end;
        end += values * if tensor["dtype"] == "F32" { 4 } else { 2 };
        tensor["data_offsets"] = json!([begin, end]);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = File::create(large).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(&header).unwrap();
    file.set_len(8 + header.len() as u64 + end).unwrap();
}
