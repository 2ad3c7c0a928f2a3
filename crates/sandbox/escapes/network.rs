//! Reaching somebody who listens.

use super::Escape;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::process::Command;

pub const ESCAPES: &[Escape] = &[
    ("tcp_connect", |t| TcpStream::connect(("127.0.0.1", t.port)).is_ok()),
    ("tcp_connect_6", |_| opened(libc::AF_INET6, libc::SOCK_STREAM, 0)),
    ("tcp_listen", |_| TcpListener::bind("127.0.0.1:0").is_ok()),
    ("udp_send", |t| {
        let socket = UdpSocket::bind("127.0.0.1:0");
        socket.is_ok_and(|socket| socket.send_to(b"x", ("127.0.0.1", t.port)).is_ok())
    }),
    ("mptcp", |_| opened(libc::AF_INET, libc::SOCK_STREAM, 262)),
    ("sctp", |_| {
        opened(libc::AF_INET, libc::SOCK_SEQPACKET, 132) || opened(libc::AF_INET, libc::SOCK_STREAM, 0)
    }),
    ("raw", |_| opened(libc::AF_INET, libc::SOCK_RAW, 1)),
    ("ping", |_| opened(libc::AF_INET, libc::SOCK_DGRAM, 1)),
    ("packets", |_| opened(libc::AF_PACKET, libc::SOCK_RAW, 0)),
    ("netlink", |_| opened(libc::AF_NETLINK, libc::SOCK_RAW, 0)),
    ("kernel_crypto", |_| opened(libc::AF_ALG, libc::SOCK_SEQPACKET, 0)),
    ("virtual_machine", |_| opened(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
    ("bluetooth", |_| opened(31, libc::SOCK_RAW, 1)),
    ("high_bits_of_family", |_| {
        // SAFETY: this takes numbers only.
        unsafe { libc::syscall(libc::SYS_socket, 0x1_0000_0002u64, libc::SOCK_STREAM as u64, 0u64) >= 0 }
    }),
    ("unix_connect", |t| UnixStream::connect(&t.socket).is_ok()),
    ("unix_listen_here", |_| UnixListener::bind("listening").is_ok()),
    ("unix_datagram", |_| UnixDatagram::unbound().is_ok()),
    ("unix_abstract", |t| {
        use std::os::linux::net::SocketAddrExt;
        let address = SocketAddr::from_abstract_name(t.socket.as_os_str().as_encoded_bytes());
        address.is_ok_and(|address| UnixStream::connect_addr(&address).is_ok())
    }),
    ("shell_tcp", |t| {
        let line = format!("exec 3<>/dev/tcp/127.0.0.1/{}", t.port);
        Command::new("bash").args(["-c", &line]).status().is_ok_and(|status| status.success())
    }),
    ("python_tcp", |t| {
        let line = format!("import socket; socket.create_connection(('127.0.0.1', {}))", t.port);
        Command::new("python3").args(["-c", &line]).status().is_ok_and(|status| status.success())
    }),
    ("ring", |_| {
        let mut params = [0u8; 120];
        // SAFETY: the parameters are as long as the kernel's.
        unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, params.as_mut_ptr()) >= 0 }
    }),
];

fn opened(family: i32, kind: i32, protocol: i32) -> bool {
    // SAFETY: this takes numbers only.
    unsafe { libc::socket(family, kind, protocol) >= 0 }
}
