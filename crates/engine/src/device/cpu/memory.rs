//! Zeroed memory straight from the system, on huge pages where it gives them.
//!
//! Weights and KV are read from end to end for every token: with 4 KiB pages a third to a half of the
//! read bandwidth is lost to address translation.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A zeroed slice with 64-byte alignment (at least), taken once and never grown.
pub struct Memory<T: Plain> {
    start: *mut u8, // of the values
    base: *mut u8,  // of the mapping
    mapped: usize,  // bytes
    len: usize,     // values
    values: PhantomData<T>,
}

/// Types for which all bits zero is a value and any thread may hold them.
///
/// # Safety
/// The type must be such a type.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}
// SAFETY: plain numbers.
unsafe impl Plain for u8 {}
// SAFETY: plain numbers.
unsafe impl Plain for i8 {}
// SAFETY: plain numbers.
unsafe impl Plain for u16 {}
// SAFETY: plain numbers.
unsafe impl Plain for i16 {}
// SAFETY: plain numbers.
unsafe impl Plain for i32 {}
// SAFETY: plain numbers.
unsafe impl Plain for f32 {}

/// The system would not give the memory.
#[derive(Debug, thiserror::Error)]
#[error("the system has no {bytes} bytes of memory to give; close something or take a smaller model")]
pub struct OutOfMemory {
    pub bytes: usize,
}

impl<T: Plain> Memory<T> {
    /// Ordinary pages, for what is used only in part.
    pub fn zeroed(len: usize) -> Result<Memory<T>, OutOfMemory> {
        Memory::map(len, false)
    }

    /// Huge pages, for what is read from end to end.
    pub fn huge(len: usize) -> Result<Memory<T>, OutOfMemory> {
        Memory::map(len, true)
    }

    fn map(len: usize, huge: bool) -> Result<Memory<T>, OutOfMemory> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(OutOfMemory { bytes: usize::MAX })?;
        let huge = huge && bytes >= HUGE_PAGE_BYTES;
        // One page more than needed, so that the values can begin on a page of their own.
        let page = if huge { HUGE_PAGE_BYTES } else { 64 };
        let mapped = bytes.checked_add(page).ok_or(OutOfMemory { bytes })?;
        // SAFETY: an anonymous private mapping, at an address of the system's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(OutOfMemory { bytes });
        }
        #[cfg(target_os = "linux")]
        if huge {
            // SAFETY: our own mapping; where huge pages are off this is refused and does no harm.
            unsafe { libc::madvise(base, mapped, libc::MADV_HUGEPAGE) };
        }
        let base: *mut u8 = base.cast();
        // SAFETY: at most one page further, which the mapping has to spare.
        let start = unsafe { base.add(base.align_offset(page)) };
        Ok(Memory { start, base, mapped, len, values: PhantomData })
    }
}

impl<T: Plain> Deref for Memory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `len` values, zeroed or written through `deref_mut`.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl<T: Plain> DerefMut for Memory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.len) }
    }
}

impl<T: Plain> Drop for Memory<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, not used after this.
        unsafe { libc::munmap(self.base.cast(), self.mapped) };
    }
}

// SAFETY: it owns its memory like a Vec of plain numbers.
unsafe impl<T: Plain> Send for Memory<T> {}
// SAFETY: shared references only read.
unsafe impl<T: Plain> Sync for Memory<T> {}

/// Memory for many pieces that live as long as the device. Pieces share large mappings, so that small
/// ones lie on huge pages too.
pub struct Arena {
    chunk: Arc<Memory<u8>>,
    used: usize, // bytes of the chunk
    chunk_bytes: usize,
}

/// Bytes of an arena, 64-byte aligned, zeroed at first.
#[derive(Clone)]
pub struct Piece {
    chunk: Arc<Memory<u8>>,
    start: usize,
    len: usize,
}

impl Arena {
    pub fn new(chunk_bytes: usize) -> Result<Arena, OutOfMemory> {
        Ok(Arena { chunk: Arc::new(Memory::zeroed(0)?), used: 0, chunk_bytes })
    }

    /// Takes `len` bytes and lets `fill` write them before anybody else sees them.
    pub fn take(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<Piece, OutOfMemory> {
        let start = self.used.next_multiple_of(64);
        let start = if start + len <= self.chunk.len() {
            start
        } else {
            self.chunk = Arc::new(Memory::huge(self.chunk_bytes.max(len))?);
            0
        };
        // SAFETY: these bytes were never given out before: `used` only grows within a chunk.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.chunk.start.add(start), len) };
        fill(bytes);
        self.used = start + len;
        Ok(Piece { chunk: self.chunk.clone(), start, len })
    }
}

impl Deref for Piece {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: within the chunk, and nobody writes a piece after `take` returned it.
        unsafe { std::slice::from_raw_parts(self.chunk.start.add(self.start), self.len) }
    }
}

/// A slice that several threads write at once, each at places of its own.
pub struct Shared<'a, T>(*mut T, usize, PhantomData<&'a mut [T]>);

impl<T> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<'_, T> {}

// SAFETY: what is written where is decided by the callers of `range_mut`, who must keep apart.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub fn new(slice: &'a mut [T]) -> Shared<'a, T> {
        Shared(slice.as_mut_ptr(), slice.len(), PhantomData)
    }

    /// Where a range begins, of which others may write other places meanwhile.
    #[inline(always)]
    pub fn place(&self, start: usize, len: usize) -> *mut T {
        assert!(start <= self.1 && len <= self.1 - start);
        self.0.wrapping_add(start)
    }

    /// # Safety
    /// Nobody else may hold a part of the range that is written meanwhile.
    #[inline(always)]
    pub unsafe fn range_mut(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.1 && len <= self.1 - start);
        // SAFETY: in bounds; the caller keeps it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }

    /// # Safety
    /// Nobody may write in the range meanwhile.
    #[inline(always)]
    pub unsafe fn range(&self, start: usize, len: usize) -> &'a [T] {
        assert!(start <= self.1 && len <= self.1 - start);
        // SAFETY: in bounds; the caller vouches that nobody writes.
        unsafe { std::slice::from_raw_parts(self.0.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_writable() {
        for (len, huge) in [(0, true), (1, false), (1000, true), (3 << 20, true), (3 << 20, false)] {
            let mut memory = Memory::<f32>::map(len, huge).unwrap();
            assert_eq!(memory.len(), len);
            assert_eq!(memory.as_ptr() as usize % 64, 0);
            assert!(memory.iter().all(|&v| v == 0.0));
            memory.fill(1.0);
            assert!(memory.iter().all(|&v| v == 1.0));
        }
    }

    #[test]
    fn pieces_of_an_arena_keep_apart() {
        let mut arena = Arena::new(1000).unwrap();
        let lens = [10, 64, 900, 5000, 1, 0, 63];
        let pieces: Vec<Piece> = lens
            .into_iter()
            .enumerate()
            .map(|(i, len)| arena.take(len, |bytes| bytes.fill(i as u8 + 1)).unwrap())
            .collect();
        for (i, (piece, len)) in pieces.iter().zip(lens).enumerate() {
            assert_eq!(piece.len(), len);
            assert_eq!(piece.as_ptr() as usize % 64, 0);
            assert!(piece.iter().all(|&byte| byte == i as u8 + 1));
        }
    }

    #[test]
    fn too_much_memory_is_an_error() {
        assert!(Memory::<f32>::zeroed(usize::MAX / 2).is_err());
        assert!(Memory::<u8>::zeroed(usize::MAX / 4).is_err());
    }
}
