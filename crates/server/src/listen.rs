//! The listening socket.

use crate::limits::{CONNECTIONS_WAITING_MAX, SOCKET_SEND_BYTES_MAX};
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket};

/// Listens there. What the kernel holds for a client that does not read is bounded: left to itself it would be
/// some megabytes for each, ten times what the server keeps for it.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that is started again finds its address free.
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SOCKET_SEND_BYTES_MAX)?;
    socket.bind(address)?;
    socket.listen(CONNECTIONS_WAITING_MAX)
}
