//! Tokenizers from hostile files: a clear error, or a tokenizer that works.

use flint_text::limits::{TOKEN_BYTES_MAX, VOCAB_TOKENS_MAX};
use flint_text::{GgufVocab, Segment, TokenKind, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The 256 characters that stand for bytes, in the order of their tokens here.
fn byte_tokens() -> Vec<String> {
    let itself = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let plain = (0..=255u8).filter(itself).map(char::from);
    let shifted = (0..=255u8).filter(|b| !itself(b)).zip('\u{100}'..).map(|(_, c)| c);
    plain.chain(shifted).map(String::from).collect()
}

/// Bytes, two merges, a control token, a marker, a verbatim token and a hole.
fn vocab() -> GgufVocab {
    let extra = ["ab", "abc", "<|end|>", "<tool>", "\t\t", "[PAD]"].map(str::to_owned);
    let tokens: Vec<String> = byte_tokens().into_iter().chain(extra).collect();
    let types = std::iter::repeat_n(1, 258).chain([3, 4, 4, 5]).collect();
    GgufVocab {
        model: "gpt2".into(),
        pre: "gpt-2".into(),
        merges: vec!["a b".into(), "ab c".into()],
        bos: Some(258),
        ends: vec![258],
        tokens,
        types,
        ..GgufVocab::default()
    }
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode_text(text, &mut ids).unwrap();
    ids
}

#[test]
fn kinds_of_tokens() {
    let tokenizer = Tokenizer::from_gguf(vocab()).unwrap();
    assert_eq!(ids(&tokenizer, "abc"), [257]);
    assert_eq!(ids(&tokenizer, "x\t\tab").last(), Some(&256));
    assert!(ids(&tokenizer, "x\t\tab").contains(&260));
    for text in ["<|end|>", "<tool>", "[PAD]"] {
        assert!(ids(&tokenizer, text).iter().all(|&id| id < 256), "{text}");
    }
    let kinds: Vec<TokenKind> = (257..263).map(|id| tokenizer.kind(id)).collect();
    use TokenKind::{Control, Marker, Text, Unused, Verbatim};
    assert_eq!(kinds, [Text, Control, Marker, Verbatim, Unused, Unused]);
    assert_eq!(tokenizer.controls().literals(), ["<|end|>", "<tool>"]);
    assert_eq!(tokenizer.decode(&[257, 258, 259, 9999, 257]), "abc<tool>abc");
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.eos_ids()), (Some(258), Some(258), &[258][..]));
    assert_eq!((tokenizer.vocab_size(), tokenizer.add_bos()), (262, false));
    assert_eq!(tokenizer.token_bytes(u32::MAX), b"");
    let mut out = Vec::new();
    tokenizer
        .encode_segments(&[Segment::Text("ab".into()), Segment::Control("<tool>".into())], &mut out)
        .unwrap();
    assert_eq!(out, [256, 259]);
}

#[test]
fn bad_gguf_metadata_is_named() {
    let error = |change: &dyn Fn(&mut GgufVocab)| {
        let mut bad = vocab();
        change(&mut bad);
        Tokenizer::from_gguf(bad).unwrap_err().to_string()
    };
    for (problem, change) in [
        (
            "tokenizer.ggml.model: \"bert\" is not supported",
            &(|v: &mut GgufVocab| v.model = "bert".into()) as &dyn Fn(&mut GgufVocab),
        ),
        ("tokenizer.ggml.pre: unknown pre-tokenizer \"klingon\"", &|v| v.pre = "klingon".into()),
        ("tokens: the vocabulary is empty", &|v| (v.tokens, v.types, v.merges) = Default::default()),
        ("token_type: 261 entries for 262 tokens", &|v| v.types.truncate(261)),
        ("token 0 has the type 77", &|v| v.types[0] = 77),
        ("merge 0 is \"ab\", expected two parts", &|v| v.merges[0] = "ab".into()),
        ("merge 1, \"x\" with \"yz\", is not of tokens", &|v| v.merges[1] = "x yz".into()),
        ("merge 1, \"\u{4e00}\" with \"a\"", &|v| v.merges[1] = "\u{4e00} a".into()),
        ("merge 1, \"\" with \"\"", &|v| v.merges[1] = " ".into()),
        ("no token for '!'", &|v| v.tokens[0] = "zz".into()),
        ("at most 1048576 tokens of 4096 bytes", &|v| v.tokens[3] = "a".repeat(TOKEN_BYTES_MAX + 1)),
    ] {
        let error = error(change);
        assert!(error.contains(problem), "{error}");
    }
    // Ids outside the vocabulary are as good as none.
    let odd = GgufVocab { bos: Some(u32::MAX), ends: vec![262], add_bos: Some(true), ..vocab() };
    let tokenizer = Tokenizer::from_gguf(odd).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.add_bos()), (None, None, false));
}

