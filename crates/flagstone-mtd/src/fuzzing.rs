//! Entry point of a fuzz target: parses the trailer of a page.

use crate::{emit, page_end, parse};

/// Parses the trailer of a page that ends with `bytes`. An accepted one must encode to the same
/// bytes.
pub fn mtd_page(bytes: &[u8]) -> bool {
    let mut page = [0xff; 512];
    let len = bytes.len().min(page.len());
    page[512 - len..].copy_from_slice(&bytes[..len]);
    let read = |page: &[u8]| {
        let (mut data, mut spare) = ([0; 512 - page_end::SIZE], [0; page_end::SPARE.end]);
        let len = parse(page, &mut data, &mut spare)?;
        Some((data[..len].to_vec(), spare))
    };
    let Some((data, spare)) = read(&page) else {
        return false;
    };
    emit(&mut page, &data, &spare);
    assert_eq!(read(&page), Some((data, spare)));
    true
}
