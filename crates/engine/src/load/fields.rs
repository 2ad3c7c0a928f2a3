//! Numbers of a configuration, wherever it is written: looked up by name, bounded, and with the name in
//! every complaint.

use super::error::{Fault, quoted};
use super::gguf::GgufMetadata;

/// Named values of a configuration file.
pub(super) trait Fields {
    fn whole(&self, name: &str) -> Result<Option<u64>, Fault>;
    fn real(&self, name: &str) -> Result<Option<f64>, Fault>;

    /// The name as it stands in the file.
    fn label(&self, name: &str) -> String;

    /// A size from 1 to `max`; `None` when it is not given.
    fn size(&self, name: &str, max: usize) -> Result<Option<usize>, Fault> {
        let Some(value) = self.whole(name)? else {
            return Ok(None);
        };
        match usize::try_from(value) {
            Ok(size) if (1..=max).contains(&size) => Ok(Some(size)),
            _ => Err(Fault::damaged(self.label(name), value, format!("1 to {max}"))),
        }
    }

    fn needed_size(&self, name: &str, max: usize) -> Result<usize, Fault> {
        let size = self.size(name, max)?;
        size.ok_or_else(|| Fault::missing(self.label(name), format!("a number from 1 to {max}")))
    }

    /// A number above 0, up to `max`.
    fn positive(&self, name: &str, max: f64) -> Result<Option<f64>, Fault> {
        match self.real(name)? {
            Some(value) if !(value > 0.0 && value <= max) => {
                Err(Fault::damaged(self.label(name), value, format!("more than 0 and at most {max}")))
            }
            value => Ok(value),
        }
    }

    fn needed_positive(&self, name: &str, max: f64) -> Result<f64, Fault> {
        let value = self.positive(name, max)?;
        value.ok_or_else(|| Fault::missing(self.label(name), "a number above 0"))
    }

    /// Refuses a number that is given and is not `expected`: Flint's code has it built in.
    fn fixed(&self, name: &str, expected: f64) -> Result<(), Fault> {
        match self.real(name)? {
            Some(value) if (value - expected).abs() > 1e-6 * expected.abs() => {
                Err(Fault::unsupported(self.label(name), value, expected))
            }
            _ => Ok(()),
        }
    }
}

/// The keys of one architecture: `block_count` is `llama.block_count`.
pub(super) struct GgufFields<'a> {
    pub(super) metadata: &'a GgufMetadata,
    pub(super) arch: &'a str,
}

impl GgufFields<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Fault> {
        self.metadata.text(&self.key(name))
    }
}

impl Fields for GgufFields<'_> {
    fn whole(&self, name: &str) -> Result<Option<u64>, Fault> {
        self.metadata.whole(&self.key(name))
    }

    fn real(&self, name: &str) -> Result<Option<f64>, Fault> {
        self.metadata.real(&self.key(name))
    }

    fn label(&self, name: &str) -> String {
        quoted(&self.key(name)).to_string()
    }
}
