//! One untrusted command with few rights: read this in an hour before you trust it.
//!
//! `Sandbox::command` makes the command line of a *keeper*, which is this program again. The keeper (`keeper`) starts
//! what was asked for, with its rights taken away first (`confine`): files by Landlock (`paths` says which), system
//! calls by seccomp (`calls`), capabilities, limits, environment. It waits, decides about modes, owners and times of files
//! (`attributes`), and ends every process that is left. No
//! namespace is needed, and nothing differs for root.
//!
//! What a command may do is a `Policy`. Where the kernel cannot enforce all of it, nothing is run: `check` says so once.

mod attributes;
mod calls;
mod confine;
mod environment;
mod hand_over;
mod keeper;
mod paths;
mod policy;
mod tree;

pub use keeper::{REFUSED, keep};
pub use policy::{Limits, Mode, Policy, PolicyError, default_secrets};

use landlock::ABI;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Landlock's first version that has all that is enforced here, and the kernel that brought it.
const ABI_NEEDED: ABI = ABI::V6;
const KERNEL_NEEDED: &str = "6.12";

/// The word after the program's name that makes it a keeper.
pub const KEEPER: &str = "__keep";

/// Why nothing can be confined on this machine.
#[derive(Debug, thiserror::Error)]
#[error(
    "this kernel cannot confine commands: {0}. Linux {KERNEL_NEEDED} with Landlock and seccomp is needed; without it \
     commands run only with `sandbox_mode = \"danger-full-access\"`"
)]
pub struct Unconfined(String);

/// Whether this machine can enforce what policies say.
pub fn check() -> Result<(), Unconfined> {
    let found = confine::landlock_version();
    if found < ABI_NEEDED as i32 {
        let what = match found {
            ..=0 => "Landlock is not there".to_owned(),
            old => format!("Landlock has version {old}, not {}", ABI_NEEDED as i32),
        };
        return Err(Unconfined(what));
    }
    match confine::has_seccomp() {
        true => Ok(()),
        false => Err(Unconfined("seccomp is not there".to_owned())),
    }
}

/// A policy, and the program that keeps commands to it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    policy: Policy,
    program: PathBuf,
}

impl Sandbox {
    /// `program` calls `keep` when the first word after its name is `KEEPER`.
    pub fn new(policy: Policy, program: PathBuf) -> Result<Sandbox, PolicyError> {
        policy.check()?;
        Ok(Sandbox { policy, program })
    }

    /// The command `argv` in the folder `cwd`. Standard streams are the caller's to set; all other files are closed. End it
    /// with SIGTERM: then nothing that it started is left. It also ends with the process that starts it.
    pub fn command<I, S>(&self, argv: I, cwd: &Path) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(&self.program);
        command.arg(KEEPER).arg(self.policy.to_json()).arg("--").args(argv).current_dir(cwd);
        command.env_clear().envs(environment::kept(std::env::vars_os(), &self.policy.environment));
        command.env("TMPDIR", self.temporary());
        command
    }

    fn temporary(&self) -> OsString {
        self.policy.temporary.clone().into_os_string()
    }
}
