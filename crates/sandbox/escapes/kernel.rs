//! Namespaces, mounts, keyrings, more privileges, and the kernel itself.

use super::{Escape, c};
use std::path::Path;
use std::process::Command;
use std::ptr::null;

pub const ESCAPES: &[Escape] = &[
    ("new_user", |_| unshared(libc::CLONE_NEWUSER)),
    ("new_mounts", |_| unshared(libc::CLONE_NEWNS)),
    ("new_network", |_| unshared(libc::CLONE_NEWNET)),
    ("new_user_by_clone", |_| cloned(libc::CLONE_NEWUSER)),
    ("new_mounts_by_clone", |_| cloned(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)),
    ("new_processes_by_clone", |_| cloned(libc::CLONE_NEWPID)),
    ("new_user_by_clone3", |_| {
        let arguments = [libc::CLONE_NEWUSER as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
        // SAFETY: the arguments are as long as is said; the child ends at once.
        unsafe {
            match libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)) {
                0 => libc::_exit(0),
                child => child > 0,
            }
        }
    }),
    ("unshare_program", |_| {
        Command::new("unshare").args(["-Ur", "true"]).status().is_ok_and(|s| s.success())
    }),
    ("mount_memory", |_| {
        let (kind, place) = (c(Path::new("tmpfs")), c(Path::new("/mnt")));
        // SAFETY: both strings end with a zero byte.
        unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, null()) == 0 }
    }),
    ("mount_again", |_| {
        let root = c(Path::new("/"));
        // SAFETY: the string ends with a zero byte.
        unsafe { libc::mount(null(), root.as_ptr(), null(), libc::MS_REC | libc::MS_PRIVATE, null()) == 0 }
    }),
    // SAFETY: the string ends with a zero byte.
    ("unmount", |_| unsafe { libc::umount2(c(Path::new("/proc")).as_ptr(), libc::MNT_DETACH) == 0 }),
    // SAFETY: as above.
    ("change_root", |_| unsafe { libc::chroot(c(Path::new("/")).as_ptr()) == 0 }),
    // SAFETY: as above.
    ("open_tree", |_| unsafe {
        libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, c(Path::new("/")).as_ptr(), 0) >= 0
    }),
    // SAFETY: as above.
    ("open_file_system", |_| unsafe {
        libc::syscall(libc::SYS_fsopen, c(Path::new("tmpfs")).as_ptr(), 0) >= 0
    }),
    // SAFETY: as above.
    ("add_key", |_| unsafe {
        let (kind, name) = (c(Path::new("user")), c(Path::new("escaped")));
        libc::syscall(libc::SYS_add_key, kind.as_ptr(), name.as_ptr(), name.as_ptr(), 1, -4) >= 0
    }),
    // SAFETY: this takes numbers only: the session's keyring.
    ("session_keyring", |_| unsafe { libc::syscall(libc::SYS_keyctl, 0, -3, 0) >= 0 }),
    ("load_program_into_kernel", |_| {
        let attributes = [1u32, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]; // a hash map
        // SAFETY: the attributes are as long as is said.
        unsafe { libc::syscall(libc::SYS_bpf, 0, attributes.as_ptr(), size_of_val(&attributes)) >= 0 }
    }),
    // SAFETY: this takes numbers only.
    ("catch_page_faults", |_| unsafe { libc::syscall(libc::SYS_userfaultfd, 1) >= 0 }),
    // SAFETY: the strings end with a zero byte.
    ("load_module", |_| unsafe {
        let nothing = c(Path::new(""));
        let loaded = libc::syscall(libc::SYS_init_module, nothing.as_ptr(), 0, nothing.as_ptr());
        loaded == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EPERM)
    }),
    // SAFETY: the buffer is as long as is said.
    ("kernel_log", |_| unsafe {
        let mut log = [0u8; 64];
        libc::klogctl(3, log.as_mut_ptr().cast(), 64) >= 0
    }),
    // SAFETY: the name is as long as is said.
    ("host_name", |_| unsafe { libc::sethostname(c"escaped".as_ptr(), 7) == 0 }),
    ("clock", |_| {
        let now = libc::timespec { tv_sec: 1_800_000_000, tv_nsec: 0 };
        // SAFETY: the pointer is to a whole `timespec`.
        unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &now) == 0 }
    }),
    // SAFETY: this takes numbers only.
    ("other_user", |_| unsafe { libc::setuid(1) == 0 }),
    // SAFETY: as above.
    ("other_groups", |_| unsafe { libc::setgroups(0, null()) == 0 }),
    ("capabilities_back", |_| {
        let (header, all) = ([0x2008_0522u32, 0], [u32::MAX; 6]);
        // SAFETY: version 3 reads two words of header and six of sets.
        unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), all.as_ptr()) == 0 }
    }),
    // SAFETY: this takes numbers only.
    ("new_privileges_again", |_| unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 }),
    ("raise_limit", |_| {
        let most = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
        // SAFETY: the pointer is to a whole `rlimit`.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &most) == 0 }
    }),
    // SAFETY: the number is of no call, or of one that is also refused.
    ("second_set_of_calls", |_| unsafe { libc::syscall(0x4000_0000 + libc::SYS_socket, 2, 1, 0) >= 0 }),
    ("old_set_of_calls", old_call),
    ("write_kernel_settings", |_| std::fs::write("/proc/sys/kernel/hostname", "escaped").is_ok()),
    ("trigger", |_| std::fs::OpenOptions::new().write(true).open("/proc/sysrq-trigger").is_ok()),
    ("core_pattern", |_| {
        std::fs::OpenOptions::new().write(true).open("/proc/sys/kernel/core_pattern").is_ok()
    }),
    ("control_groups", |_| std::fs::create_dir("/sys/fs/cgroup/escaped").is_ok()),
    ("sudo", |_| Command::new("sudo").args(["-n", "true"]).status().is_ok_and(|status| status.success())),
];

fn unshared(flag: i32) -> bool {
    // SAFETY: this takes numbers only.
    unsafe { libc::unshare(flag) == 0 }
}

fn cloned(flags: i32) -> bool {
    // SAFETY: without a stack of its own the child goes on here, and ends at once.
    unsafe {
        match libc::syscall(libc::SYS_clone, (flags | libc::SIGCHLD) as u64, 0, 0, 0, 0) {
            0 => libc::_exit(0),
            child => child > 0,
        }
    }
}

/// A socket by the 32-bit way in. A process that the filter kills for it has not got out either.
#[cfg(target_arch = "x86_64")]
fn old_call(_: &super::Targets) -> bool {
    const SOCKET: u64 = 359;
    let mut result: i64;
    // SAFETY: the 32-bit entry changes r8 to r11 at most, which are declared; the call takes numbers only.
    unsafe {
        std::arch::asm!(
            "push rbx", "mov ebx, {family:e}", "int 0x80", "pop rbx",
            family = in(reg) 2u32,
            inlateout("rax") SOCKET => result, in("rcx") 1u64, in("rdx") 0u64,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    result as i32 >= 0
}

#[cfg(not(target_arch = "x86_64"))]
fn old_call(_: &super::Targets) -> bool {
    false
}
