//! A read-only medium on which some damaged pages are replaced.

use crate::medium::Medium;
use crate::superblock::MEDIUM_PAGE_BYTES;
use std::collections::BTreeMap;
use std::io;

/// A medium with replaced pages. Bytes behind the end read as zeros.
pub(super) struct Patched {
    pub(super) disk: Box<dyn Medium>,
    /// The first bytes of replaced pages, by page number; the rest of such a page reads as zeros.
    pub(super) pages: BTreeMap<u64, Vec<u8>>,
    /// The expected size of the medium in bytes.
    pub(super) bytes: u64,
}

impl Medium for Patched {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, into)?;
        let size = MEDIUM_PAGE_BYTES as u64;
        let end = offset + into.len() as u64;
        for (&page, bytes) in self.pages.range(offset / size..end.div_ceil(size)) {
            for at in offset.max(page * size)..end.min((page + 1) * size) {
                let byte = bytes.get((at - page * size) as usize);
                into[(at - offset) as usize] = byte.copied().unwrap_or(0);
            }
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn reserve(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}
