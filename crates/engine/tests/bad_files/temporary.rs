//! A folder of files that is gone when the test is.
#![allow(dead_code, unreachable_pub)] // shared by test crates, each of which uses its own part

use super::folder_writer::Files;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct Temporary {
    root: PathBuf,
}

impl Temporary {
    pub fn new(files: &Files) -> Temporary {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("flint-load-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).expect("a temporary folder");
        for (name, bytes) in files {
            fs::write(root.join(name), bytes).expect("a temporary file");
        }
        Temporary { root }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.root.clone() } else { self.root.join(name) }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean up; the test has its answer.
        let _ = fs::remove_dir_all(&self.root);
    }
}
