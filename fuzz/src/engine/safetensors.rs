//! Safetensors headers: tensors cover the data exactly.

use super::{check_apart, check_message};
use flint_engine::load::safetensors::{Dtype, StoredTensor, parse_header};
use std::collections::HashSet;

pub fn safetensors(bytes: &[u8]) {
    let len = bytes.len() as u64;
    match parse_header(bytes, len) {
        Ok(tensors) => {
            check(&tensors, bytes.len());
            assert!(parse_header(bytes, len + 1).is_err(), "bytes after the last tensor were accepted");
            if !tensors.is_empty() {
                assert!(parse_header(bytes, len - 1).is_err(), "a tensor that is cut short was accepted");
            }
        }
        Err(fault) => check_message(&fault),
    }
}

fn check(tensors: &[StoredTensor], len: usize) {
    tensors.iter().for_each(check_tensor);
    let names: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names.len(), tensors.len());
    check_apart(tensors.iter().map(|tensor| tensor.range.clone()).collect(), len);
    let covered: usize = tensors.iter().map(|tensor| tensor.range.len()).sum();
    if let Some(start) = tensors.iter().map(|tensor| tensor.range.start).min() {
        assert_eq!(start + covered, len, "the data is not covered");
    }
}

fn check_tensor(tensor: &StoredTensor) {
    let bytes = match tensor.dtype {
        Dtype::F32 => 4,
        Dtype::F16 | Dtype::Bf16 => 2,
        Dtype::F8E4m3 | Dtype::U8 => 1,
    };
    let values: u128 = tensor.shape.iter().map(|size| *size as u128).product();
    assert_eq!(values * bytes, tensor.range.len() as u128, "{tensor:?}");
}
