//! Activations on the card, with a copy on the host of the rows that the host asks for.

use super::super::{Bytes, Card, CudaError, Doing};
use cudarc::driver::{CudaContext, result};
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// Host memory that the card copies to and from while the host does something else.
pub struct Pinned {
    values: *mut f32,
    len: usize,
    context: Arc<CudaContext>,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl Send for Pinned {}

impl Pinned {
    pub fn new(card: &Card, len: usize) -> Result<Pinned, CudaError> {
        card.context.bind_to_thread().doing("binding the card")?;
        // SAFETY: at least one value, so the pointer is one to memory; it is written before it is read.
        let values = unsafe {
            let host = result::malloc_host(len.max(1) * 4, 0).doing("allocating pinned memory")?;
            std::ptr::write_bytes(host.cast::<u8>(), 0, len.max(1) * 4);
            host.cast()
        };
        Ok(Pinned { values, len, context: card.context.clone() })
    }

    /// For a kernel that reads or writes it in place.
    pub fn address(&self) -> u64 {
        self.values as u64
    }

    pub fn values(&self) -> &[f32] {
        // SAFETY: `len` values, initialised when they were allocated.
        unsafe { std::slice::from_raw_parts(self.values, self.len) }
    }

    pub fn values_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.values, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `malloc_host` and freed once. A failure leaves nothing to be done.
            let _ = unsafe { result::free_host(self.values.cast()) };
        }
    }
}

/// Where a row's newest values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Newest {
    Card,
    Both,
    Host, // it was handed out to be written
}

pub struct Buffer {
    card: Bytes, // (rows, width) f32
    host: Option<Pinned>,
    newest: Vec<Cell<Newest>>, // (rows)
    pub width: usize,
}

impl Buffer {
    pub fn new(card: &Card, rows: usize, width: usize) -> Result<Buffer, CudaError> {
        let newest = vec![Cell::new(Newest::Card); rows];
        Ok(Buffer { card: card.zeros(rows * width * 4)?, host: None, newest, width })
    }

    /// To be written by a kernel, whatever the host had.
    pub fn write_on_card(&mut self) -> u64 {
        self.newest.iter().for_each(|row| row.set(Newest::Card));
        self.card.address
    }

    /// To be read by a kernel: what the host wrote is brought to the card first. Whether that was needed is told.
    pub fn read_on_card(&self, card: &Card) -> Result<(u64, bool), CudaError> {
        let mut brought = false;
        for (row, newest) in self.newest.iter().enumerate() {
            if let (Newest::Host, Some(host)) = (newest.get(), &self.host) {
                let (at, values) = (row * self.width, &host.values()[row * self.width..][..self.width]);
                // SAFETY: a row of the buffer; the host's memory lives as long as the buffer does.
                unsafe {
                    result::memcpy_htod_async(
                        self.card.address + 4 * at as u64,
                        values,
                        card.stream.cu_stream(),
                    )
                }
                .doing("copying to the card")?;
                newest.set(Newest::Both);
                brought = true;
            }
        }
        Ok((self.card.address, brought))
    }

    /// Where the first row is, for a kernel that reads what a kernel wrote.
    pub fn lies(&self) -> u64 {
        self.card.address
    }

    /// Whether the card's values of a row are the newest: the host was not handed them to be written.
    pub fn is_on_card(&self, row: usize) -> bool {
        self.newest.get(row).is_some_and(|newest| newest.get() != Newest::Host)
    }

    /// A kernel changed a row.
    pub fn changed_on_card(&mut self, row: usize) {
        self.newest[row].set(Newest::Card);
    }

    /// A row on the host of which only the given columns are brought, if the card's values are newer; else all of it.
    pub fn parts_of_row(
        &mut self,
        card: &Card,
        row: usize,
        parts: impl Iterator<Item = Range<usize>>,
    ) -> Result<&mut [f32], CudaError> {
        if self.newest[row].get() != Newest::Card {
            return self.row(card, row);
        }
        let host = Buffer::on_host(&mut self.host, card, self.newest.len() * self.width)?;
        let values = &mut host.values_mut()[row * self.width..][..self.width];
        for part in parts {
            let from = self.card.address + 4 * (row * self.width + part.start) as u64;
            // SAFETY: a part of a row on both sides.
            unsafe { result::memcpy_dtoh_async(&mut values[part], from, card.stream.cu_stream()) }
                .doing("copying from the card")?;
        }
        card.finish()?;
        Ok(values)
    }

    fn on_host<'a>(
        host: &'a mut Option<Pinned>,
        card: &Card,
        len: usize,
    ) -> Result<&'a mut Pinned, CudaError> {
        let held = match host.take() {
            Some(held) => held,
            None => Pinned::new(card, len)?,
        };
        Ok(host.insert(held))
    }

    /// A row on the host, once the stream is done. It is the caller's to write.
    pub fn row(&mut self, card: &Card, row: usize) -> Result<&mut [f32], CudaError> {
        let from = self.card.address + 4 * (row * self.width) as u64;
        let host = Buffer::on_host(&mut self.host, card, self.newest.len() * self.width)?;
        let values = &mut host.values_mut()[row * self.width..][..self.width];
        if self.newest[row].get() == Newest::Card {
            // SAFETY: a row on both sides.
            unsafe { result::memcpy_dtoh_async(values, from, card.stream.cu_stream()) }
                .doing("copying from the card")?;
        }
        card.finish()?;
        self.newest[row].set(Newest::Host);
        Ok(values)
    }
}
