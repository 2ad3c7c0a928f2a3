//! Files that are right: every architecture and format, from GGUF and from folders, gives the same model.

#[path = "bad_files/folder_writer.rs"]
mod folder_writer;
#[path = "bad_files/gguf_writer.rs"]
mod gguf_writer;
#[path = "bad_files/temporary.rs"]
mod temporary;
#[path = "bad_files/tiny.rs"]
mod tiny;

use flint_engine::load::{ModelFile, Tensor, Vocabulary};
use flint_engine::model::config::{Arch, RopePairs};
use flint_engine::quant::{Format, dequantize_row};
use folder_writer::{Files, FolderWriter, SafetensorsWriter};
use gguf_writer::{GgufWriter, Item};
use serde_json::json;
use temporary::Temporary;
use tiny::{EXPERTS, FFN, HEAD_DIM, HEADS, HIDDEN, VOCAB, bytes, values};

fn open_gguf(file: &GgufWriter) -> ModelFile {
    let folder = Temporary::new(&Files::from([("model.gguf".into(), file.write())]));
    ModelFile::open(&folder.path("model.gguf")).unwrap_or_else(|error| panic!("{error}"))
}

fn open_folder(folder: &FolderWriter) -> ModelFile {
    let folder = Temporary::new(&folder.files());
    ModelFile::open(&folder.path("")).unwrap_or_else(|error| panic!("{error}"))
}

fn all(tensor: &Tensor) -> Vec<f32> {
    let mut out = vec![0.0; tensor.rows() * tensor.cols()];
    for (row, out) in out.chunks_exact_mut(tensor.cols()).enumerate() {
        tensor.row_f32(row, out);
    }
    out
}

/// Devices share tensors between threads and keep them as long as they like.
const _: fn() = || {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Tensor>();
};

#[test]
fn every_architecture_opens_from_gguf() {
    for (name, arch) in tiny::ARCHS.into_iter().zip(Arch::ALL) {
        let model = open_gguf(&tiny::gguf(name));
        let config = &model.config;
        assert_eq!(config.arch, arch);
        assert_eq!(
            (config.layers, config.hidden, config.heads, config.head_dim),
            (1, HIDDEN, HEADS, HEAD_DIM)
        );
        assert_eq!((config.ffn, config.vocab), (FFN, VOCAB));
        assert_eq!(
            config.experts.as_ref().map(|experts| experts.count),
            arch.has_experts().then_some(EXPERTS)
        );
        assert_eq!(config.window(0), (arch == Arch::GptOss).then_some(8));
        assert_eq!(config.window(1), None);
        let pairs = if arch == Arch::Llama { RopePairs::Adjacent } else { RopePairs::Halves };
        assert_eq!(config.rope.pairs, pairs);
        assert!(model.tied());
        assert!(model.bytes > 1000);
    }
}

/// The same numbers come out of both kinds of file, whatever they look like inside.
#[test]
fn folders_hold_what_gguf_files_hold() {
    for name in tiny::ARCHS {
        let gguf = open_gguf(&tiny::gguf_in(name, Format::F32));
        let folder = open_folder(&tiny::folder(name));
        assert_eq!(gguf.tensors().count(), folder.tensors().count(), "{name}");
        for expected in gguf.tensors() {
            let found = folder.tensor(&expected.name).unwrap();
            assert_eq!(found.shape, expected.shape, "{name} {}", found.name);
            assert_eq!(all(&found), all(expected), "{name} {}", found.name);
        }
        assert_eq!(gguf.config.rope.frequencies, folder.config.rope.frequencies, "{name}");
        assert_eq!(gguf.config.rope.magnitude, folder.config.rope.magnitude, "{name}");
    }
}

