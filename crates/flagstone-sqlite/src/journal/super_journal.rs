//! Super-journals: files that SQLite creates for transactions over several databases.
//!
//! A super-journal lists the journals of the transaction, each of which names it. While it exists,
//! these journals must be played back. SQLite removes it when all databases have committed, or when
//! the last journal that names it was played back.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The begin of a journal. Also follows the name of a super-journal.
pub(super) const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// Bytes after the name: its length, its checksum, and [`MAGIC`].
const END: usize = 16;

/// Parses the length of the super-journal name before the end of a journal.
pub(super) fn name_bytes(end: &[u8; END]) -> Option<u32> {
    let (length, _) = end.split_first_chunk()?;
    let length = u32::from_be_bytes(*length);
    (end[END - MAGIC.len()..] == MAGIC && length > 0).then_some(length)
}

/// Removes a super-journal that no journal on disk names.
pub(super) fn remove_unnamed(path: &Path) {
    let Ok(journals) = std::fs::read(path) else {
        return;
    };
    let mut journals = journals.split(|byte| *byte == 0);
    if !journals.any(|journal| names(Path::new(OsStr::from_bytes(journal)), path)) {
        // A super-journal that remains does no harm.
        let _ = std::fs::remove_file(path);
    }
}

/// Whether a journal names a super-journal. Assumed if the journal is unreadable.
fn names(journal: &Path, super_journal: &Path) -> bool {
    match File::open(journal).and_then(|mut journal| name_in(&mut journal)) {
        Ok(name) => name.is_some_and(|name| name == super_journal.as_os_str().as_bytes()),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// The name of the super-journal that a journal names in its end. `None` if it names none.
pub(crate) fn name_in(journal: &mut (impl Read + Seek)) -> std::io::Result<Option<Vec<u8>>> {
    let Some(before) = journal.seek(SeekFrom::End(0))?.checked_sub(END as u64) else {
        return Ok(None);
    };
    let mut end = [0; END];
    journal.seek(SeekFrom::Start(before))?;
    journal.read_exact(&mut end)?;
    let bytes = name_bytes(&end).map(u64::from);
    let Some((bytes, from)) = bytes.and_then(|bytes| Some((bytes, before.checked_sub(bytes)?)))
    else {
        return Ok(None);
    };
    journal.seek(SeekFrom::Start(from))?;
    let mut name = Vec::new();
    journal.take(bytes).read_to_end(&mut name)?;
    Ok(Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal that names a super-journal.
    fn journal_of(super_journal: &Path) -> Vec<u8> {
        let name = super_journal.as_os_str().as_bytes();
        let mut journal = vec![7; 100];
        journal.extend_from_slice(name);
        journal.extend_from_slice(&(name.len() as u32).to_be_bytes());
        journal.extend_from_slice(&[0; 4]);
        journal.extend_from_slice(&MAGIC);
        journal
    }

    #[test]
    fn a_super_journal_stays_as_long_as_a_journal_names_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name| folder.path().join(name);
        let (lists, first, second) = (path("a-mj"), path("a-journal"), path("b-journal"));
        let put = |path: &Path, bytes: &[u8]| std::fs::write(path, bytes).expect("a file");
        remove_unnamed(&lists);
        let mut names = first.as_os_str().as_bytes().to_vec();
        names.push(0);
        names.extend_from_slice(second.as_os_str().as_bytes());
        names.push(0);
        put(&lists, &names);
        put(&second, &journal_of(&lists));
        remove_unnamed(&lists);
        assert!(lists.exists());
        // Shorter than the trailer, without one, with a wrong length, and with another name.
        let mut too_long = journal_of(&lists);
        let length = too_long.len() - END;
        too_long[length..length + 4].fill(255);
        for other in [&b"short"[..], &[7; 100], &too_long, &journal_of(&first)] {
            put(&lists, &names);
            put(&second, other);
            remove_unnamed(&lists);
            assert!(!lists.exists(), "{other:?}");
        }
    }
}
