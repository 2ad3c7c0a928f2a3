//! Mapped files, and pieces of them.

use super::error::{Fault, LoadError};
use memmap2::{Mmap, MmapMut};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A weights file in the address space. Nothing of it is in memory until it is read.
#[derive(Debug)]
pub(crate) struct MappedFile {
    pub(crate) path: PathBuf,
    map: Mmap,
    on_disk: bool,
}

impl MappedFile {
    pub(super) fn open(path: &Path) -> Result<Arc<MappedFile>, LoadError> {
        let map = map(path).map_err(|error| Fault::Io(error).of(path))?;
        Ok(Arc::new(MappedFile { path: path.to_path_buf(), map, on_disk: true }))
    }

    /// A file that is not on disk: weights made in memory.
    pub(super) fn in_memory(bytes: &[u8]) -> io::Result<Arc<MappedFile>> {
        let mut map = MmapMut::map_anon(bytes.len())?;
        map.copy_from_slice(bytes);
        let map = map.make_read_only()?;
        Ok(Arc::new(MappedFile { path: PathBuf::from("(memory)"), map, on_disk: false }))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }
}

fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // SAFETY: the map is read-only and never handed out as anything but bytes, all of which are valid.
    // Should another process cut the file short meanwhile, reading it raises SIGBUS and ends this one:
    // model files are replaced by renaming, never written in place.
    unsafe { Mmap::map(&file) }
}

/// A range of a mapped file; it is known to lie within it.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    pub(crate) file: Arc<MappedFile>,
    range: Range<usize>,
}

impl Region {
    /// `None` when the range is not within the file.
    pub(super) fn new(file: &Arc<MappedFile>, range: Range<usize>) -> Option<Region> {
        file.bytes().get(range.clone())?;
        Some(Region { file: file.clone(), range })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.file.bytes()[self.range.clone()]
    }

    /// Piece `index` of `count` equal ones.
    pub(super) fn piece(&self, index: usize, count: usize) -> Region {
        let len = self.range.len() / count;
        let start = self.range.start + index * len;
        Region { file: self.file.clone(), range: start..start + len }
    }

    /// Gives the pages that lie wholly inside back to the system; a later read brings them in again.
    pub(crate) fn release(&self) {
        self.file.release(self.range.clone());
    }
}

impl MappedFile {
    /// Gives all pages of the file back, its header's too.
    pub(crate) fn release_all(&self) {
        self.release(0..self.map.len().next_multiple_of(page_bytes()));
    }

    fn release(&self, range: Range<usize>) {
        let page = page_bytes();
        let start = range.start.next_multiple_of(page);
        let end = range.end / page * page;
        if start < end && self.on_disk {
            // SAFETY: the map is a read-only view of a file, so dropped pages come back unchanged.
            let advised = unsafe {
                self.map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    start,
                    (end - start).min(self.map.len() - start),
                )
            };
            // Advice that is not taken costs memory, not correctness.
            drop(advised);
        }
    }
}

fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(page).ok().filter(|page| *page > 0).unwrap_or(4096)
}
