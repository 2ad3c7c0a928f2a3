//! Runs a program that a model wrote: no network, an empty folder, limits on time and memory.

use crate::{Outcome, python};
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const WALL_SECONDS_MAX: u32 = 10;

/// Printed by a program that came to its end; leaving early is no success.
const DONE: &str = "every check has passed";

/// How programs are cut off from the network.
pub struct Judge {
    unshare: &'static [&'static str],
    folder: PathBuf, // of the programs
    wall_seconds_max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed,
    TooSlow,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::TooSlow => "too slow",
        })
    }
}

impl Judge {
    /// `folder` is made, used for the programs, and removed. As root a network namespace is to be had at once, as anyone else inside a user namespace.
    pub fn new(folder: PathBuf) -> Outcome<Judge> {
        let ways: [&[&str]; 2] = [
            &["--net", "--pid", "--fork", "--kill-child"],
            &["--map-root-user", "--net", "--pid", "--fork", "--kill-child"],
        ];
        let works = |way: &&&[&str]| {
            let output = Command::new("unshare").args(**way).arg("true").output();
            output.is_ok_and(|output| output.status.success())
        };
        let unshare = ways.iter().find(works).ok_or(
            "cannot cut programs off from the network: `unshare --map-root-user --net` fails. \
             Allow user namespaces, or run as root",
        )?;
        Ok(Judge { unshare, folder, wall_seconds_max: WALL_SECONDS_MAX })
    }

    pub fn run(&self, program: &str) -> Outcome<Verdict> {
        let empty = self.folder.join("empty");
        std::fs::create_dir_all(&empty)?;
        let file = self.folder.join("program.py");
        std::fs::write(&file, format!("{program}\nprint({DONE:?})\n"))?;
        let output = Command::new("timeout")
            .args(["--signal=KILL", &self.wall_seconds_max.to_string(), "unshare"])
            .args(self.unshare)
            .args(["python3", "-I", "-B"])
            .arg(python::script("guard.py"))
            .arg(&file)
            .current_dir(&empty)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot run timeout: {error}"))?;
        let finished = String::from_utf8_lossy(&output.stdout).trim_end().ends_with(DONE);
        Ok(match output.status.code() {
            Some(0) if finished => Verdict::Passed,
            None | Some(124 | 137) => Verdict::TooSlow,
            Some(_) => Verdict::Failed,
        })
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // What stays behind is one small file in the cache.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(name: &str, program: &str) -> Verdict {
        let folder = std::env::temp_dir().join(format!("flint-judge-{name}-{}", std::process::id()));
        let mut judge = Judge::new(folder).unwrap();
        judge.wall_seconds_max = 3;
        judge.run(program).unwrap()
    }

    #[test]
    fn a_program_passes_by_coming_to_its_end() {
        assert_eq!(verdict("end", "import math, typing\nassert math.gcd(6, 4) == 2"), Verdict::Passed);
        assert_eq!(verdict("assert", "assert 1 + 1 == 3"), Verdict::Failed);
        assert_eq!(verdict("early", "import sys\nsys.exit(0)"), Verdict::Failed);
        assert_eq!(verdict("syntax", "def f(:"), Verdict::Failed);
    }

    #[test]
    fn time_and_memory_are_limited() {
        assert_eq!(verdict("endless", "while True: pass"), Verdict::TooSlow);
        assert_eq!(verdict("large", "x = bytearray(3 << 30)"), Verdict::Failed);
        let caught = "try:\n    bytearray(3 << 30)\nexcept MemoryError:\n    pass\nelse:\n    assert False";
        assert_eq!(verdict("caught", caught), Verdict::Passed);
    }

    #[test]
    fn there_is_no_network() {
        let only_loopback = "lines = open('/proc/self/net/dev').readlines()[2:]\n\
                             assert [line.split(':')[0].strip() for line in lines] == ['lo'], lines";
        assert_eq!(verdict("interfaces", only_loopback), Verdict::Passed);
        assert_eq!(
            verdict("socket", "import socket\nsocket.create_connection(('1.1.1.1', 53), 1)"),
            Verdict::Failed
        );
    }

    #[test]
    fn nothing_outside_is_changed() {
        assert_eq!(verdict("write", "open('file', 'w')"), Verdict::Failed);
        assert_eq!(verdict("start", "import os\nos.system('true')"), Verdict::Failed);
        assert_eq!(verdict("remove", "import os\nos.remove('../program.py')"), Verdict::Failed);
        assert_eq!(verdict("empty", "import os\nassert os.listdir() == []"), Verdict::Passed);
    }
}
