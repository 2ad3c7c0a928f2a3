//! Taking rights away from a process, for good: it and all that it starts can only lose more of them.

use crate::policy::{Limits, Policy};
use crate::{ABI_NEEDED, attributes, calls, hand_over, paths};
use landlock::{
    Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use seccompiler::{BpfProgram, sock_filter};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Landlock's version; 0 or less where it is not there.
pub fn landlock_version() -> i32 {
    const VERSION: u32 = 1; // LANDLOCK_CREATE_RULESET_VERSION
    // SAFETY: with this flag the kernel reads nothing through the null pointer and only returns a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) as i32 }
}

pub fn has_seccomp() -> bool {
    // SAFETY: this only asks for a number.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) >= 0 }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error("Landlock: {0}")]
    Landlock(#[from] RulesetError),
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::BackendError),
}

/// Everything that is made before the process that it is for.
pub struct Confinement {
    files: Option<RulesetCreated>, // until it is applied
    calls: [BpfProgram; 3],
    asked: Vec<sock_filter>, // calls that the keeper decides about
    keeper: UnixStream,      // who gets to know them
    limits: Limits,
}

impl Confinement {
    pub fn new(policy: &Policy, keeper: UnixStream) -> Result<Confinement, ConfineError> {
        Ok(Confinement {
            files: Some(files(policy)?),
            calls: calls::filters(policy.network)?,
            asked: attributes::filter(),
            keeper,
            limits: policy.limits,
        })
    }

    /// For the process that calls this, and its children. Nothing can be opened after it that is not granted.
    pub fn apply(&mut self) -> io::Result<()> {
        limit(self.limits)?;
        drop_capabilities()?;
        let files = self.files.take().ok_or_else(|| io::Error::other("confined twice"))?;
        // It also sets `no_new_privs`: no program has more rights than who starts it.
        let status = files.restrict_self().map_err(io::Error::other)?;
        if status.ruleset != RulesetStatus::FullyEnforced || !status.no_new_privs {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        for program in &self.calls {
            seccompiler::apply_filter(program).map_err(io::Error::other)?;
        }
        hand_over::send(&self.keeper, &attributes::ask(&self.asked)?)
    }
}

/// The ruleset of a policy. What cannot be enforced is an error, not a warning.
fn files(policy: &Policy) -> Result<RulesetCreated, RulesetError> {
    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    let devices = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    let no_devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::IoctlDev;
    let write = AccessFs::from_all(ABI_NEEDED) & !no_devices;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI_NEEDED))?
        .scope(Scope::from_all(ABI_NEEDED))?;
    if !policy.network {
        rules = rules.handle_access(AccessNet::from_all(ABI_NEEDED))?;
    }
    let mut rules = rules.create()?;
    for path in paths::readable(&policy.secrets) {
        rules = granted(rules, &path, read)?;
    }
    for path in paths::devices() {
        rules = granted(rules, &path, devices)?;
    }
    for path in policy.written() {
        rules = granted(rules, path, write)?;
    }
    Ok(rules)
}

/// What is gone since it was found needs no rule.
fn granted(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(open) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(ABI_NEEDED) };
    rules.add_rule(PathBeneath::new(open, access))
}

fn limit(limits: Limits) -> io::Result<()> {
    let Limits { cpu_seconds, memory_bytes, file_bytes, open_files, processes } = limits;
    set_limit(libc::RLIMIT_CORE, Some(0))?;
    set_limit(libc::RLIMIT_CPU, cpu_seconds)?;
    set_limit(libc::RLIMIT_AS, memory_bytes)?;
    set_limit(libc::RLIMIT_FSIZE, file_bytes)?;
    set_limit(libc::RLIMIT_NOFILE, open_files)?;
    set_limit(libc::RLIMIT_NPROC, processes)
}

/// Never raises a limit.
fn set_limit(what: libc::__rlimit_resource_t, most: Option<u64>) -> io::Result<()> {
    let Some(most) = most else { return Ok(()) };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a whole `rlimit`, which the kernel fills.
    must(unsafe { libc::getrlimit(what, &mut limit) })?;
    let most = most.min(limit.rlim_max);
    limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the pointer is to a whole `rlimit`, which the kernel reads.
    must(unsafe { libc::setrlimit(what, &limit) })
}

/// Root keeps only what makes it master of other users' files, where Landlock lets it.
fn drop_capabilities() -> io::Result<()> {
    const KEPT: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 4; // CHOWN, DAC_OVERRIDE, FOWNER, FSETID
    const LAST: i32 = 63;
    const VERSION_3: u32 = 0x2008_0522;
    for capability in (0..=LAST).filter(|capability| *capability >= 32 || KEPT & 1 << capability == 0) {
        // SAFETY: this takes numbers only. Who may not do it has no capability to drop, and one that the kernel does not
        // know cannot be dropped.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    // SAFETY: as above.
    unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    let header = [VERSION_3, 0];
    let mut sets = [0u32; 6]; // effective, permitted, inheritable; then the same for the upper 32
    // SAFETY: version 3 reads and writes two words of header and six of sets, which is what there is.
    must(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) as i32 })?;
    let kept = KEPT & sets[1];
    sets = [kept, kept, 0, 0, 0, 0];
    // SAFETY: as above.
    must(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) as i32 })
}

fn must(outcome: i32) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
