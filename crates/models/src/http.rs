//! Downloads that go on where they stopped.

use crate::FILE_BYTES_MAX;
use crate::error::PullError;
use crate::partial::Partial;
use crate::pull::Progress;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Body, RequestBuilder};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(30);
const SILENCE_TIME_MAX: Duration = Duration::from_secs(60); // of a server in the middle of a file

/// How often one call goes on after a connection broke, as long as each try brings something.
const BREAKS_MAX: usize = 5;

/// As whom files are asked for.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    Hub { token: Option<String> },
    Public,
}

pub(crate) struct Client {
    agent: ureq::Agent,
    access: Access,
}

/// What is said of a file before it is downloaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) url: &'a str,
    /// A digest will tell if the end does not belong to the beginning. Where none does, only a file with the same
    /// ETag is gone on with.
    pub(crate) digest_follows: bool,
}

/// What the server makes of being asked for the rest of a file.
enum Answer {
    Rest,
    Whole,
    NothingLeft,
    /// Not the part that was asked for; the file has to be asked for anew.
    Other,
}

impl Client {
    pub(crate) fn new(access: Access) -> Client {
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .timeout_recv_response(Some(RESPONSE_TIME_MAX))
            .timeout_per_read(Some(SILENCE_TIME_MAX))
            // The hub redirects within itself, where the token is needed, and to other hosts, which must not see it.
            .redirect_auth_headers(ureq::config::RedirectAuthHeaders::SameHost)
            .http_status_as_error(false)
            .user_agent(concat!("flint/", env!("CARGO_PKG_VERSION")))
            .build();
        Client { agent: config.into(), access }
    }

    /// The text at a URL, of at most `limit` bytes.
    pub(crate) fn text(&self, url: &str, limit: u64) -> Result<String, PullError> {
        let mut response = self.call(self.request(url), url)?;
        if response.status() != 200 {
            return Err(self.refused(url, response.status().as_u16()));
        }
        let body = response.body_mut().with_config().limit(limit).read_to_string();
        body.map_err(|error| http(url, error.to_string()))
    }

    /// Downloads to `partial`, going on after the bytes that it holds already.
    pub(crate) fn download(
        &self,
        wanted: Wanted,
        partial: &Path,
        progress: &mut dyn Progress,
    ) -> Result<(), PullError> {
        let mut partial = Partial::open(partial)?;
        let outcome = self.attempts(wanted, &mut partial, progress);
        if outcome.is_err() {
            partial.remove_if_empty()?;
        }
        outcome
    }

    fn attempts(
        &self,
        wanted: Wanted,
        partial: &mut Partial,
        progress: &mut dyn Progress,
    ) -> Result<(), PullError> {
        for _ in 0..BREAKS_MAX {
            let before = partial.len()?;
            match self.attempt(wanted, partial, progress) {
                Err(PullError::Broken { .. }) if partial.len()? > before => {
                    progress.note(&format!("{}: the connection broke; going on", wanted.url));
                }
                result => return result,
            }
        }
        self.attempt(wanted, partial, progress)
    }

    fn attempt(
        &self,
        wanted: Wanted,
        partial: &mut Partial,
        progress: &mut dyn Progress,
    ) -> Result<(), PullError> {
        let url = wanted.url;
        let tag = if wanted.digest_follows { None } else { partial.tag() };
        if !wanted.digest_follows && tag.is_none() {
            partial.restart(None)?;
        }
        let have = partial.len()?;
        let mut response = self.call(rest_of(self.request(url), have, tag.as_deref()), url)?;
        match self.answer(&response, url, have)? {
            Answer::Rest => {}
            Answer::Whole => partial.restart(tag_of(&response).filter(|_| !wanted.digest_follows))?,
            Answer::NothingLeft => return partial.finish(),
            Answer::Other => {
                partial.restart(None)?;
                return self.attempt(wanted, partial, progress);
            }
        }
        let start = partial.len()?;
        let total = response.body().content_length().map(|rest| start + rest);
        progress.begin(url, total, start);
        let mut body = response.body_mut().with_config().limit(FILE_BYTES_MAX).reader();
        copy(&mut body, partial, url, total, progress)?;
        partial.finish()
    }

