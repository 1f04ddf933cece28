//! Handling of unreadable sectors.
//!
//! A single bad sector must not make all other data inaccessible. A store in use loses only the
//! affected page ([`is_bad_sector`]). A recovery must fail instead: an unreadable page would look
//! like a torn program, and an acknowledged transaction would be rolled back. Check and repair read
//! what is left through [`Gaps`].

use super::{Expecting, Medium, pieces};
use crate::superblock::MEDIUM_PAGE_BYTES;
use std::io;
use std::sync::{Arc, Mutex};

/// Substitute contents of an unreadable page: neither zeros nor anything that is ever written.
const GARBAGE: u8 = 0xee;

/// Whether a read error concerns the requested sectors only, and not the whole medium.
pub(crate) fn is_bad_sector(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let about_sectors = [Errno::IO, Errno::NODATA, Errno::ILSEQ, Errno::BADMSG];
    let number = error.raw_os_error();
    about_sectors
        .iter()
        .any(|bad| number == Some(bad.raw_os_error()))
}

/// Refused reads: their number, and the first error.
#[derive(Debug, Clone, Default)]
pub(crate) struct Misreads(Arc<Mutex<Option<(u64, String)>>>);

impl Misreads {
    /// Notes a refused read.
    pub(crate) fn note(&self, what: &str, error: &io::Error) {
        let mut noted = self.0.lock().expect("no thread panics here");
        let first = || (0, format!("{what}: {error}"));
        noted.get_or_insert_with(first).0 += 1;
    }

    /// Describes the refused reads; `None` if there were none.
    pub(crate) fn told(&self) -> Option<String> {
        let noted = self.0.lock().expect("no thread panics here");
        noted.as_ref().map(|(count, first)| {
            format!("the medium refused {count} reads, the first one while {first}")
        })
    }
}

/// A medium whose unreadable pages read as garbage, which no checksum accepts.
pub(crate) struct Gaps {
    below: Box<dyn Medium>,
    misreads: Misreads,
}

impl Gaps {
    /// Wraps `below`. Refused reads are noted in `misreads`.
    pub(crate) fn over(below: Box<dyn Medium>, misreads: Misreads) -> Gaps {
        Gaps { below, misreads }
    }

    /// Reads a range page by page.
    fn read_by_pages(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut rest = into;
        for (page, inside, bytes) in pieces(MEDIUM_PAGE_BYTES, offset, rest.len() as u64) {
            let (part, behind) = rest.split_at_mut(bytes);
            rest = behind;
            let at = page * MEDIUM_PAGE_BYTES as u64 + inside as u64;
            match self.below.read_at(at, part) {
                Err(error) if is_bad_sector(&error) => {
                    self.misreads.note("reading what is left", &error);
                    part.fill(GARBAGE);
                }
                read => read?,
            }
        }
        Ok(())
    }
}

impl Medium for Gaps {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self.below.read_at(offset, into) {
            Err(error) if is_bad_sector(&error) => self.read_by_pages(offset, into),
            read => read,
        }
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        self.below.sync()
    }

    fn most(&self) -> Option<u64> {
        self.below.most()
    }

    fn bytes(&self) -> io::Result<u64> {
        self.below.bytes()
    }

    fn reserve(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn expecting(&self) -> Option<Expecting> {
        self.below.expecting()
    }

    fn refresh(&self) -> io::Result<()> {
        self.below.refresh()
    }
}
