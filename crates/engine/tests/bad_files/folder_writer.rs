//! Writes Hugging Face folders, right or wrong.
#![allow(dead_code, unreachable_pub)] // shared by test crates, each of which uses its own part

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The files of a folder by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A safetensors file: its header is free to say anything.
#[derive(Debug, Clone, Default)]
pub struct SafetensorsWriter {
    pub header: Map<String, Value>,
    pub data: Vec<u8>,
    pub header_len: Option<u64>, // `None`: the true one
}

impl SafetensorsWriter {
    pub fn add(&mut self, name: &str, dtype: &str, shape: &[usize], data: &[u8]) {
        let start = self.data.len();
        self.data.extend(data);
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, self.data.len()]});
        self.header.insert(name.into(), entry);
    }

    /// Drops an entry and its data, so that the others still lie back to back.
    pub fn remove(&mut self, name: &str) {
        let (start, end) = self.range(name);
        self.header.remove(name);
        self.data.drain(start..end);
        for entry in self.header.values_mut() {
            for offset in entry["data_offsets"].as_array_mut().expect("offsets") {
                let old = offset.as_u64().expect("an offset") as usize;
                *offset = json!(if old >= end { old - (end - start) } else { old });
            }
        }
    }

    pub fn range(&self, name: &str) -> (usize, usize) {
        let offsets = &self.header[name]["data_offsets"];
        (offsets[0].as_u64().expect("start") as usize, offsets[1].as_u64().expect("end") as usize)
    }

    pub fn write(&self) -> Vec<u8> {
        self.write_header(serde_json::to_string(&self.header).expect("JSON").as_bytes())
    }

    /// With another header text before the same data.
    pub fn write_header(&self, header: &[u8]) -> Vec<u8> {
        let len = self.header_len.unwrap_or(header.len() as u64);
        [&len.to_le_bytes()[..], header, &self.data].concat()
    }
}

/// A folder with one weights file.
#[derive(Debug, Clone)]
pub struct FolderWriter {
    pub config: Value,
    pub weights: SafetensorsWriter,
    pub others: Files,
}

impl FolderWriter {
    pub fn files(&self) -> Files {
        let mut files = self.others.clone();
        files.entry("config.json".into()).or_insert_with(|| self.config.to_string().into_bytes());
        files.entry("model.safetensors".into()).or_insert_with(|| self.weights.write());
        files
    }
}
