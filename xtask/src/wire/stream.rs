//! A connection to the server, plain or under TLS.

use crate::{Outcome, paths};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

pub enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Under TLS what is sent first takes the handshake along.
    pub fn new(stream: TcpStream, tls: Option<&Arc<ClientConfig>>) -> Outcome<Stream> {
        let Some(config) = tls else { return Ok(Stream::Plain(stream)) };
        let client = ClientConnection::new(config.clone(), "localhost".try_into()?)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(client, stream))))
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// The server's certificate or its key, which are made for tests alone.
pub fn pem(name: &str) -> PathBuf {
    paths::repository().join("crates/server/tests/tls").join(name)
}

/// A client that trusts this certificate, and resumes its sessions with the server as clients do.
pub fn client() -> Outcome<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pem("cert.pem"))?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
