//! What the files say of ends and beginnings is what generation gets.

use super::*;

/// Printable ASCII, then `<a>`, `<b>` and `<c>`, which are control tokens.
fn source(eos: &[u32]) -> TokenizerSource {
    let printable = ('!'..='~').map(String::from).chain(["\u{120}".into()]); // how the byte alphabet writes a space
    let controls = ["<a>", "<b>", "<c>"].map(String::from);
    let tokens: Vec<String> = printable.chain(controls).collect();
    let types = tokens.iter().map(|token| if token.len() == 3 { 3 } else { 1 }).collect();
    TokenizerSource {
        vocabulary: Vocabulary::Gguf(GgufVocabulary {
            model: "gpt2".into(),
            pre: Some("gpt-2".into()),
            types,
            tokens,
            scores: Vec::new(),
            merges: Vec::new(),
            unk: None,
            pad: None,
            add_space_prefix: None,
        }),
        chat_template: None,
        bos: Some(A),
        eos: eos.to_vec(),
        add_bos: Some(true),
        add_eos: None,
    }
}

const A: u32 = 95;
const B: u32 = 96;
const C: u32 = 97;

#[test]
fn every_end_that_a_file_names_stops() {
    let text = ModelText::new(source(&[C, A, B])).unwrap();
    assert_eq!(text.stop_tokens, [A, B, C]);
    assert_eq!(text.tokenizer.eos_ids(), [A, B, C]);
    assert_eq!(text.tokenizer.eos(), Some(C), "the first is the one that templates write");
}

#[test]
fn a_raw_text_begins_as_the_file_says() {
    let mut raw = source(&[B]);
    assert_eq!(ModelText::new(raw.clone()).unwrap().encode_raw("!<b>").unwrap(), [A, 0, 27, 65, 29]);
    raw.add_bos = Some(false);
    assert_eq!(ModelText::new(raw).unwrap().encode_raw("!").unwrap(), [0]);
}

#[test]
fn ends_of_a_folder_join_those_of_its_vocabulary() {
    let mut vocab = String::new();
    for (id, c) in ('!'..='~').chain(['\u{120}']).enumerate() {
        vocab += &format!("{:?}:{id},", c.to_string());
    }
    let json = format!(
        r#"{{"model":{{"type":"BPE","vocab":{{{vocab}"<|im_end|>":95}},"merges":[]}},
        "pre_tokenizer":{{"type":"ByteLevel"}},
        "added_tokens":[{{"id":95,"content":"<|im_end|>","special":true}}]}}"#
    );
    let folder = TokenizerSource { vocabulary: Vocabulary::Json(json.into()), ..source(&[7]) };
    assert_eq!(ModelText::new(folder).unwrap().stop_tokens, [7, 95]);
}

#[test]
fn a_broken_template_says_so() {
    let broken = TokenizerSource { chat_template: Some("{% if %}".into()), ..source(&[A]) };
    let error = ModelText::new(broken).unwrap_err().to_string();
    assert!(error.starts_with("chat template, line 1: "), "{error}");
}
