//! TLS in front of the server. Handshakes run beside one another: a client that never ends its own holds up
//! nobody.

use crate::limits::{HANDSHAKE_SECONDS_MAX, HANDSHAKES_MAX};
use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{self, CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path}: {source}: PEM is needed")]
    Pem { path: PathBuf, source: pki_types::pem::Error },
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// A certificate and its key, ready to be used.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    pub fn open(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let pem = |path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::Pem { path, source }
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(pem(certificate))?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(pem(key))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, private)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }

    pub fn listen(self, listener: TcpListener) -> io::Result<Listening> {
        let address = listener.local_addr()?;
        let (sender, accepted) = mpsc::channel(1);
        Ok(Listening { address, accepted, accepting: tokio::spawn(accept(self.0, listener, sender)) })
    }
}

type Accepted = (TlsStream<TcpStream>, SocketAddr);

/// Connections whose handshake is done.
pub struct Listening {
    address: SocketAddr,
    accepted: mpsc::Receiver<Accepted>,
    accepting: JoinHandle<()>,
}

impl Listener for Listening {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Accepted {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The task that accepts ends only with this.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(acceptor: TlsAcceptor, mut listener: TcpListener, sender: mpsc::Sender<Accepted>) {
    let room = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        // Axum's accept also waits out errors such as too many open files.
        let (stream, address) = Listener::accept(&mut listener).await;
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let limit = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
            // A handshake that fails or takes too long ends with its connection.
            if let Ok(Ok(stream)) = tokio::time::timeout(limit, acceptor.accept(stream)).await {
                drop(permit);
                let _ = sender.send((stream, address)).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    fn file(name: &str) -> PathBuf {
        // Made for this test alone, for `localhost`.
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
    }

    fn client() -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(file("cert.pem")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_holds_up_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = Tls::open(&file("cert.pem"), &file("key.pem")).unwrap();
        let mut listening = tls.listen(listener).unwrap();
        let _silent = TcpStream::connect(address).await.unwrap();
        let asks = async {
            let stream = TcpStream::connect(address).await.unwrap();
            let mut stream = client().connect("localhost".try_into().unwrap(), stream).await.unwrap();
            stream.write_all(b"hello").await.unwrap();
            stream.flush().await.unwrap();
            stream
        };
        let (_client, (mut served, _)) = tokio::join!(asks, listening.accept());
        let mut heard = [0; 5];
        served.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
    }

    #[test]
    fn files_that_are_not_pem_are_named() {
        let error = Tls::open(&file("key.pem"), &file("nothing.pem")).err().unwrap().to_string();
        assert!(error.contains(".pem: "), "{error}");
    }
}
