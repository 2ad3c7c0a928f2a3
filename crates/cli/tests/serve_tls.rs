//! The real binary behind TLS, on all addresses of the machine: real clients find it there, and nothing answers without TLS.

mod support;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use support::server::{Server, text};
use support::{MODEL, PATIENCE, clients, succeeds};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../server/tests/tls").join(name)
}

/// Without `--insecure-listen`: TLS is enough to be seen from other machines.
fn serve() -> (Server, String) {
    let (certificate, key) = (file("cert.pem"), file("key.pem"));
    let args = [
        "--host",
        "0.0.0.0",
        "--tls-cert",
        certificate.to_str().unwrap(),
        "--tls-key",
        key.to_str().unwrap(),
    ];
    let server = Server::start_in(tempfile::tempdir().unwrap(), &args);
    let port = server.address.rsplit(':').next().unwrap();
    let host = format!("localhost:{port}");
    (server, host)
}

fn connect(host: &str) -> TcpStream {
    let stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Trusts the certificate of the tests, and no other.
fn secured(host: &str) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let client = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    StreamOwned::new(client, connect(host))
}

fn next(socket: &mut WebSocket<StreamOwned<ClientConnection, TcpStream>>) -> Value {
    match socket.read().unwrap() {
        Message::Text(text) => serde_json::from_str(&text).unwrap(),
        other => panic!("not an event: {other:?}"),
    }
}

#[test]
fn turns_go_through_tls_and_through_nothing_else() {
    let (server, host) = serve();
    a_turn_on_a_socket(&server, &host);
    let mut sdk = Command::new(clients().join("python/bin/python"));
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients/sdk.py");
    sdk.arg(script).args([&format!("https://{host}/v1"), &server.key, MODEL, "stream"]);
    succeeds(sdk.env("SSL_CERT_FILE", file("cert.pem")));
    plain_words_are_not_answered(&server, &host);
}

fn a_turn_on_a_socket(server: &Server, host: &str) {
    let mut request = format!("wss://{host}/v1/responses").into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {}", server.key).parse().unwrap());
    let (mut socket, _) = tungstenite::client(request, secured(host)).unwrap();
    let frame =
        json!({"type": "response.create", "input": "Say hello.", "max_output_tokens": 8, "store": false});
    socket.send(Message::text(frame.to_string())).unwrap();
    let mut events = vec![next(&mut socket)];
    while !["response.completed", "response.incomplete"]
        .iter()
        .any(|end| events[events.len() - 1]["type"] == *end)
    {
        events.push(next(&mut socket));
    }
    assert!(!text(&events).is_empty(), "{events:?}");
}

fn plain_words_are_not_answered(server: &Server, host: &str) {
    let mut stream = connect(host);
    let bearer = &server.key;
    write!(stream, "GET /v1/models HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {bearer}\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    // However the connection ends: nothing was told.
    let _ = stream.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1"), "{answer:?}");
}
