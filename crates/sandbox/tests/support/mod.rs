//! A place to be broken out of.

#![allow(dead_code)]

use flint_sandbox::{Mode, Policy, Sandbox};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::{fs, io};

pub const ESCAPE: &str = env!("CARGO_BIN_EXE_escape");

/// A workspace, and beside it files, secrets, listeners and a process that are none of its business.
pub struct Outside {
    _base: tempfile::TempDir,
    pub work: PathBuf,
    pub temporary: PathBuf,
    pub outside: PathBuf,
    pub home: PathBuf,
    tcp: TcpListener,
    socket: PathBuf,
    unix: [UnixListener; 2], // by path, and by the same name without one
    pub process: Child,
}

impl Outside {
    pub fn new() -> Outside {
        let base = tempfile::tempdir().unwrap();
        let at = |path: &str| base.path().canonicalize().unwrap().join(path);
        for folder in ["work", "temporary", "outside/folder", "home/.ssh", "home/project"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("outside/victim.txt"), "untouched").unwrap();
        fs::write(at("outside/victim.sh"), "#!/bin/sh\n").unwrap();
        fs::write(at("home/.ssh/key"), "marmalade").unwrap();
        let (tcp, socket) = (TcpListener::bind("127.0.0.1:0").unwrap(), at("outside/listening"));
        tcp.set_nonblocking(true).unwrap();
        let name = SocketAddr::from_abstract_name(socket.as_os_str().as_encoded_bytes()).unwrap();
        let unix = [UnixListener::bind(&socket).unwrap(), UnixListener::bind_addr(&name).unwrap()];
        unix.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        Outside {
            work: at("work"),
            temporary: at("temporary"),
            outside: at("outside"),
            home: at("home"),
            tcp,
            socket,
            unix,
            process: Command::new("sleep").arg("1000").spawn().unwrap(),
            _base: base,
        }
    }

    /// The targets, as the programs take them.
    pub fn words(&self) -> [String; 5] {
        let word = |path: &Path| path.to_str().unwrap().to_owned();
        let port = self.tcp.local_addr().unwrap().port().to_string();
        let process = self.process.id().to_string();
        [word(&self.outside), word(&self.home.join(".ssh")), port, word(&self.socket), process]
    }

    /// All that stands outside, with what it says and how it may be used.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
        let mut all = BTreeMap::new();
        for folder in [&self.outside, &self.home] {
            look(folder, &mut all);
        }
        all
    }

    pub fn was_reached(&self) -> bool {
        let tcp = self.tcp.accept().is_ok();
        tcp || self.unix.iter().any(|listener| listener.accept().is_ok())
    }
}

fn look(path: &Path, all: &mut BTreeMap<PathBuf, (u32, i64, Vec<u8>)>) {
    let about = path.symlink_metadata().unwrap();
    let content = if about.is_file() { fs::read(path).unwrap() } else { Vec::new() };
    all.insert(path.to_owned(), (about.mode(), about.mtime_nsec(), content));
    if about.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| look(&entry.unwrap().path(), all));
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _: io::Result<_> = self.process.wait();
    }
}

/// Whether this machine can confine anything. Where it cannot, nothing must be run, and that is shown instead.
pub fn can_confine() -> bool {
    let Err(missing) = flint_sandbox::check() else { return true };
    let outside = Outside::new();
    let output = sandbox(&outside).command(["touch", "ran"], &outside.work).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(flint_sandbox::REFUSED));
    assert_eq!(said, format!("flint: the command was not run: {missing}\n"));
    assert!(!outside.work.join("ran").exists());
    false
}

/// The workspace may be written.
pub fn sandbox(outside: &Outside) -> Sandbox {
    Sandbox::new(policy(outside, Mode::WorkspaceWrite), ESCAPE.into()).unwrap()
}

pub fn policy(outside: &Outside, mode: Mode) -> Policy {
    Policy::new(mode, outside.work.clone(), outside.temporary.clone(), &outside.home)
}
