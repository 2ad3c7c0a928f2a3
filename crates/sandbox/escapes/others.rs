//! Reaching into other processes, and outliving one's own.

use super::{Escape, Targets};
use std::fs;

pub const ESCAPES: &[Escape] = &[
    // SAFETY: these take numbers only.
    ("signal", |t| unsafe { libc::kill(t.process, libc::SIGCONT) == 0 }),
    // SAFETY: as above.
    ("signal_nothing", |t| unsafe { libc::kill(t.process, 0) == 0 }),
    // SAFETY: as above.
    ("signal_thread", |t| unsafe {
        libc::syscall(libc::SYS_tgkill, t.process, t.process, libc::SIGCONT) == 0
    }),
    ("signal_by_descriptor", |t| {
        let Some(process) = opened(t) else { return false };
        // SAFETY: a null pointer says that the signal comes without more.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, process, libc::SIGCONT, std::ptr::null::<u8>(), 0) == 0
        }
    }),
    // SAFETY: as above.
    ("signal_keeper", |_| unsafe { libc::kill(libc::getppid(), libc::SIGCONT) == 0 }),
    // SAFETY: as above.
    ("signal_group_of_keeper", |_| unsafe {
        libc::kill(-libc::getpgid(libc::getppid()), libc::SIGCONT) == 0
    }),
    // SAFETY: as above.
    ("trace_attach", |t| unsafe { libc::ptrace(libc::PTRACE_SEIZE, t.process, 0, 0) == 0 }),
    ("read_memory_of_other", |t| {
        let mut byte = 0u8;
        let own = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let other = libc::iovec { iov_base: 0x40_0000 as *mut _, iov_len: 1 };
        // SAFETY: what is read goes to one byte of this function; the other address is not of this process.
        let read = unsafe { libc::process_vm_readv(t.process, &own, 1, &other, 1, 0) };
        read >= 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
    }),
    ("open_memory_of_other", |t| fs::File::open(format!("/proc/{}/mem", t.process)).is_ok()),
    ("read_environment_of_other", |t| fs::read(format!("/proc/{}/environ", t.process)).is_ok()),
    ("read_environment_of_keeper", |_| {
        // SAFETY: this takes nothing.
        fs::read(format!("/proc/{}/environ", unsafe { libc::getppid() })).is_ok()
    }),
    ("read_maps_of_other", |t| fs::read(format!("/proc/{}/maps", t.process)).is_ok()),
    ("name_file_of_other", |t| fs::read_link(format!("/proc/{}/fd/0", t.process)).is_ok()),
    ("enter_root_of_other", |t| fs::read_dir(format!("/proc/{}/root", t.process)).is_ok()),
    ("enter_folder_of_other", |t| fs::read_dir(format!("/proc/{}/cwd", t.process)).is_ok()),
    ("take_file_of_other", |t| {
        let Some(process) = opened(t) else { return false };
        // SAFETY: this takes numbers only.
        unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, 0, 0) >= 0 }
    }),
    // SAFETY: as above.
    ("compare_with_other", |t| unsafe {
        libc::syscall(libc::SYS_kcmp, libc::getpid(), t.process, 0, 0, 0) >= 0
    }),
    ("watch_other", |t| {
        let mut attributes = [0u64; 16];
        attributes[0] = 1 | (128 << 32); // software events, in so many bytes
        // SAFETY: the attributes are as long as they say.
        unsafe {
            libc::syscall(libc::SYS_perf_event_open, attributes.as_mut_ptr(), t.process, -1, -1, 0) >= 0
        }
    }),
    ("write_score_of_other", |t| fs::write(format!("/proc/{}/oom_score_adj", t.process), "500").is_ok()),
    ("write_score_of_keeper", |_| {
        // SAFETY: this takes nothing.
        fs::write(format!("/proc/{}/oom_score_adj", unsafe { libc::getppid() }), "500").is_ok()
    }),
    // SAFETY: as above.
    ("message_queue", |_| unsafe { libc::msgget(0x7c11, libc::IPC_CREAT | 0o600) >= 0 }),
    // SAFETY: as above.
    ("semaphores", |_| unsafe { libc::semget(0x7c11, 1, libc::IPC_CREAT | 0o600) >= 0 }),
    // SAFETY: the name ends with a zero byte; a null pointer asks for the usual attributes.
    ("posix_queue", |_| unsafe {
        libc::mq_open(c"/escaped".as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600, std::ptr::null::<u8>()) >= 0
    }),
    ("type_into_terminal", |_| {
        let byte = b'x';
        // SAFETY: the pointer is to one byte.
        unsafe { libc::ioctl(0, libc::TIOCSTI, &byte) == 0 || libc::ioctl(1, libc::TIOCSTI, &byte) == 0 }
    }),
];

fn opened(targets: &Targets) -> Option<i64> {
    // SAFETY: this takes numbers only.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, targets.process, 0) };
    (process >= 0).then_some(process)
}
