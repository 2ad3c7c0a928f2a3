//! Tiny wheels, and the index from which pip fetches them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use super::loopback::{Reply, Request};
use std::io::{Cursor, Write};

/// A wheel that pip accepts, with these files in it.
pub fn wheel(name: &str, files: &[(&str, &[u8])]) -> Vec<u8> {
    let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n");
    let kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let info = [("METADATA", metadata.as_bytes()), ("WHEEL", kind.as_bytes()), ("RECORD", b"")];
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let info = info.map(|(file, bytes)| (format!("{name}-1.0.dist-info/{file}"), bytes));
    for (path, bytes) in info.into_iter().chain(files.iter().map(|(path, bytes)| (path.to_string(), *bytes)))
    {
        zip.start_file(path, stored).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A package index under `/simple/`, with one wheel a package.
pub fn index(request: &Request, packages: &[(&str, Vec<u8>)]) -> Reply {
    for (name, wheel) in packages {
        let file = format!("{name}-1.0-py3-none-any.whl");
        if request.path == format!("/simple/{}/", name.replace('_', "-")) {
            let page = format!("<!DOCTYPE html><a href=\"/files/{file}\">{file}</a>");
            return Reply::whole(page.as_bytes()).with("Content-Type", "text/html");
        }
        if request.path == format!("/files/{file}") {
            return Reply::whole(wheel);
        }
    }
    Reply::status(404)
}
