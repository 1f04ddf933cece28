//! An in-memory rollback journal.
//!
//! SQLite needs its journal to undo statements, savepoints, and transactions whose pages are
//! already written. After a power cut it needs none, since the store undoes the transaction. So the
//! journal of a store is kept in memory, disappears with its process, and is never found hot.
//!
//! In a transaction over several databases each journal names a super-journal, and SQLite plays a
//! journal back only if its super-journal exists. This is meant for journals found after a power
//! cut: SQLite removes the super-journal once no journal *on disk* names it. But then a journal in
//! memory could not be played back, and the journal of a plain database could be taken for that of
//! a committed transaction. So an in-memory journal names none: it omits the end of the name. At
//! its end it removes the super-journal, if no journal on disk names it.

mod live;
mod super_journal;

use flagstone_store::medium::pieces;
pub(crate) use live::LiveSuperJournals;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
pub(crate) use super_journal::name_in;
use super_journal::{MAGIC, name_bytes, remove_unnamed};

/// Bytes per allocation.
const PIECE: usize = 1 << 16;

/// An in-memory file.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pieces: Vec<Box<[u8]>>,
    size: u64,
    /// The super-journal that the transaction's journal names.
    super_journal: Option<PathBuf>,
}

impl Journal {
    /// Its size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Reads bytes; those behind the end are zeros. Returns how many bytes lie before the end.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let has = self.size.saturating_sub(at).min(into.len() as u64) as usize;
        let mut rest = &mut into[..has];
        for (piece, offset, bytes) in pieces(PIECE, at, has as u64) {
            let (now, later) = rest.split_at_mut(bytes);
            now.copy_from_slice(&self.pieces[piece as usize][offset..offset + bytes]);
            rest = later;
        }
        into[has..].fill(0);
        has
    }

    /// Writes bytes, and grows as needed. Omits the end of a super-journal's name.
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        match at {
            // A new header, or an invalidated one.
            0 => self.end(),
            _ if data == MAGIC => {
                self.note_super_journal(at);
                return self.put(at, &[0; MAGIC.len()]);
            }
            _ => {}
        }
        self.put(at, data);
    }

    /// Records the super-journal whose name ends at `at`, before [`MAGIC`].
    fn note_super_journal(&mut self, at: u64) {
        let mut end = [0; 16];
        end[8..].copy_from_slice(&MAGIC);
        let length = at.saturating_sub(8);
        self.read(length, &mut end[..8]);
        let bytes = name_bytes(&end).map(u64::from);
        if let Some(from) = bytes.and_then(|bytes| length.checked_sub(bytes)) {
            let mut name = vec![0; (length - from) as usize];
            self.read(from, &mut name);
            self.super_journal = Some(OsStr::from_bytes(&name).into());
        }
    }

    /// Ends the transaction.
    fn end(&mut self) {
        if let Some(path) = self.super_journal.take() {
            remove_unnamed(&path);
        }
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        let end = at + data.len() as u64;
        let needed = end.div_ceil(PIECE as u64) as usize;
        while self.pieces.len() < needed {
            self.pieces.push(vec![0; PIECE].into_boxed_slice());
        }
        let mut rest = data;
        for (piece, offset, bytes) in pieces(PIECE, at, data.len() as u64) {
            let (now, later) = rest.split_at(bytes);
            self.pieces[piece as usize][offset..offset + bytes].copy_from_slice(now);
            rest = later;
        }
        self.size = self.size.max(end);
    }

    /// Truncates the journal, or extends it with zeros.
    pub(crate) fn truncate(&mut self, size: u64) {
        if size == 0 {
            self.end();
        }
        let zeros = size.saturating_sub(self.size);
        self.pieces.truncate(size.div_ceil(PIECE as u64) as usize);
        if zeros > 0 {
            let from = self.size;
            self.size = size;
            for place in (from..size).step_by(PIECE) {
                let bytes = (size - place).min(PIECE as u64) as usize;
                self.put(place, &vec![0; bytes]);
            }
        }
        self.size = size;
        // Bytes behind the end must be zeros if the file grows again.
        let used = (size % PIECE as u64) as usize;
        if let (Some(last), true) = (self.pieces.last_mut(), used > 0) {
            last[used..].fill(0);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_a_file_is() {
        let (mut journal, mut model) = (Journal::default(), Vec::new());
        let mut dice = 9_u64;
        let mut below = |end: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 33) % end
        };
        for _ in 0..400 {
            let at = below(3 * PIECE as u64);
            if below(6) == 0 {
                journal.truncate(at);
                model.resize(at as usize, 0);
            } else {
                let data = vec![below(255) as u8 + 1; below(PIECE as u64 + 9) as usize];
                journal.write(at, &data);
                let end = at as usize + data.len();
                model.resize(model.len().max(end), 0);
                model[at as usize..end].copy_from_slice(&data);
            }
            let mut all = vec![7; model.len() + 3];
            assert_eq!(journal.size(), model.len() as u64);
            assert_eq!(journal.read(0, &mut all), model.len());
            assert!(all[..model.len()] == model[..] && all[model.len()..] == [0; 3]);
        }
    }
}