fn file() -> Value {
    let vocab: serde_json::Map<String, Value> = byte_tokens()
        .into_iter()
        .chain(["ab".into()])
        .zip(0..)
        .map(|(token, id)| (token, json!(id)))
        .collect();
    json!({
        "added_tokens": [{"id": 300, "content": "<|end|>", "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "post_processor": {"single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {}}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]]},
    })
}

fn from_json(file: &Value) -> Result<Tokenizer, String> {
    Tokenizer::from_json(file.to_string().as_bytes()).map_err(|e| e.to_string())
}

#[test]
fn bad_json_is_named() {
    let good = from_json(&file()).unwrap();
    assert_eq!(
        (ids(&good, "ab"), good.vocab_size(), good.bos(), good.add_bos()),
        (vec![256], 301, Some(300), true)
    );
    for (problem, path, value) in [
        ("missing field `model`", "", json!({})),
        ("model.type: \"Unigram\" is not supported", "/model/type", json!("Unigram")),
        ("byte_fallback", "/model/byte_fallback", json!(true)),
        ("continuing_subword_prefix", "/model/continuing_subword_prefix", json!("##")),
        ("the highest id is 4294967295", "/model/vocab/ab", json!(u32::MAX)),
        ("invalid value: integer `-1`", "/model/vocab/ab", json!(-1)),
        ("merge 0, \"a\" with \"zz\"", "/model/merges/0", json!(["a", "zz"])),
        ("merge 0 is \"ab\", expected two parts", "/model/merges/0", json!("ab")),
        ("data did not match", "/model/merges/0", json!(["a", "b", "c"])),
        ("normalizer: \"NFKC\" is not supported", "/normalizer", json!({"type": "NFKC"})),
        ("add_prefix_space is not supported", "/pre_tokenizer/add_prefix_space", json!(true)),
        ("the step \"Metaspace\" is not supported", "/pre_tokenizer/type", json!("Metaspace")),
        (
            "other than \"Isolated\"",
            "/pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Removed"}),
        ),
        (
            "look-around",
            "/pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "a(?=b)"}, "behavior": "Isolated"}),
        ),
        ("without a pattern", "/pre_tokenizer", json!({"type": "Split", "behavior": "Isolated"})),
        (
            "at most 8 entries",
            "/pre_tokenizer",
            json!({"type": "Sequence", "pretokenizers": vec![json!({"type": "Digits"}); 9]}),
        ),
    ] {
        let mut bad = file();
        match path.rsplit_once('/') {
            None => bad = value,
            Some((parent, key)) => match bad.pointer_mut(parent).unwrap() {
                Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
                parent => parent[key] = value,
            },
        }
        let error = from_json(&bad).map(|_| ()).expect_err(problem);
        assert!(error.contains(problem), "{error}");
    }
    assert!(Tokenizer::from_json(b"").is_err());
    assert!(Tokenizer::from_json(&b"[".repeat(100_000)).is_err());
    let too_many: String = (0..=VOCAB_TOKENS_MAX).map(|i| format!(",\"x{i}\":{i}")).collect();
    let too_many = format!("{{\"model\":{{\"merges\":[],\"vocab\":{{{}}}}}}}", &too_many[1..]);
    let error = Tokenizer::from_json(too_many.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("at most 1048576 tokens"), "{error}");
}

#[test]
fn a_literal_split_isolates_the_literal() {
    let mut split = file();
    split["pre_tokenizer"] = json!({"type": "Split", "pattern": {"String": "b."}, "behavior": "Isolated"});
    assert_eq!(ids(&from_json(&split).unwrap(), "ab.ab").last(), Some(&256));
    assert_ne!(ids(&from_json(&split).unwrap(), "ab.").first(), Some(&256));
}

proptest! {
    #[test]
    fn text_survives(text in "\\PC{0,60}") {
        let tokenizer = Tokenizer::from_gguf(vocab()).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids(&tokenizer, &text)), text);
    }
}
