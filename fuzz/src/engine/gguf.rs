//! GGUF files and Flint's own: what was accepted can be used without looking back.

use super::{check_apart, check_message};
use flint_engine::load::ModelFile;
use flint_engine::load::gguf::{Header, Lies, TensorInfo, Value, parse};
use flint_engine::quant::panels::matrix_bytes;
use std::collections::HashSet;
use std::fs;

pub fn gguf(bytes: &[u8]) {
    match parse(bytes) {
        Ok(header) => {
            check(&header, bytes);
            check_model(bytes);
        }
        Err(fault) => check_message(&fault),
    }
}

fn check(header: &Header, bytes: &[u8]) {
    assert!(if header.own { header.version == 1 } else { matches!(header.version, 2 | 3) });
    assert!(header.own || !header.tensors.iter().any(|tensor| tensor.lies != Lies::Rows));
    header.values.values().for_each(|value| check_value(value, bytes));
    header.tensors.iter().for_each(check_tensor);
    let names: HashSet<&str> = header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names.len(), header.tensors.len());
    let ranges = header.tensors.iter().map(|tensor| tensor.offset..tensor.offset + tensor.len);
    check_apart(ranges.clone().collect(), bytes.len());
    if let Some(end) = ranges.map(|range| range.end).max() {
        assert!(parse(&bytes[..end - 1]).is_err(), "a tensor that is cut short was accepted");
    }
}

/// Strings and arrays are ranges of the file that can be read again.
fn check_value(value: &Value, bytes: &[u8]) {
    match value {
        Value::String(range) => assert!(std::str::from_utf8(&bytes[range.clone()]).is_ok()),
        Value::Array { len, bytes: range, .. } => {
            assert!(bytes[range.clone()].len() >= *len, "{len} elements in fewer bytes: {range:?}");
        }
        Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) | Value::Bool(_) => {}
    }
}

/// As many bytes as the shape says, computed with room to spare.
fn check_tensor(tensor: &TensorInfo) {
    let values: u128 = tensor.shape.iter().map(|size| *size as u128).product();
    let blocks = values / tensor.format.block_len() as u128;
    assert_eq!(blocks * tensor.format.block_len() as u128, values, "{tensor:?}");
    if tensor.lies == Lies::Panels {
        let [.., rows, cols] = tensor.shape[..] else { panic!("{tensor:?}") };
        let one = matrix_bytes(tensor.format, rows, cols).expect("a size that fits");
        let count: usize = tensor.shape.iter().rev().skip(2).product();
        return assert_eq!(count * one, tensor.len, "{tensor:?}");
    }
    if tensor.lies == Lies::Tiles {
        // Levels have four bits at least; of the power there is a cache line.
        return assert!(tensor.len as u128 >= values / 2 + 64, "{tensor:?}");
    }
    assert_eq!(blocks * tensor.format.block_bytes() as u128, tensor.len as u128, "{tensor:?}");
}

/// As a model, the same bytes are refused in words, or every row of every tensor can be read.
fn check_model(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("flint-promise-{}.gguf", std::process::id()));
    fs::write(&path, bytes).expect("a temporary file");
    let model = ModelFile::open(&path);
    fs::remove_file(&path).expect("a temporary file"); // what was opened stays mapped
    let model = match model {
        Ok(model) => model,
        Err(error) => return check_message(&error.fault),
    };
    for tensor in model.tensors() {
        let mut row = vec![0.0; tensor.cols()];
        (0..tensor.rows()).for_each(|at| tensor.row_f32(at, &mut row));
    }
    if let Err(error) = model.tokenizer() {
        check_message(&error.fault);
    }
}
