//! Downloads that go on where they stopped.

use crate::FILE_BYTES_MAX;
use crate::error::PullError;
use crate::pull::Progress;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

pub(crate) struct Client {
    agent: ureq::Agent,
    token: Option<String>,
}

impl Client {
    pub(crate) fn new(token: Option<String>) -> Client {
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .timeout_recv_response(Some(Duration::from_secs(30)))
            .http_status_as_error(false)
            .user_agent(concat!("flint/", env!("CARGO_PKG_VERSION")))
            .build();
        Client { agent: config.into(), token }
    }

    /// The text at a URL, of at most `limit` bytes.
    pub(crate) fn text(&self, url: &str, limit: u64) -> Result<String, PullError> {
        let mut response = self.get(url, 0)?;
        let body = response.body_mut().with_config().limit(limit).read_to_string();
        body.map_err(|error| http(url, error.to_string()))
    }

    /// Downloads to `partial`, going on after the bytes that it holds already.
    pub(crate) fn download(
        &self,
        url: &str,
        partial: &Path,
        progress: &mut dyn Progress,
    ) -> Result<(), PullError> {
        let have = partial.metadata().map_or(0, |metadata| metadata.len());
        let mut response = self.get(url, have)?;
        let resumes = response.status() == 206 && starts_at(&response, have);
        if response.status() == 416 && have > 0 {
            return Ok(()); // nothing is left to fetch; the digest will tell whether it is right
        }
        let start = if resumes { have } else { 0 };
        let mut file = open_partial(partial, resumes)?;
        let total = response.body().content_length().map(|rest| start + rest);
        progress.begin(url, total, start);
        let mut body = response.body_mut().with_config().limit(FILE_BYTES_MAX).reader();
        copy(&mut body, &mut file, url, partial, start, progress)?;
        let done = partial.metadata().map_or(0, |metadata| metadata.len());
        match total {
            Some(total) if done != total => Err(http(url, format!("ended after {done} of {total} bytes"))),
            _ => Ok(()),
        }
    }

    fn get(&self, url: &str, from: u64) -> Result<ureq::http::Response<ureq::Body>, PullError> {
        let mut request = self.agent.get(url);
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let response = request.call().map_err(|error| http(url, error.to_string()))?;
        match response.status().as_u16() {
            200 | 206 | 416 => Ok(response),
            401 | 403 => {
                Err(http(url, "access was refused; set HF_TOKEN to a token that may read it".into()))
            }
            404 => Err(http(url, "there is no such file".into())),
            status => Err(http(url, format!("the server answered with status {status}"))),
        }
    }
}

fn http(url: &str, problem: String) -> PullError {
    PullError::Http { url: url.into(), problem }
}

/// The server sends what was asked for, and not something else.
fn starts_at(response: &ureq::http::Response<ureq::Body>, from: u64) -> bool {
    let range = response.headers().get("content-range").and_then(|value| value.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {from}-")))
}

fn open_partial(partial: &Path, append: bool) -> Result<File, PullError> {
    let mut options = OpenOptions::new();
    options.create(true).write(true);
    if append {
        options.append(true)
    } else {
        options.truncate(true)
    };
    options.open(partial).map_err(PullError::io(partial, "cannot be written"))
}

fn copy(
    body: &mut impl Read,
    file: &mut File,
    url: &str,
    partial: &Path,
    start: u64,
    progress: &mut dyn Progress,
) -> Result<(), PullError> {
    let mut buffer = vec![0; 256 << 10];
    let mut done = start;
    loop {
        let read = body.read(&mut buffer).map_err(|error| http(url, error.to_string()))?;
        if read == 0 {
            return file.sync_all().map_err(PullError::io(partial, "cannot be written"));
        }
        file.write_all(&buffer[..read]).map_err(PullError::io(partial, "cannot be written"))?;
        done += read as u64;
        progress.at(done);
        if progress.stop() {
            return Err(PullError::Stopped);
        }
    }
}
