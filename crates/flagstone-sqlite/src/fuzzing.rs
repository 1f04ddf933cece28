//! Entry points of the fuzz targets in `fuzz/`. Each function passes its bytes to a parser, and
//! returns whether they were accepted. None may panic, whatever the bytes are. The tests here run
//! the same functions on seeded damage.

use crate::bytes::{Bytes, Trouble, View};
use crate::file::StoreFile;
use crate::journal::name_in;
use flagstone_store::fuzzing::Held;
use flagstone_store::medium::{Memory, Recorded};
use flagstone_store::{OpenOptions, PageStore};
use std::sync::OnceLock;

/// Page size and number of pages of the sample; some pages are in a second group of chunks.
const PAGE: usize = 4096;
const PAGES: usize = 70;

/// The database file of the sample. Every third page ends with zeros, so that its chunk has no
/// tail.
fn sample() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..PAGES * PAGE)
        .map(|at| (at / 7 + at / PAGE) as u8)
        .collect();
    for page in bytes.chunks_exact_mut(PAGE).step_by(3) {
        page[PAGE - 64..].fill(0);
    }
    bytes
}

fn whole() -> &'static Held {
    static WHOLE: OnceLock<Held> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let medium = Recorded::default();
        let store = PageStore::on(Box::new(medium.clone()), &OpenOptions::default());
        let mut file = StoreFile::new(store.expect("the medium is blank")).expect("it is empty");
        file.write(0, &sample()).expect("there is room");
        file.commit().expect("the medium does not fail");
        let store = file.into_store();
        store.close().expect("the medium does not fail");
        Held::by(&medium)
    })
}

/// A database file in a store, with edits of [`flagstone_store::fuzzing::EDIT`] bytes applied to
/// its pages. It is opened, read and written.
pub fn database(bytes: &[u8]) -> bool {
    use_file(whole().damaged(bytes).medium()).is_ok()
}

/// Opens, reads and writes a file. Returns its earlier contents, up to the length of the sample.
fn use_file(medium: Memory) -> Result<Vec<u8>, Trouble> {
    let store = PageStore::on(Box::new(medium), &OpenOptions::existing())?;
    let mut file = StoreFile::new(store)?;
    let mut found = vec![0; PAGES * PAGE];
    let bytes = file.read(View::Own, 0, &mut found)?;
    found.truncate(bytes);
    let size = file.size(View::Own);
    file.read(View::Own, size.saturating_sub(100), &mut [0; 200])?;
    file.write(24, &[7; 4])?;
    file.commit()?;
    file.write(size, &[7; 3 * PAGE])?;
    file.truncate(size / 2)?;
    file.commit()?;
    Ok(found)
}

/// The last bytes of a journal, which may name a super-journal.
pub fn journal_end(bytes: &[u8]) -> bool {
    let name = name_in(&mut std::io::Cursor::new(bytes));
    name.expect("memory does not fail").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone_store::fuzzing::EDIT;

    /// Pseudo-random numbers, the same in every run.
    fn dice(state: &mut u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *state >> 33
    }

    #[test]
    fn damaged_databases() {
        assert!(use_file(whole().medium()).expect("it is whole") == sample());
        let (mut state, mut taken) = (31, 0);
        for _ in 0..300 {
            let bytes = EDIT * (1 + dice(&mut state) as usize % 4);
            let edits: Vec<u8> = (0..bytes).map(|_| dice(&mut state) as u8).collect();
            taken += u32::from(database(&edits));
        }
        // Most of the bytes are user data.
        assert!((5..300).contains(&taken), "{taken} taken of 300");
    }

    #[test]
    fn damaged_ends_of_journals() {
        let mut valid = b"/tmp/of-two-databases-mj".to_vec();
        let bytes = valid.len() as u32;
        valid.extend(bytes.to_be_bytes());
        valid.extend([0, 0, 0, 9, 0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
        assert!(journal_end(&valid));
        let (mut state, mut taken) = (37, 0);
        for _ in 0..2_000 {
            let mut bytes = valid[dice(&mut state) as usize % 4..].to_vec();
            let at = dice(&mut state) as usize % bytes.len();
            bytes[at] ^= 1 << (dice(&mut state) % 8);
            taken += u32::from(journal_end(&bytes));
        }
        assert!((50..=1_950).contains(&taken), "{taken} taken of 2000");
    }
}
