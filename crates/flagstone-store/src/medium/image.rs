//! A byte array whose copies share unmodified pages.

use super::pieces;
use std::sync::Arc;

const PAGE: usize = 4096;

/// A page without contents. A comparison with it is one call of `memcmp`.
const ZEROS: &[u8; PAGE] = &[0; PAGE];

/// A byte array that is cheap to copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Image {
    /// `None` for a page of zeros.
    pages: Vec<Option<Arc<[u8; PAGE]>>>,
    bytes: usize,
}

impl Image {
    pub(super) fn new(bytes: &[u8]) -> Image {
        let mut image = Image::default();
        image.write(0, bytes);
        image
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lengthens the array to `bytes` bytes if it is shorter.
    pub(super) fn reserve(&mut self, bytes: usize) {
        self.bytes = self.bytes.max(bytes);
        let pages = self.bytes.div_ceil(PAGE);
        self.pages.resize(pages.max(self.pages.len()), None);
    }

    /// Truncates the array to `bytes` bytes if it is longer.
    pub(super) fn shorten(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            return;
        }
        self.bytes = bytes;
        self.pages.truncate(bytes.div_ceil(PAGE));
        if let Some(Some(last)) = self.pages.last_mut()
            && !bytes.is_multiple_of(PAGE)
        {
            Arc::make_mut(last)[bytes % PAGE..].fill(0);
        }
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.reserve(offset + bytes.len());
        let mut rest = bytes;
        for (page, inside, count) in pieces(PAGE, offset as u64, bytes.len() as u64) {
            let (now, later) = rest.split_at(count);
            rest = later;
            let page = &mut self.pages[page as usize];
            if now == ZEROS {
                *page = None;
                continue;
            }
            // A shared page that is replaced as a whole need not be copied before.
            let is_own = page
                .as_mut()
                .is_some_and(|page| Arc::get_mut(page).is_some());
            if count == PAGE && !is_own {
                *page = Some(Arc::new(now.try_into().expect("a page")));
                continue;
            }
            let page = page.get_or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[inside..inside + count].copy_from_slice(now);
        }
    }

    /// Bytes behind the end read as zeros.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        let mut rest = into;
        for (page, inside, count) in pieces(PAGE, offset as u64, rest.len() as u64) {
            let (now, later) = rest.split_at_mut(count);
            rest = later;
            match self.pages.get(page as usize).and_then(Option::as_ref) {
                Some(page) => now.copy_from_slice(&page[inside..inside + count]),
                None => now.fill(0),
            }
        }
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.read(0, &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_of_their_own() {
        let mut image = Image::new(&[1; 5000]);
        let copy = image.clone();
        image.write(4000, &[2; 5000]);
        let mut right = vec![1; 9000];
        right[4000..].fill(2);
        assert_eq!((image.to_vec(), copy.to_vec()), (right, vec![1; 5000]));
        let mut beyond = [9; 10];
        copy.read(4995, &mut beyond);
        assert_eq!(beyond, [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
        let mut short = copy;
        short.reserve(4);
        assert_eq!(short.bytes(), 5000);
        short.shorten(10);
        short.reserve(5000);
        assert_eq!(short.to_vec(), [&[1; 10][..], &[0; 4990]].concat());
    }
}
