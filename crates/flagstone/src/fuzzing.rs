//! Functions for fuzz targets. Each passes bytes to parsers and returns whether one of them
//! accepted the bytes; none may panic on any input. The targets are in `fuzz/`; tests of
//! `flagstone-host`, which has valid inputs from devices of every stack, run the same functions on
//! seeded damage.

use crate::commit::fuzz;
use crate::ftl::{Header, TAIL_BYTES_MAX, header, is_root};
use crate::page::Page;

/// Parses a part of a root, a root, and what protocols store in one.
pub fn root(bytes: &[u8]) -> bool {
    let parsed = is_root(bytes);
    fuzz::blob(bytes) || parsed
}

/// Parses a page of a protocol's log.
pub fn log(bytes: &[u8]) -> bool {
    fuzz::log_page(bytes)
}

/// Parses a page of records, which must be encoded to the same bytes again, and a list of entries,
/// which may follow such a page.
pub fn page(bytes: &[u8]) -> bool {
    let listed = fuzz::list(bytes);
    let Ok(page) = Page::parse(bytes) else {
        return listed;
    };
    let mut image = Vec::new();
    if bytes.is_empty() {
        return true;
    }
    page.emit(usize::MAX, &mut image).expect("there is room");
    assert!(bytes.starts_with(&image), "a page that is read is written");
    true
}

/// Parses the head of a spare area and the tail of each protocol. Short inputs are padded as blank.
pub fn spare(bytes: &[u8]) -> bool {
    let mut spare = [0xff; header::SIZE + TAIL_BYTES_MAX];
    let len = bytes.len().min(spare.len());
    spare[..len].copy_from_slice(&bytes[..len]);
    fuzz::tail(&spare[header::SIZE..]);
    let Some(head) = Header::parse(&spare) else {
        return false;
    };
    let mut again = [0xff; header::SIZE];
    head.emit(&mut again);
    assert_eq!(again, spare[..header::SIZE]);
    true
}
