//! GGUF files that are broken as files: cut short, with counts and offsets that lie.

use super::gguf_writer::{Item, WriterTensor, kind, string};
use super::{Bad, changed, gguf, tiny};

pub(crate) fn cases() -> Vec<Bad> {
    let mut cases = truncations();
    cases.extend(preamble());
    cases.extend(keys());
    cases.extend(values());
    cases.extend(alignments());
    cases.extend(tables());
    cases.extend(places());
    cases
}

/// The valid file cut off at `at`.
fn cut(name: &'static str, at: usize, expected: &[&'static str]) -> Bad {
    gguf(name, tiny::gguf("llama").write()[..at].to_vec(), expected)
}

fn truncations() -> Vec<Bad> {
    let (bytes, sections) = tiny::gguf("llama").write_with_sections();
    vec![
        cut("gguf-empty", 0, &["model.gguf: ends inside the magic number: 4 bytes are needed, 0 are left"]),
        cut("gguf-cut-in-magic", 2, &["the magic number", "4 bytes are needed, 2 are left"]),
        cut("gguf-cut-in-version", 6, &["ends inside the version", "get it again"]),
        cut("gguf-cut-in-tensor-count", 12, &["ends inside the number of tensors"]),
        cut("gguf-cut-in-key-count", 20, &["ends inside the number of metadata keys"]),
        cut("gguf-cut-before-keys", sections.values, &["ends inside the name of metadata key 0"]),
        cut(
            "gguf-cut-in-key",
            sections.values + 12,
            &["the name of metadata key 0: 20 bytes are needed, 4 are"],
        ),
        cut("gguf-cut-in-type", sections.values + 30, &["the type of \"general.architecture\""]),
        cut("gguf-cut-in-value", sections.values + 42, &["ends inside \"general.architecture\""]),
        cut("gguf-cut-before-table", sections.tensors, &["ends inside the name of tensor 0"]),
        cut("gguf-cut-in-table", sections.tensors + 27, &["the shape of \"token_embd.weight\""]),
        cut(
            "gguf-cut-before-data",
            sections.data,
            &["ends inside \"token_embd.weight\": 288 bytes are needed, 0"],
        ),
        cut("gguf-cut-in-data", sections.data + 700, &["bytes are needed"]),
        cut(
            "gguf-cut-last-byte",
            bytes.len() - 1,
            &["\"blk.0.ffn_down.weight\": 1152 bytes are needed, 1151"],
        ),
    ]
}

fn preamble() -> Vec<Bad> {
    vec![
        changed(
            "gguf-wrong-magic",
            "llama",
            |file| file.magic = *b"GGML",
            &["the magic number is [47, 47, 4d, 4c]"],
        ),
        changed("gguf-version-1", "llama", |file| file.version = 1, &["the version is 1, expected 2 or 3"]),
        changed("gguf-version-4", "llama", |file| file.version = 4, &["the version is 4, expected 2 or 3"]),
        changed("gguf-big-endian", "llama", |file| file.version = 3 << 24, &["the byte order is big-endian"]),
        changed(
            "gguf-tensors-huge",
            "llama",
            |file| file.tensor_count = Some(u64::MAX),
            &["the number of tensors is 18446744073709551615, expected at most 262144"],
        ),
        changed(
            "gguf-tensors-many",
            "llama",
            |file| file.tensor_count = Some(262_144),
            &["the name of tensor"],
        ),
        changed(
            "gguf-keys-huge",
            "llama",
            |file| file.key_count = Some(1 << 60),
            &["the number of metadata keys is", "at most 16384"],
        ),
        changed(
            "gguf-keys-one-more",
            "llama",
            |file| file.key_count = Some(file.values.len() as u64 + 1),
            &["model.gguf: ends inside the name of tensor 0"],
        ),
        changed(
            "gguf-keys-one-less",
            "llama",
            |file| file.key_count = Some(file.values.len() as u64 - 1),
            &["the shape of", "dimensions"],
        ),
    ]
}