#[test]
fn every_format_is_read_as_it_lies() {
    let cols = 256;
    for format in Format::ALL.into_iter().filter(|format| format.ggml_type().is_some()) {
        let mut file = tiny::gguf("llama");
        let data: Vec<u8> = (0..VOCAB * format.row_bytes(cols)).map(|i| (i % 61) as u8).collect();
        widen(&mut file, cols);
        file.tensor("token_embd.weight").format = format.ggml_type().unwrap();
        file.tensor("token_embd.weight").data = data.clone();
        let tensor = open_gguf(&file).tensor("token_embd.weight").unwrap();
        for row in [0, VOCAB - 1] {
            let expected = &data[row * format.row_bytes(cols)..][..format.row_bytes(cols)];
            let (mut found, mut decoded) = (vec![0.0; cols], vec![0.0; cols]);
            assert_eq!(tensor.row_blocks(row, &mut Vec::new()), expected, "{}", format.name());
            tensor.row_f32(row, &mut found);
            dequantize_row(format, expected, &mut decoded);
            assert_eq!(bits(&found), bits(&decoded), "{}", format.name());
        }
        tensor.release();
        assert_eq!(tensor.row_blocks(0, &mut Vec::new()), &data[..format.row_bytes(cols)]);
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Makes the tiny llama `hidden` wide, so that its rows are whole blocks of any format.
fn widen(file: &mut GgufWriter, hidden: usize) {
    file.set("llama.embedding_length", Item::u32(hidden as u32));
    for tensor in &mut file.tensors {
        let name = String::from_utf8(tensor.name.clone()).unwrap();
        let sizes = tensor.dimensions.len();
        for (axis, size) in tensor.dimensions.iter_mut().enumerate() {
            let is_hidden = match name.as_str() {
                "blk.0.attn_output.weight" | "blk.0.ffn_down.weight" => axis + 1 == sizes,
                _ => axis == 0,
            };
            *size = if is_hidden { hidden as u64 } else { *size };
        }
        let len = tensor.dimensions.iter().product::<u64>() as usize;
        let format = Format::from_ggml_type(tensor.format).unwrap();
        tensor.data = bytes(&values(&name, len), format);
    }
}

#[test]
fn version_2_and_another_alignment_open() {
    let mut file = tiny::gguf("llama");
    file.version = 2;
    file.alignment = 64;
    file.set("general.alignment", Item::u32(64));
    open_gguf(&file);
}

#[test]
fn an_output_of_its_own_is_not_tied() {
    let mut file = tiny::gguf("llama");
    file.add(
        "output.weight",
        &[VOCAB, HIDDEN],
        Format::F16,
        bytes(&values("o", VOCAB * HIDDEN), Format::F16),
    );
    assert!(!open_gguf(&file).tied());
}

#[test]
fn rope_factors_divide_the_frequencies() {
    let plain = open_gguf(&tiny::gguf("llama")).config.rope.frequencies;
    let mut file = tiny::gguf("llama");
    let factors: Vec<f32> = (1..=HEAD_DIM / 2).map(|i| i as f32).collect();
    file.add("rope_freqs.weight", &[HEAD_DIM / 2], Format::F32, bytes(&factors, Format::F32));
    let scaled = open_gguf(&file).config.rope.frequencies;
    let expected: Vec<f32> = plain.iter().zip(&factors).map(|(f, factor)| f / factor).collect();
    assert_eq!(scaled, expected);
}

#[test]
fn the_tokenizer_of_a_gguf_file() {
    let source = open_gguf(&tiny::gguf("qwen2")).tokenizer().unwrap();
    assert_eq!((source.bos, source.eos.as_slice(), source.add_bos), (Some(0), &[1][..], Some(false)));
    assert_eq!(source.chat_template.as_deref(), Some("{{ messages }}"));
    let Vocabulary::Gguf(vocabulary) = source.vocabulary else { panic!("not from GGUF") };
    assert_eq!((vocabulary.model.as_str(), vocabulary.pre.as_deref()), ("gpt2", Some("qwen2")));
    assert_eq!(vocabulary.tokens[2], "c");
    assert_eq!(vocabulary.types, [1; VOCAB]);
    assert_eq!(vocabulary.merges, ["a b", "é c"]);
}

#[test]
fn the_ends_that_a_gguf_file_names() {
    let mut file = tiny::gguf("qwen2");
    file.set("tokenizer.ggml.eom_token_id", Item::u32(7));
    file.set("tokenizer.ggml.eot_token_id", Item::u32(9));
    assert_eq!(open_gguf(&file).tokenizer().unwrap().eos, [1, 9, 7], "eos, eot, eom");
    file.set("tokenizer.ggml.eot_token_id", Item::u32(1));
    assert_eq!(open_gguf(&file).tokenizer().unwrap().eos, [1, 7], "each once");
}

#[test]
fn the_tokenizer_of_a_folder() {
    let mut folder = tiny::folder("qwen2");
    folder.others.insert("chat_template.jinja".into(), b"{# newer #}".to_vec());
    let folder = Temporary::new(&folder.files());
    let source = ModelFile::open(&folder.path("")).unwrap().tokenizer().unwrap();
    assert_eq!(source.vocabulary, Vocabulary::Json(b"{}".to_vec()));
    assert_eq!((source.bos, source.eos, source.add_bos), (Some(0), vec![1, 2], Some(false)));
    assert_eq!(source.chat_template.as_deref(), Some("{# newer #}"));
}

#[test]
fn a_split_model_is_one_model() {
    let whole = tiny::gguf("qwen3");
    let folder = Temporary::new(&split(&whole, 3));
    let model =
        ModelFile::open(&folder.path("m-00001-of-00003.gguf")).unwrap_or_else(|error| panic!("{error}"));
    let expected = open_gguf(&whole);
    assert_eq!(model.config, expected.config);
    for tensor in expected.tensors() {
        assert_eq!(all(&model.tensor(&tensor.name).unwrap()), all(tensor));
    }
}

/// The tensors of a model dealt out over `count` files.
fn split(whole: &GgufWriter, count: usize) -> Files {
    let mut files = Files::new();
    for number in 0..count {
        let mut part = if number == 0 { whole.clone() } else { GgufWriter::new() };
        part.tensors = whole.tensors.iter().skip(number).step_by(count).cloned().collect();
        part.set("split.no", Item::u32(number as u32));
        part.set("split.count", Item::u32(count as u32));
        part.set("split.tensors.count", Item::i32(whole.tensors.len() as i32));
        files.insert(format!("m-{:05}-of-{count:05}.gguf", number + 1), part.write());
    }
    files
}

#[test]
fn shards_with_an_index_are_one_model() {
    let folder = tiny::folder("llama");
    let (mut files, mut map) = (folder.files(), serde_json::Map::new());
    files.remove("model.safetensors");
    let mut shards = [SafetensorsWriter::default(), SafetensorsWriter::default()];
    for (i, (name, entry)) in folder.weights.header.iter().enumerate() {
        let (start, end) = folder.weights.range(name);
        let shape: Vec<usize> = serde_json::from_value(entry["shape"].clone()).unwrap();
        shards[i % 2].add(name, "F32", &shape, &folder.weights.data[start..end]);
        map.insert(name.clone(), json!(format!("model-{}.safetensors", i % 2)));
    }
    for (i, shard) in shards.iter().enumerate() {
        files.insert(format!("model-{i}.safetensors"), shard.write());
    }
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
    files.insert("model.safetensors.index.json".into(), index.to_string().into_bytes());
    let sharded = Temporary::new(&files);
    let model = ModelFile::open(&sharded.path("")).unwrap_or_else(|error| panic!("{error}"));
    for tensor in open_folder(&folder).tensors() {
        assert_eq!(all(&model.tensor(&tensor.name).unwrap()), all(tensor));
    }
}

#[test]
fn half_precision_folders_keep_their_format() {
    for (dtype, format) in [("F16", Format::F16), ("BF16", Format::Bf16)] {
        let mut folder = tiny::folder("llama");
        folder.weights.remove("model.embed_tokens.weight");
        let data = bytes(&values("token_embd.weight", VOCAB * HIDDEN), format);
        folder.weights.add("model.embed_tokens.weight", dtype, &[VOCAB, HIDDEN], &data);
        let tensor = open_folder(&folder).tensor("token_embd.weight").unwrap();
        assert_eq!(tensor.format, format);
        assert_eq!(tensor.row_blocks(1, &mut Vec::new()), &data[HIDDEN * 2..HIDDEN * 4]);
    }
}

#[test]
fn experts_fused_by_halves_are_taken_apart() {
    let mut folder = tiny::folder("qwen3moe");
    let apart = open_folder(&folder);
    let name = |expert: usize, part: &str| format!("model.layers.0.mlp.experts.{expert}.{part}_proj.weight");
    let (mut wide, mut down) = (Vec::new(), Vec::new());
    for expert in 0..EXPERTS {
        for part in ["gate", "up", "down"] {
            let (start, end) = folder.weights.range(&name(expert, part));
            let data = folder.weights.data[start..end].to_vec();
            if part == "down" {
                down.extend(data)
            } else {
                wide.extend(data)
            }
            folder.weights.remove(&name(expert, part));
        }
    }
    let prefix = "model.layers.0.mlp.experts";
    folder.weights.add(&format!("{prefix}.gate_up_proj"), "F32", &[EXPERTS, 2 * FFN, HIDDEN], &wide);
    folder.weights.add(&format!("{prefix}.down_proj"), "F32", &[EXPERTS, HIDDEN, FFN], &down);
    let fused = open_folder(&folder);
    for tensor in apart.tensors() {
        assert_eq!(all(&fused.tensor(&tensor.name).unwrap()), all(tensor), "{}", tensor.name);
    }
}

/// 16 bytes of neighbouring nibbles and a scale, as gpt-oss's folders have them, and the block they make.
fn mxfp4_block(seed: usize) -> ([u8; 16], u8, Vec<u8>) {
    let codes: Vec<u8> = (0..32).map(|i| ((i * 7 + seed * 5) % 16) as u8).collect();
    let scale = 120 + (seed % 9) as u8;
    let mut pairs = [0; 16];
    for (i, pair) in pairs.iter_mut().enumerate() {
        *pair = codes[2 * i] | codes[2 * i + 1] << 4;
    }
    let mut block = vec![scale];
    block.extend((0..16).map(|i| codes[i] | codes[i + 16] << 4));
    (pairs, scale, block)
}

#[test]
fn mxfp4_experts_are_put_in_block_order() {
    let mut folder = tiny::folder("gpt-oss");
    let prefix = "model.layers.0.mlp.experts";
    for (name, rows, cols) in [("gate_up_proj", 2 * FFN, HIDDEN), ("down_proj", HIDDEN, FFN)] {
        let (mut blocks, mut scales) = (Vec::new(), Vec::new());
        for seed in 0..EXPERTS * rows * cols / 32 {
            let (pairs, scale, _) = mxfp4_block(seed);
            blocks.extend(pairs);
            scales.push(scale);
        }
        folder.weights.remove(&format!("{prefix}.{name}"));
        folder.weights.add(
            &format!("{prefix}.{name}_blocks"),
            "U8",
            &[EXPERTS, rows, cols / 32, 16],
            &blocks,
        );
        folder.weights.add(&format!("{prefix}.{name}_scales"), "U8", &[EXPERTS, rows, cols / 32], &scales);
    }
    folder.config["quantization_config"] = json!({"quant_method": "mxfp4"});
    let model = open_folder(&folder);
    let row = |name: &str, row: usize| {
        let tensor = model.tensor(&format!("blk.0.ffn_{name}_exps.weight")).unwrap();
        assert_eq!(tensor.format, Format::Mxfp4);
        let mut scratch = Vec::new();
        let blocks = tensor.row_blocks(row, &mut scratch).to_vec();
        let (mut values, mut expected) = (vec![0.0; tensor.cols()], vec![0.0; tensor.cols()]);
        tensor.row_f32(row, &mut values);
        dequantize_row(Format::Mxfp4, &blocks, &mut expected);
        assert_eq!(values, expected);
        blocks
    };
    // Stored rows hold one block each where rows are 32 wide; gate has the even ones and up the odd.
    assert_eq!(row("gate", FFN + 3), mxfp4_block(2 * (FFN + 3)).2);
    assert_eq!(row("up", FFN + 3), mxfp4_block(2 * (FFN + 3) + 1).2);
    let down = HIDDEN + 5;
    assert_eq!(row("down", down), [mxfp4_block(2 * down).2, mxfp4_block(2 * down + 1).2].concat());
}

/// e4m3 one and its neighbours: 1, 1.125, 1.25, ...
fn fp8_codes(len: usize) -> Vec<u8> {
    (0..len).map(|i| 0x38 + (i % 5) as u8).collect()
}

#[test]
fn fp8_tiles_have_their_scales() {
    let mut folder = tiny::folder("qwen3moe");
    folder.config["quantization_config"] = json!({"quant_method": "fp8", "weight_block_size": [24, 16]});
    for name in ["self_attn.q_proj", "mlp.experts.0.gate_proj", "mlp.experts.1.gate_proj"] {
        let name = format!("model.layers.0.{name}.weight");
        let rows = if name.contains("experts") { FFN } else { HIDDEN };
        folder.weights.remove(&name);
        folder.weights.add(&name, "F8_E4M3", &[rows, HIDDEN], &fp8_codes(rows * HIDDEN));
        let tiles = [rows.div_ceil(24), HIDDEN.div_ceil(16)];
        let scales: Vec<f32> = (0..tiles[0] * tiles[1]).map(|i| 0.5 + i as f32).collect();
        folder.weights.add(&format!("{name}_scale_inv"), "F32", &tiles, &bytes(&scales, Format::F32));
    }
    let model = open_folder(&folder);
    for (name, row, first_scale) in
        [("blk.0.attn_q.weight", 25, 2.5), ("blk.0.ffn_gate_exps.weight", FFN + 50, 4.5)]
    {
        let tensor = model.tensor(name).unwrap();
        assert_eq!((tensor.format, tensor.tile()), (Format::Fp8, Some((24, 16))));
        let local = if tensor.shape.len() == 3 { row - FFN } else { row };
        let mut values = vec![0.0; HIDDEN];
        tensor.row_f32(row, &mut values);
        for (col, value) in values.iter().enumerate() {
            let scale = first_scale + (col / 16) as f32;
            assert_eq!(*value, (1.0 + ((local * HIDDEN + col) % 5) as f32 / 8.0) * scale, "{name} {col}");
        }
        assert_eq!(tensor.tile_scale(row, 1), first_scale + 1.0);
    }
}
