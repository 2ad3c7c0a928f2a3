//! Reading, writing and changing files that are not granted.

use super::{Escape, c};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null;

pub const ESCAPES: &[Escape] = &[
    ("write_new", |t| fs::write(t.outside.join("new"), "x").is_ok()),
    ("write_over", |t| fs::write(t.outside.join("victim.txt"), "x").is_ok()),
    ("append", |t| OpenOptions::new().append(true).open(t.outside.join("victim.txt")).is_ok()),
    ("open_for_both", |t| {
        OpenOptions::new().read(true).write(true).open(t.outside.join("victim.txt")).is_ok()
    }),
    ("open_truncating", |t| {
        OpenOptions::new().write(true).truncate(true).open(t.outside.join("victim.txt")).is_ok()
    }),
    // SAFETY: the path ends with a zero byte.
    ("truncate_by_path", |t| unsafe { libc::truncate(c(&t.outside.join("victim.txt")).as_ptr(), 0) == 0 }),
    ("truncate_what_is_read", |t| {
        let file = File::open(t.outside.join("victim.txt"));
        file.is_ok_and(|file| file.set_len(0).is_ok())
    }),
    ("write_again_by_proc", |t| {
        let Ok(file) = File::open(t.outside.join("victim.txt")) else { return false };
        fs::write(format!("/proc/self/fd/{}", file.as_raw_fd()), "x").is_ok()
    }),
    ("remove", |t| fs::remove_file(t.outside.join("victim.txt")).is_ok()),
    ("remove_folder", |t| fs::remove_dir(t.outside.join("folder")).is_ok()),
    ("make_folder", |t| fs::create_dir(t.outside.join("made")).is_ok()),
    ("make_pipe", |t| made(&t.outside.join("pipe"), libc::S_IFIFO, 0)),
    ("make_socket", |t| made(&t.outside.join("socket"), libc::S_IFSOCK, 0)),
    ("make_disk_here", |_| made(Path::new("disk"), libc::S_IFBLK, libc::makedev(254, 0))),
    ("make_memory_here", |_| made(Path::new("memory"), libc::S_IFCHR, libc::makedev(1, 1))),
    ("rename_out", |t| here("mine") && fs::rename("mine", t.outside.join("mine")).is_ok()),
    ("rename_in", |t| fs::rename(t.outside.join("victim.txt"), "stolen").is_ok()),
    ("rename_there", |t| fs::rename(t.outside.join("victim.txt"), t.outside.join("other")).is_ok()),
    ("exchange", |t| here("mine2") && exchanged(Path::new("mine2"), &t.outside.join("victim.txt"))),
    ("link_out", |t| here("mine3") && fs::hard_link("mine3", t.outside.join("mine3")).is_ok()),
    ("link_in_and_write", |t| {
        fs::hard_link(t.outside.join("victim.txt"), "linked").is_ok() && fs::write("linked", "x").is_ok()
    }),
    ("link_secret_in", |t| fs::hard_link(t.secret.join("key"), "key").is_ok()),
    ("link_by_descriptor", |t| {
        let Ok(file) = File::open(t.outside.join("victim.txt")) else { return false };
        let from = c(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
        let (here, to) = (libc::AT_FDCWD, c(Path::new("linked2")));
        // SAFETY: both paths end with a zero byte.
        let linked = unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
        linked == 0 && fs::write("linked2", "x").is_ok()
    }),
    ("make_link_there", |t| symlink("/etc/passwd", t.outside.join("link")).is_ok()),
    ("write_through_link", |t| {
        let _ = symlink(t.outside.join("new2"), "through");
        fs::write("through", "x").is_ok()
    }),
    ("write_through_folder", |t| {
        let _ = symlink(&t.outside, "folder");
        fs::write("folder/new3", "x").is_ok()
    }),
    ("write_by_dots", |t| {
        let Ok(here) = std::env::current_dir() else { return false };
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let target = t.outside.join("new4");
        fs::write(up.join(target.strip_prefix("/").unwrap_or(&target)), "x").is_ok()
    }),
    ("write_after_leaving", |t| std::env::set_current_dir(&t.outside).is_ok() && here("new5")),
    ("write_by_root_of_process", |t| {
        let target = t.outside.join("new6");
        fs::write(Path::new("/proc/self/root").join(target.strip_prefix("/").unwrap_or(&target)), "x").is_ok()
    }),
    ("unnamed_file", |t| {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_TMPFILE).open(&t.outside).is_ok()
    }),
    ("overwrite_program", |t| fs::write(t.outside.join("victim.sh"), "#!/bin/sh").is_ok()),
    ("shell_redirect", |t| shell(&format!("echo x > {}/new7", t.outside.display()))),
    ("shell_touch", |t| shell(&format!("touch {}/new8", t.outside.display()))),
    ("shell_copy", |t| {
        shell(&format!("cp /etc/hostname {}/new9 || cp /etc/passwd {0}/new9", t.outside.display()))
    }),
    ("write_home", |_| std::env::var("HOME").is_ok_and(|home| fs::write(home + "/.escaped", "x").is_ok())),
    ("write_tmp", |_| fs::write(format!("/tmp/escaped-{}", std::process::id()), "x").is_ok()),
    ("write_shared_memory", |_| fs::write(format!("/dev/shm/escaped-{}", std::process::id()), "x").is_ok()),
    ("write_etc", |_| OpenOptions::new().append(true).open("/etc/hosts").is_ok()),
    ("map_and_write", |t| mapped_write(&t.outside.join("victim.txt"))),
    ("mode", |t| mode(&t.outside.join("victim.txt"), 0o777)),
    ("mode_of_secret", |t| mode(&t.secret.join("key"), 0o777)),
    ("mode_of_folder", |t| mode(&t.outside, 0o700)),
    ("mode_through_link", |t| {
        let _ = symlink(t.outside.join("victim.txt"), "mode-link");
        mode(Path::new("mode-link"), 0o777)
    }),
    ("mode_of_what_is_read", |t| {
        let file = File::open(t.outside.join("victim.txt"));
        file.is_ok_and(|file| file.set_permissions(fs::Permissions::from_mode(0o777)).is_ok())
    }),
    ("mode_by_proc", |t| {
        let Ok(file) = File::open(t.outside.join("victim.txt")) else { return false };
        mode(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())), 0o777)
    }),
    ("mode_by_folder_of_process", |t| {
        std::env::set_current_dir(&t.outside).is_ok() && mode(Path::new("victim.txt"), 0o777)
    }),
    ("mode_by_dots", |t| mode(&t.outside.join("folder/../../outside/victim.txt"), 0o777)),
    // SAFETY: the path ends with a zero byte.
    ("mode_by_newer_call", |t| unsafe {
        let path = c(&t.outside.join("victim.txt"));
        libc::syscall(452, libc::AT_FDCWD, path.as_ptr(), 0o777, 0) == 0
    }),
    ("mode_sets_user_here", |_| here("program") && mode(Path::new("program"), 0o4755)),
    ("owner", |t| std::os::unix::fs::chown(t.outside.join("victim.txt"), None, Some(own_group())).is_ok()),
    ("owner_of_what_is_read", |t| {
        let file = File::open(t.outside.join("victim.txt"));
        file.is_ok_and(|file| std::os::unix::fs::fchown(file, None, Some(own_group())).is_ok())
    }),
    ("times", |t| {
        let file = File::open(t.outside.join("victim.txt"));
        file.is_ok_and(|file| file.set_modified(std::time::UNIX_EPOCH).is_ok())
    }),
    ("times_by_path", |t| shell(&format!("touch -d 2001-01-01 {}/victim.txt", t.outside.display()))),
    // SAFETY: the path ends with a zero byte; a null pointer means the present time.
    ("times_by_old_call", |t| unsafe {
        libc::utimes(c(&t.outside.join("victim.txt")).as_ptr(), null()) == 0
    }),
    // SAFETY: the strings end with a zero byte, and the value is as long as is said.
    ("extended_attribute", |t| unsafe {
        let path = c(&t.outside.join("victim.txt"));
        libc::setxattr(path.as_ptr(), c"user.escaped".as_ptr(), c"x".as_ptr().cast(), 1, 0) == 0
    }),
    ("flags_of_file", |t| {
        let Ok(file) = File::open(t.outside.join("victim.txt")) else { return false };
        let no_dump = 0x40i32;
        // SAFETY: the pointer is to a number, which the kernel reads.
        unsafe { libc::ioctl(file.as_raw_fd(), 0x4008_6602, &no_dump) == 0 }
    }),
    ("read_secret", |t| fs::read(t.secret.join("key")).is_ok()),
    ("list_secret", |t| fs::read_dir(&t.secret).is_ok()),
    ("list_parent_of_secret", |t| t.secret.parent().is_some_and(|parent| fs::read_dir(parent).is_ok())),
    ("read_secret_through_link", |t| {
        let _ = symlink(t.secret.join("key"), "key-link");
        fs::read("key-link").is_ok()
    }),
    ("read_secret_by_root_of_process", |t| {
        let key = t.secret.join("key");
        fs::read(Path::new("/proc/self/root").join(key.strip_prefix("/").unwrap_or(&key))).is_ok()
    }),
    ("read_secret_from_its_folder", |t| {
        std::env::set_current_dir(&t.secret).is_ok() && fs::read("key").is_ok()
    }),
    ("read_secret_by_handle", |t| by_handle(&t.secret.join("key"))),
    ("run_secret", |t| Command::new(t.secret.join("key")).status().is_ok()),
    ("shell_cat_secret", |t| shell(&format!("cat {}/key", t.secret.display()))),
    ("move_secret_in", |t| fs::rename(&t.secret, "taken").is_ok()),
    ("read_shadow", |_| fs::read("/etc/shadow").is_ok_and(|shadow| !shadow.is_empty())),
    ("read_disk", |_| {
        let disks = ["/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/dm-0"];
        disks.iter().any(|disk| File::open(disk).is_ok_and(|mut file| file.read(&mut [0; 16]).is_ok()))
    }),
    ("read_memory", |_| ["/dev/mem", "/dev/kmem", "/proc/kcore"].iter().any(|path| File::open(path).is_ok())),
    ("open_fuse_or_kvm", |_| {
        let devices = ["/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/uinput"];
        devices.iter().any(|path| OpenOptions::new().read(true).write(true).open(path).is_ok())
    }),
];

