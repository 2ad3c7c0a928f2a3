//! The door: which requests come in. Everything but `/health` is checked before a byte of its body is read.
//!
//! A page of another site that a browser shows can reach a server on loopback, even under a name of its own
//! that it lets point there. So the Host must be one that is served, and the Origin, which browsers always
//! send with such requests, one that is allowed. Neither replaces the key.

use crate::http::Failed;
use crate::keys::{Holder, Ring};
use crate::limits::REQUEST_BYTES_MAX;
use crate::note::Note;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use flint_wire::ApiError;
use std::net::SocketAddr;
use std::sync::Arc;

pub struct Guard {
    pub keys: Arc<Ring>,
    pub names: Names,
}

/// What the server answers to.
#[derive(Debug, Clone, Default)]
pub struct Names {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Names {
    /// The address itself, loopback by its names, and what the operator adds: `host`, which stands for itself
    /// with and without the port, or `host:port`.
    pub fn new(address: SocketAddr, secure: bool, hosts: &[String], origins: &[String]) -> Names {
        let port = address.port();
        let own = ["127.0.0.1".to_owned(), "localhost".to_owned(), "[::1]".to_owned(), bare(address)];
        let mut names = Names::default();
        for host in own.iter().chain(hosts).map(|host| host.to_ascii_lowercase()) {
            if !has_port(&host) {
                names.hosts.push(format!("{host}:{port}"));
            }
            names.hosts.push(host);
        }
        let scheme = if secure { "https" } else { "http" };
        names.origins = names.hosts.iter().map(|host| format!("{scheme}://{host}")).collect();
        names.origins.extend(origins.iter().map(|origin| origin.to_ascii_lowercase()));
        names
    }

    fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), ApiError> {
        let host = single(headers, &HOST)?.unwrap_or_default();
        // A request line may name a host too; a proxy might believe that one.
        let authority = uri.authority().map_or(host, |authority| authority.as_str());
        for name in [host, authority] {
            if !self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                let message = format!(
                    "the host `{}` is not served here: use the address that flint serve printed, or start it \
                     with --allow-host",
                    shown(name)
                );
                return Err(ApiError { code: "host_not_allowed", ..ApiError::forbidden(message) });
            }
        }
        let Some(origin) = single(headers, &ORIGIN)? else { return Ok(()) };
        match self.origins.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
            true => Ok(()),
            false => {
                let message = format!(
                    "pages of `{}` may not use this server: start it with --allow-origin if they should",
                    shown(origin)
                );
                Err(ApiError { code: "origin_not_allowed", ..ApiError::forbidden(message) })
            }
        }
    }
}

fn bare(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// `host:1` and `[::1]:1`, but not `[::1]`.
fn has_port(host: &str) -> bool {
    let name = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    name.contains(':')
}

/// What others wrote, short and harmless enough for an error.
fn shown(text: &str) -> String {
    text.chars().filter(|char| char.is_ascii_graphic()).take(100).collect()
}

/// The one value of a header. Two could be read differently by two readers.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    match (first.map(HeaderValue::to_str), second) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        (Some(_), _) => {
            let message = format!("the header `{name}` must be there once, as plain text");
            Err(ApiError::bad_request("invalid_header", message))
        }
    }
}

impl Guard {
    fn check(&self, request: &Request) -> Result<Holder, ApiError> {
        self.names.check(request.headers(), request.uri())?;
        let holder = self.holder(request.headers())?;
        check_body(request.headers())?;
        Ok(holder)
    }

    fn holder(&self, headers: &HeaderMap) -> Result<Holder, ApiError> {
        let given = single(headers, &AUTHORIZATION)?;
        let key = given.and_then(|given| given.split_once(' '));
        let key = key.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
        let Some(key) = key else {
            return Err(ApiError::unauthorised(
                "this server needs a key: send `Authorization: Bearer KEY`. The local user's is in the file \
                 that flint serve names when it starts; `flint key add NAME` makes another",
            ));
        };
        self.keys.find(key).ok_or_else(|| {
            ApiError::unauthorised(
                "this key is not known here, or was revoked: `flint key add NAME` makes one",
            )
        })
    }
}

/// Bodies are JSON and not too long. Who does not say what they send is believed to send that.
fn check_body(headers: &HeaderMap) -> Result<(), ApiError> {
    let bytes = single(headers, &CONTENT_LENGTH)?.and_then(|bytes| bytes.parse::<usize>().ok());
    if bytes.is_some_and(|bytes| bytes > REQUEST_BYTES_MAX) {
        let message = format!("the body has more than {REQUEST_BYTES_MAX} bytes");
        return Err(ApiError::too_large(message));
    }
    let Some(given) = single(headers, &CONTENT_TYPE)? else { return Ok(()) };
    let kind = given.split(';').next().unwrap_or_default().trim();
    match kind.eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => Err(ApiError {
            status: 415,
            ..ApiError::bad_request(
                "unsupported_media_type",
                "bodies are JSON: send `Content-Type: application/json`",
            )
        }),
    }
}

/// Lets a request in, with its holder as an extension, or answers it.
pub async fn guard(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    if request.uri().path() == "/health" {
        return next.run(request).await;
    }
    match guard.check(&request) {
        Ok(holder) => {
            if let Some(note) = Note::current() {
                note.key(&holder.name);
            }
            request.extensions_mut().insert(holder);
            next.run(request).await
        }
        Err(error) => refuse(error),
    }
}

fn refuse(error: ApiError) -> Response {
    let mut response = Failed(error).into_response();
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &Names, host: &str, origin: Option<&str>) -> Result<(), &'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
        names.check(&headers, &Uri::from_static("/v1/models")).map_err(|error| error.code)
    }

    #[test]
    fn only_its_own_names_are_served() {
        let names = Names::new("127.0.0.1:8645".parse().unwrap(), false, &["box.lan".to_owned()], &[]);
        for host in
            ["127.0.0.1:8645", "localhost:8645", "LOCALHOST:8645", "[::1]:8645", "box.lan", "box.lan:8645"]
        {
            assert_eq!(check(&names, host, None), Ok(()), "{host}");
        }
        for host in ["evil.example", "127.0.0.1:8646", "127.0.0.1.evil.example:8645", "box.lan:1", ""] {
            assert_eq!(check(&names, host, None), Err("host_not_allowed"), "{host}");
        }
    }

    #[test]
    fn only_its_own_pages_may_ask() {
        let more = ["https://editor.example".to_owned()];
        let names = Names::new("127.0.0.1:8645".parse().unwrap(), false, &[], &more);
        for origin in ["http://127.0.0.1:8645", "http://localhost:8645", "https://editor.example"] {
            assert_eq!(check(&names, "localhost:8645", Some(origin)), Ok(()), "{origin}");
        }
        for origin in
            ["null", "http://evil.example", "https://localhost:8645", "http://localhost:1", "file://", ""]
        {
            assert_eq!(check(&names, "localhost:8645", Some(origin)), Err("origin_not_allowed"), "{origin}");
        }
    }

    #[test]
    fn a_request_line_cannot_name_another_host() {
        let names = Names::new("127.0.0.1:8645".parse().unwrap(), false, &[], &[]);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "localhost:8645".parse().unwrap());
        assert!(names.check(&headers, &Uri::from_static("http://evil.example/v1/models")).is_err());
        headers.append(HOST, "evil.example".parse().unwrap());
        assert!(names.check(&headers, &Uri::from_static("/v1/models")).is_err());
    }
}
