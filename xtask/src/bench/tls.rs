//! The server behind TLS, with the certificate of its tests.

use crate::wire::{Duplex, Layer};
use crate::{Outcome, paths};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

/// What is sent first takes the handshake along. A later connection resumes the session of an earlier one, as those of
/// usual clients do.
pub fn layer() -> Outcome<Layer> {
    let config = client()?;
    let wrap = move |stream: TcpStream| -> Outcome<Box<dyn Duplex>> {
        let client = ClientConnection::new(config.clone(), "localhost".try_into()?)?;
        Ok(Box::new(StreamOwned::new(client, stream)))
    };
    let args = vec!["--tls-cert".into(), file("cert.pem").into(), "--tls-key".into(), file("key.pem").into()];
    Ok(Layer { args, wrap: Box::new(wrap) })
}

fn file(name: &str) -> PathBuf {
    paths::repository().join("crates/server/tests/tls").join(name)
}

fn client() -> Outcome<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("cert.pem"))?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
