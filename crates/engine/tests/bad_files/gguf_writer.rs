//! Writes GGUF files, right or wrong: every count, length and offset can be replaced by a lie.
#![allow(dead_code, unreachable_pub)] // shared by test crates, each of which uses its own part

use flint_engine::quant::Format;

/// A value with its type number.
#[derive(Debug, Clone)]
pub struct Item {
    pub kind: u32,
    pub bytes: Vec<u8>,
}

pub mod kind {
    pub const U8: u32 = 0;
    pub const I32: u32 = 5;
    pub const U32: u32 = 4;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
}

impl Item {
    pub fn new(kind: u32, bytes: impl Into<Vec<u8>>) -> Item {
        Item { kind, bytes: bytes.into() }
    }

    pub fn u32(value: u32) -> Item {
        Item::new(kind::U32, value.to_le_bytes())
    }

    pub fn i32(value: i32) -> Item {
        Item::new(kind::I32, value.to_le_bytes())
    }

    pub fn u64(value: u64) -> Item {
        Item::new(kind::U64, value.to_le_bytes())
    }

    pub fn f32(value: f32) -> Item {
        Item::new(kind::F32, value.to_le_bytes())
    }

    pub fn bool(value: bool) -> Item {
        Item::new(kind::BOOL, [u8::from(value)])
    }

    pub fn text(text: &str) -> Item {
        Item::new(kind::STRING, string(text.as_bytes()))
    }

    /// An array whose bytes are given.
    pub fn array(of: u32, len: u64, bytes: &[u8]) -> Item {
        Item::new(kind::ARRAY, [&of.to_le_bytes()[..], &len.to_le_bytes(), bytes].concat())
    }

    pub fn texts<T: AsRef<str>>(texts: &[T]) -> Item {
        let bytes: Vec<u8> = texts.iter().flat_map(|text| string(text.as_ref().as_bytes())).collect();
        Item::array(kind::STRING, texts.len() as u64, &bytes)
    }

    pub fn i32s(values: &[i32]) -> Item {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Item::array(kind::I32, values.len() as u64, &bytes)
    }

    pub fn f32s(values: &[f32]) -> Item {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Item::array(kind::F32, values.len() as u64, &bytes)
    }
}

/// A length-prefixed string.
pub fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}

#[derive(Debug, Clone)]
pub struct WriterTensor {
    pub name: Vec<u8>,
    pub dimensions: Vec<u64>, // innermost first, as in the file
    pub format: u32,
    pub offset: Option<u64>, // `None`: where the data really is
    pub data: Vec<u8>,
}

#[derive(Debug, Clone)]
pub struct GgufWriter {
    pub magic: [u8; 4],
    pub version: u32,
    pub alignment: u64, // that the data is laid out with; the key is the caller's
    pub tensor_count: Option<u64>,
    pub key_count: Option<u64>,
    pub values: Vec<(Vec<u8>, Item)>,
    pub tensors: Vec<WriterTensor>,
}

/// Where the parts of a written file begin, for cutting it short.
#[derive(Debug, Clone, Copy)]
pub struct Sections {
    pub values: usize,
    pub tensors: usize,
    pub data: usize,
}

impl GgufWriter {
    pub fn new() -> GgufWriter {
        GgufWriter {
            magic: *b"GGUF",
            version: 3,
            alignment: 32,
            tensor_count: None,
            key_count: None,
            values: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// Sets a key, replacing it where it is there already.
    pub fn set(&mut self, key: &str, item: Item) {
        match self.values.iter_mut().find(|(name, _)| name == key.as_bytes()) {
            Some((_, old)) => *old = item,
            None => self.values.push((key.as_bytes().to_vec(), item)),
        }
    }

    pub fn remove(&mut self, key: &str) {
        self.values.retain(|(name, _)| name != key.as_bytes());
    }

    /// Adds a tensor; `shape` is outermost first.
    pub fn add(&mut self, name: &str, shape: &[usize], format: Format, data: Vec<u8>) {
        self.tensors.push(WriterTensor {
            name: name.as_bytes().to_vec(),
            dimensions: shape.iter().rev().map(|size| *size as u64).collect(),
            format: format.ggml_type().expect("a format of GGUF"),
            offset: None,
            data,
        });
    }

    pub fn tensor(&mut self, name: &str) -> &mut WriterTensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name.as_bytes()).expect(name)
    }

    pub fn remove_tensor(&mut self, name: &str) {
        self.tensors.retain(|tensor| tensor.name != name.as_bytes());
    }

    pub fn write(&self) -> Vec<u8> {
        self.write_with_sections().0
    }

    pub fn write_with_sections(&self) -> (Vec<u8>, Sections) {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.values.len() as u64).to_le_bytes());
        let values = out.len();
        for (key, item) in &self.values {
            out.extend(string(key));
            out.extend(item.kind.to_le_bytes());
            out.extend(&item.bytes);
        }
        let tensors = out.len();
        self.write_table(&mut out);
        let data = out.len();
        for tensor in &self.tensors {
            self.pad(&mut out);
            out.extend(&tensor.data);
        }
        (out, Sections { values, tensors, data })
    }

    fn write_table(&self, out: &mut Vec<u8>) {
        let mut at = 0;
        for tensor in &self.tensors {
            out.extend(string(&tensor.name));
            out.extend((tensor.dimensions.len() as u32).to_le_bytes());
            out.extend(tensor.dimensions.iter().flat_map(|size| size.to_le_bytes()));
            out.extend(tensor.format.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(at).to_le_bytes());
            at = (at + tensor.data.len() as u64).next_multiple_of(self.alignment);
        }
    }

    fn pad(&self, out: &mut Vec<u8>) {
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
    }
}