    /// After `Other` nothing is there (`have` is 0), and nothing but the whole file will do.
    fn answer(&self, response: &Response<Body>, url: &str, have: u64) -> Result<Answer, PullError> {
        let range = response.headers().get("content-range").and_then(|value| value.to_str().ok());
        let range = range.unwrap_or_default();
        match response.status().as_u16() {
            200 => Ok(Answer::Whole),
            206 if have > 0 && range.starts_with(&format!("bytes {have}-")) => Ok(Answer::Rest),
            416 if have > 0 && range == format!("bytes */{have}") => Ok(Answer::NothingLeft),
            206 | 416 if have > 0 => Ok(Answer::Other),
            status => Err(self.refused(url, status)),
        }
    }

    fn request(&self, url: &str) -> RequestBuilder<ureq::typestate::WithoutBody> {
        let request = self.agent.get(url);
        match &self.access {
            Access::Hub { token: Some(token) } => request.header("Authorization", format!("Bearer {token}")),
            Access::Hub { token: None } | Access::Public => request,
        }
    }

    fn call(
        &self,
        request: RequestBuilder<ureq::typestate::WithoutBody>,
        url: &str,
    ) -> Result<Response<Body>, PullError> {
        request
            .call()
            .map_err(|error| http(url, format!("{error}; is the address right, and the network up?")))
    }

    fn refused(&self, url: &str, status: u16) -> PullError {
        let problem = match (status, &self.access) {
            (401 | 403, Access::Hub { token: None }) => {
                "access was refused: the repository is private, gated or not there. \
                 Set HF_TOKEN to a token that may read it"
            }
            (401 | 403, Access::Hub { token: Some(_) }) => {
                "access was refused to the token in HF_TOKEN: let it read this repository, \
                 or accept the model's terms on its page"
            }
            (401 | 403, Access::Public) => {
                "access was refused. A private file of the hub is pulled as hf:REPO:FILE with HF_TOKEN set"
            }
            (404, _) => "there is no such file; check the name",
            (429, _) => "the server wants fewer requests; try again later",
            (500.., _) => "the server failed; try again later",
            _ => "the server sent something other than the file",
        };
        http(url, format!("{problem} (status {status})"))
    }
}

/// Asks for what comes after `have` bytes; with a tag, only if the file is still the same.
fn rest_of(
    request: RequestBuilder<ureq::typestate::WithoutBody>,
    have: u64,
    tag: Option<&str>,
) -> RequestBuilder<ureq::typestate::WithoutBody> {
    match (have, tag) {
        (0, _) => request,
        (_, Some(tag)) => request.header("Range", format!("bytes={have}-")).header("If-Range", tag),
        (_, None) => request.header("Range", format!("bytes={have}-")),
    }
}

/// The ETag, if it stands for the very bytes: a weak one does not.
fn tag_of(response: &Response<Body>) -> Option<String> {
    let tag = response.headers().get("etag")?.to_str().ok()?;
    tag.starts_with('"').then(|| tag.to_string())
}

fn http(url: &str, problem: String) -> PullError {
    PullError::Http { url: url.into(), problem }
}

fn copy(
    body: &mut impl Read,
    partial: &mut Partial,
    url: &str,
    total: Option<u64>,
    progress: &mut dyn Progress,
) -> Result<(), PullError> {
    let mut buffer = vec![0; 256 << 10];
    let mut done = partial.len()?;
    let broken = |done, problem: String| PullError::Broken { url: url.into(), done, problem };
    loop {
        let read = body.read(&mut buffer).map_err(|error| broken(done, error.to_string()))?;
        if read == 0 {
            break;
        }
        partial.append(&buffer[..read])?;
        done += read as u64;
        progress.at(done);
        if progress.stop() {
            return Err(PullError::Stopped);
        }
    }
    match total {
        Some(total) if done != total => Err(broken(done, format!("of {total} bytes"))),
        _ => Ok(()),
    }
}