fn keys() -> Vec<Bad> {
    let named = |name: &'static str, key: Vec<u8>, expected: &[&'static str]| {
        changed(name, "llama", |file| file.values.insert(0, (key.clone(), Item::u32(0))), expected)
    };
    vec![
        named("gguf-key-empty", Vec::new(), &["the name of metadata key 0 is 0 bytes long"]),
        named(
            "gguf-key-long",
            vec![b'k'; 600],
            &["the name of metadata key 0 is 600 bytes long, expected 1 to 512"],
        ),
        named(
            "gguf-key-not-utf8",
            vec![b'k', 0xFF],
            &["metadata key 0 is invalid utf-8", "expected UTF-8 text"],
        ),
        named(
            "gguf-key-twice",
            b"general.architecture".to_vec(),
            &["\"general.architecture\" is there twice"],
        ),
        gguf("gguf-key-length-huge", key_of_length(u64::MAX), &["18446744073709551615 bytes are needed"]),
        gguf("gguf-key-length-past-end", key_of_length(1 << 20), &["key 0: 1048576 bytes are needed"]),
    ]
}

/// A file whose first key claims to be `len` bytes long.
fn key_of_length(len: u64) -> Vec<u8> {
    let (mut bytes, sections) = tiny::gguf("llama").write_with_sections();
    bytes[sections.values..sections.values + 8].copy_from_slice(&len.to_le_bytes());
    bytes
}

fn values() -> Vec<Bad> {
    let valued = |name: &'static str, item: Item, expected: &[&'static str]| {
        changed(name, "llama", |file| file.values.insert(0, (b"odd".to_vec(), item.clone())), expected)
    };
    let long = |len: u64| len.to_le_bytes().to_vec();
    let nested = |inner: &Item| Item::array(kind::ARRAY, 1, &inner.bytes);
    let three = nested(&nested(&nested(&Item::i32s(&[1]))));
    vec![
        valued("gguf-type-unknown", Item::new(13, []), &["the type of \"odd\" is 13, expected 0 to 12"]),
        valued(
            "gguf-string-huge",
            Item::new(kind::STRING, long(u64::MAX)),
            &["ends inside \"odd\"", "18446744073709551615 bytes"],
        ),
        valued(
            "gguf-string-not-utf8",
            Item::new(kind::STRING, string(&[0xC3])),
            &["\"odd\" is incomplete utf-8"],
        ),
        valued(
            "gguf-bool-2",
            Item::new(kind::BOOL, [2]),
            &["\"odd\" is neither 0 nor 1, expected a boolean"],
        ),
        valued("gguf-array-type-unknown", Item::array(99, 0, &[]), &["the type of \"odd\" is 99"]),
        valued(
            "gguf-array-huge",
            Item::array(kind::U8, u64::MAX, &[]),
            &["the length of \"odd\" is 18446744073709551615", "16777216"],
        ),
        valued(
            "gguf-array-past-end",
            Item::array(kind::U64, 1 << 24, &[]),
            &["ends inside \"odd\": 134217728 bytes are needed"],
        ),
        valued(
            "gguf-strings-past-end",
            Item::array(kind::STRING, 1 << 24, &string(b"a")),
            &["element", "of \"odd\""],
        ),
        valued(
            "gguf-strings-not-utf8",
            Item::array(kind::STRING, 1, &string(&[0x80])),
            &["element 0 of \"odd\" is invalid utf-8"],
        ),
        valued("gguf-bools-7", Item::array(kind::BOOL, 2, &[0, 7]), &["\"odd\" is neither 0 nor 1"]),
        valued("gguf-arrays-deep", nested(&three), &["\"odd\" is nested deeper, expected at most 4 arrays"]),
        valued("gguf-arrays-bomb", Item::array(kind::ARRAY, 1 << 24, &[]), &["odd"]),
    ]
}

fn alignments() -> Vec<Bad> {
    let aligned = |name: &'static str, item: Item, expected: &[&'static str]| {
        changed(name, "llama", |file| file.set("general.alignment", item.clone()), expected)
    };
    vec![
        aligned("gguf-alignment-0", Item::u32(0), &["general.alignment is 0, expected a power of two"]),
        aligned("gguf-alignment-3", Item::u32(3), &["general.alignment is 3, expected a power of two"]),
        aligned(
            "gguf-alignment-huge",
            Item::u64(1 << 40),
            &["general.alignment is 1099511627776", "up to 1048576"],
        ),
        aligned(
            "gguf-alignment-text",
            Item::text("32"),
            &["general.alignment is a string, expected an unsigned"],
        ),
    ]
}

