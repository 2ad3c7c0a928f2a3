//! System calls that a confined command cannot make.
//!
//! Landlock knows files, TCP, signals and abstract sockets. What else leads out is refused here: all other sockets, what
//! reaches into other processes, into the kernel, into namespaces and keyrings, and ways of asking that no filter sees.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use std::collections::BTreeMap;

/// Refused as if this were not allowed to the user.
const FORBIDDEN: [i64; 54] = [
    // other processes
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // namespaces and mounts
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // files without a path
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    // keyrings
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // the kernel and the machine
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_personality,
    libc::SYS_mq_open,
    libc::SYS_msgget,
    libc::SYS_semget,
];

/// Refused as if the kernel did not have them: programs then do without. `clone3` hides its flags from filters.
const ABSENT: [i64; 4] =
    [libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// New namespaces, as flags of `clone`.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Extended attributes and flags of files: as if the file system had none.
const UNSUPPORTED: [i64; 6] = [
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// Requests to a terminal that type into it or take it over, and those that change flags of files.
const REQUESTS: [u64; 6] = [
    libc::TIOCSTI,
    libc::TIOCCONS,
    libc::TIOCSETD,
    0x541C,      // TIOCLINUX
    0x4008_6602, // FS_IOC_SETFLAGS
    0x401C_5820, // FS_IOC_FSSETXATTR
];

/// Later calls are refused: some do in another way what is refused here.
const CALLS_KNOWN: u32 = 463; // `setxattrat`

/// Programs that refuse in three ways; all must be applied.
pub fn filters(network: bool) -> Result<[BpfProgram; 3], seccompiler::BackendError> {
    let always = |calls: &[i64]| calls.iter().map(|call| (*call, Vec::new())).collect::<BTreeMap<_, _>>();
    let mut forbidden = always(&FORBIDDEN);
    #[cfg(target_arch = "x86_64")]
    for call in [
        libc::SYS_kexec_file_load,
        libc::SYS_iopl,
        libc::SYS_ioperm,
        libc::SYS_modify_ldt,
        libc::SYS_uselib,
        libc::SYS_ustat,
        libc::SYS_sysfs,
        libc::SYS__sysctl,
    ] {
        forbidden.insert(call, Vec::new());
    }
    let mut namespaces = Vec::new();
    for flag in NAMESPACES.map(|flag| flag as u32 as u64) {
        namespaces.push(SeccompRule::new(vec![is(0, SeccompCmpOp::MaskedEq(flag), flag)?])?);
    }
    forbidden.insert(libc::SYS_clone, namespaces);
    let mut requests = Vec::new();
    for request in REQUESTS {
        requests.push(SeccompRule::new(vec![is(1, SeccompCmpOp::Eq, request)?])?);
    }
    forbidden.insert(libc::SYS_ioctl, requests);
    forbidden.insert(libc::SYS_socket, sockets(network)?);
    let mut first = compiled(forbidden, libc::EPERM)?;
    first.splice(0..0, beyond(CALLS_KNOWN, libc::ENOSYS));
    Ok([first, compiled(always(&ABSENT), libc::ENOSYS)?, compiled(always(&UNSUPPORTED), libc::ENOTSUP)?])
}

/// Without rules every socket is refused; those of this machine (`AF_UNIX`) lead to its daemons and always are.
fn sockets(network: bool) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    if !network {
        return Ok(Vec::new());
    }
    let allowed = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let others = allowed.into_iter().map(|family| is(0, SeccompCmpOp::Ne, family as u64));
    Ok(vec![SeccompRule::new(others.collect::<Result<_, _>>()?)?])
}

/// All arguments that are looked at are 32 bits wide for the kernel.
fn is(argument: u8, how: SeccompCmpOp, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)
}

fn compiled(
    refused: BTreeMap<i64, Vec<SeccompRule>>,
    errno: i32,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(errno as u32);
    SeccompFilter::new(refused, SeccompAction::Allow, refuse, arch)?.try_into()
}

/// Refuses all numbers from this on: what is newer than this list, and the second set that x86-64 has above 2^30.
fn beyond(number: u32, errno: i32) -> [sock_filter; 3] {
    const LOAD_NUMBER: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS, at offset 0
    const JUMP_IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const REFUSE: u32 = 0x0005_0000; // SECCOMP_RET_ERRNO
    [
        sock_filter { code: LOAD_NUMBER, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: number },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: REFUSE | errno as u32 },
    ]
}
