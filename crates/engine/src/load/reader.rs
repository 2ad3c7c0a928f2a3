//! Reads numbers and strings off a byte slice. What is needed is compared with what is left before
//! anything is touched, so a length in a file can never make us reach or allocate beyond it.

use super::error::Fault;
use std::fmt::Display;
use std::ops::Range;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `len` bytes; `field` says in an error what they would have been.
    pub(super) fn take(&mut self, len: u64, field: &dyn Display) -> Result<&'a [u8], Fault> {
        let range = self.skip(len, field)?;
        Ok(&self.bytes[range])
    }

    /// Where the next `len` bytes lie.
    pub(super) fn skip(&mut self, len: u64, field: &dyn Display) -> Result<Range<usize>, Fault> {
        if len > self.left() {
            return Err(Fault::truncated(field, len, self.left()));
        }
        let start = self.at;
        self.at += len as usize;
        Ok(start..self.at)
    }

    fn array<const N: usize>(&mut self, field: &dyn Display) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, field)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, field: &dyn Display) -> Result<u32, Fault> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &dyn Display) -> Result<u64, Fault> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A length-prefixed UTF-8 string and where it lies.
    pub(super) fn string(&mut self, field: &dyn Display) -> Result<(&'a str, Range<usize>), Fault> {
        let len = self.u64(field)?;
        let range = self.skip(len, field)?;
        match std::str::from_utf8(&self.bytes[range.clone()]) {
            Ok(text) => Ok((text, range)),
            Err(error) => Err(Fault::damaged(field, error, "UTF-8 text")),
        }
    }
}