/// The tiny llama with its first tensor changed.
fn first(name: &'static str, change: impl Fn(&mut WriterTensor), expected: &[&'static str]) -> Bad {
    changed(name, "llama", |file| change(&mut file.tensors[0]), expected)
}

fn tables() -> Vec<Bad> {
    vec![
        first("gguf-tensor-unnamed", |tensor| tensor.name.clear(), &["the name of tensor 0 is 0 bytes long"]),
        first(
            "gguf-tensor-name-long",
            |tensor| tensor.name = vec![b't'; 513],
            &["tensor 0 is 513 bytes long"],
        ),
        first("gguf-tensor-name-not-utf8", |tensor| tensor.name = vec![0xFE], &["tensor 0 is invalid utf-8"]),
        first(
            "gguf-tensor-twice",
            |tensor| tensor.name = b"output_norm.weight".to_vec(),
            &["\"output_norm.weight\" is there twice, expected each tensor once"],
        ),
        first(
            "gguf-tensor-no-dimensions",
            |tensor| tensor.dimensions.clear(),
            &["the shape of \"token_embd.weight\" is 0 dimensions"],
        ),
        first(
            "gguf-tensor-5-dimensions",
            |tensor| tensor.dimensions = vec![32; 5],
            &["is 5 dimensions, expected 1 to 4"],
        ),
        first(
            "gguf-tensor-size-0",
            |tensor| tensor.dimensions[1] = 0,
            &["is [0, 32], expected sizes of at least 1"],
        ),
        first(
            "gguf-tensor-product-overflows",
            |tensor| tensor.dimensions = vec![1 << 40, 1 << 40],
            &["[1099511627776, 1099511627776], expected a size that fits"],
        ),
        first(
            "gguf-tensor-size-overflows",
            |tensor| tensor.dimensions = vec![u64::MAX - 31, 1],
            &["token_embd.weight"],
        ),
        first(
            "gguf-tensor-sum-overflows",
            |tensor| tensor.dimensions = vec![1 << 62, 3],
            &["ends inside \"token_embd.weight\": 7782220156096217088 bytes are needed"],
        ),
        first(
            "gguf-tensor-format-unknown",
            |tensor| tensor.format = 16,
            &[
                "the format of \"token_embd.weight\" is number 16, expected one of F32, F16",
                "choose another file",
            ],
        ),
        first("gguf-tensor-format-removed", |tensor| tensor.format = 4, &["is number 4"]),
        first(
            "gguf-tensor-part-block",
            |tensor| tensor.dimensions = vec![33, 16],
            &["is [16, 33], expected rows of whole Q4_0 blocks of 32"],
        ),
    ]
}

fn places() -> Vec<Bad> {
    vec![
        first(
            "gguf-offset-odd",
            |tensor| tensor.offset = Some(8),
            &["the offset of \"token_embd.weight\" is 8, expected a multiple of 32"],
        ),
        first(
            "gguf-offset-past-end",
            |tensor| tensor.offset = Some(1 << 40),
            &["ends inside \"token_embd.weight\": 288 bytes are needed, 0 are left"],
        ),
        first(
            "gguf-offset-overflows",
            |tensor| tensor.offset = Some(u64::MAX - 31),
            &["ends inside \"token_embd.weight\""],
        ),
        first(
            "gguf-tensor-past-end",
            |tensor| tensor.dimensions[1] = 1 << 30,
            &["ends inside \"token_embd.weight\": 19327352832 bytes"],
        ),
        first(
            "gguf-tensors-overlap",
            |tensor| tensor.offset = Some(320),
            &["inside \"", "expected tensors that do not overlap"],
        ),
        first(
            "gguf-tensors-in-one-place",
            |tensor| tensor.offset = Some(288),
            &["expected tensors that do not overlap"],
        ),
    ]
}
