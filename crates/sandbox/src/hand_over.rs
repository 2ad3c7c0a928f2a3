//! An open file from one process to another.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Room for the kernel's head of a message and one file, aligned as it wants it.
#[repr(C, align(8))]
struct Letter([u8; LETTER_BYTES]);

// SAFETY: these only compute with numbers.
const LETTER_BYTES: usize = unsafe { libc::CMSG_SPACE(FILE_BYTES) as usize };
const FILE_BYTES: u32 = size_of::<RawFd>() as u32;

pub fn send(to: &UnixStream, file: &OwnedFd) -> io::Result<()> {
    let mut letter = Letter([0; LETTER_BYTES]);
    // SAFETY: the message names one byte and a letter that has room for a head and one file, which are written first.
    let sent = unsafe {
        let mut byte = 0u8;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let message = message(&mut part, &mut letter);
        let head = libc::CMSG_FIRSTHDR(&message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(FILE_BYTES) as _;
        libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(file.as_raw_fd());
        libc::sendmsg(to.as_raw_fd(), &message, 0)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub fn receive(from: &UnixStream) -> io::Result<OwnedFd> {
    let mut letter = Letter([0; LETTER_BYTES]);
    // SAFETY: the message names one byte and a letter with room for one file; what the kernel has put there is read only if
    // it says that it is a file, which then is this process's alone.
    unsafe {
        let mut byte = 0u8;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let mut message = message(&mut part, &mut letter);
        if libc::recvmsg(from.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) != 1 {
            return Err(io::Error::last_os_error());
        }
        let head = libc::CMSG_FIRSTHDR(&message);
        if head.is_null() || (*head).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::Error::other("no file was handed over"));
        }
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned()))
    }
}

/// A message of one part and a letter. It is good as long as both are.
fn message(part: &mut libc::iovec, letter: &mut Letter) -> libc::msghdr {
    // SAFETY: all zeroes are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (part, 1);
    (message.msg_control, message.msg_controllen) = (letter.0.as_mut_ptr().cast(), LETTER_BYTES as _);
    message
}
