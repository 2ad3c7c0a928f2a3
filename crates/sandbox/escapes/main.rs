//! Programs that try to get out of the sandbox: `escape NAME TARGETS` ends with 0 if it got out, with 1 if it was held back.
//!
//! The same program is the keeper that holds them.

mod files;
mod kernel;
mod network;
mod others;

use std::path::PathBuf;
use std::process::exit;

/// What stands outside.
pub struct Targets {
    pub outside: PathBuf, // a folder with `victim.txt`, `victim.sh` and `folder` in it
    pub secret: PathBuf,  // a folder with `key` in it
    pub port: u16,        // where somebody listens
    pub socket: PathBuf,  // likewise; an abstract one has the same name
    pub process: i32,     // of this user
}

/// Its name, and whether it got out.
pub type Escape = (&'static str, fn(&Targets) -> bool);

pub fn all() -> impl Iterator<Item = &'static Escape> {
    [files::ESCAPES, network::ESCAPES, others::ESCAPES, kernel::ESCAPES].into_iter().flatten()
}

fn main() {
    let mut words = std::env::args_os().skip(1);
    let name = words.next().unwrap_or_default().to_string_lossy().into_owned();
    match name.as_str() {
        flint_sandbox::KEEPER => exit(flint_sandbox::keep(words)),
        "list" => all().for_each(|(name, _)| println!("{name}")),
        _ => {
            let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
            let [outside, secret, port, socket, process] = &words[..] else { exit(2) };
            let targets = Targets {
                outside: outside.into(),
                secret: secret.into(),
                port: port.parse().unwrap_or_default(),
                socket: socket.into(),
                process: process.parse().unwrap_or_default(),
            };
            let Some((_, escape)) = all().find(|(known, _)| *known == name) else { exit(2) };
            exit(if escape(&targets) { 0 } else { 1 });
        }
    }
}

/// A path as the kernel takes it.
pub fn c(path: &std::path::Path) -> std::ffi::CString {
    std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap_or_default()
}