fn mode(path: &Path, mode: u32) -> bool {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).is_ok()
}

fn own_group() -> u32 {
    // SAFETY: this takes nothing.
    unsafe { libc::getgid() }
}

fn here(name: &str) -> bool {
    fs::write(name, "x").is_ok()
}

fn shell(line: &str) -> bool {
    Command::new("sh").args(["-c", line]).status().is_ok_and(|status| status.success())
}

fn made(path: &Path, kind: libc::mode_t, device: libc::dev_t) -> bool {
    // SAFETY: the path ends with a zero byte.
    unsafe { libc::mknod(c(path).as_ptr(), kind | 0o600, device) == 0 }
}

fn exchanged(a: &Path, b: &Path) -> bool {
    let (at, a, b) = (libc::AT_FDCWD, c(a), c(b));
    // SAFETY: both paths end with a zero byte.
    unsafe { libc::syscall(libc::SYS_renameat2, at, a.as_ptr(), at, b.as_ptr(), libc::RENAME_EXCHANGE) == 0 }
}

fn mapped_write(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let (both, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: the kernel chooses the place, and nothing is read or written through it.
    unsafe { libc::mmap(std::ptr::null_mut(), 1, both, libc::MAP_SHARED, fd, 0) != libc::MAP_FAILED }
}

/// Opens a file by what the kernel knows it by, not by its path.
fn by_handle(path: &Path) -> bool {
    let mut handle = [0u32; 34]; // its size in bytes, its type, and 128 bytes
    handle[0] = 128;
    let (path, mut mount) = (c(path), 0);
    // SAFETY: the path ends with a zero byte; the handle has the room that it says.
    unsafe {
        let named = libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            handle.as_mut_ptr(),
            &mut mount,
            0,
        );
        let Ok(root) = File::open("/usr") else { return false };
        let flags = libc::O_RDONLY;
        named == 0
            && libc::syscall(libc::SYS_open_by_handle_at, root.as_raw_fd(), handle.as_ptr(), flags) >= 0
    }
}
