//! Used and free pages of a store: single pages, and runs of consecutive ones.

use super::{IndexError, Result, damaged};
use flagstone::layout;
use flagstone::layout::{Layout, get, put};
use flagstone::units::Lpn;

layout! {
    /// The head of the free pages in an index's metadata; the numbers of the free pages follow,
    /// four bytes each.
    pub space_head: 8 => {
        NEXT: 4, "the first page that was never used";
        FREE: 4, "how many pages before it are free";
    }
}

/// Records that this module keeps.
pub(super) const LAYOUTS: &[Layout] = &[space_head::RECORD];

/// Free pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Space {
    next: u32,
    pages: u32,
    /// Free pages below `next`. The last freed page is allocated first.
    free: Vec<Lpn>,
}

impl Space {
    /// All pages from `first` are free.
    pub(super) fn new(first: u32, pages: u32) -> Space {
        Space {
            next: first,
            pages,
            free: Vec::new(),
        }
    }

    pub(super) fn full(&self) -> IndexError {
        IndexError::Full { pages: self.pages }
    }

    /// Allocates a page.
    pub(super) fn take(&mut self) -> Result<Lpn> {
        if let Some(page) = self.free.pop() {
            return Ok(page);
        }
        self.take_run(1)
    }

    /// Allocates `pages` consecutive pages. Returns the first.
    pub(super) fn take_run(&mut self, pages: u32) -> Result<Lpn> {
        let first = self.next;
        let next = first.checked_add(pages).filter(|&next| next <= self.pages);
        self.next = next.ok_or_else(|| self.full())?;
        Ok(Lpn(first))
    }

    /// Frees a page.
    ///
    /// # Errors
    /// It was never taken, or no page is in use: the page that references it is damaged. Whether it
    /// is free already is not checked otherwise.
    pub(super) fn give(&mut self, page: Lpn) -> Result<()> {
        if page.0 >= self.next || self.used() == 0 {
            return damaged(page, "it is in use and was never taken");
        }
        self.free.push(page);
        Ok(())
    }

    /// Number of pages that were never used.
    pub(super) fn fresh(&self) -> u32 {
        self.pages.saturating_sub(self.next)
    }

    /// Number of pages that can still be taken.
    pub(super) fn left(&self) -> u32 {
        self.pages.saturating_sub(self.used())
    }

    /// Limits the store to `pages` pages from now on.
    pub(super) fn limit(&mut self, pages: u32) {
        self.pages = self.pages.min(pages);
    }

    /// Number of pages in use.
    pub(super) fn used(&self) -> u32 {
        self.next - self.free.len() as u32
    }

    /// Checks that each page is free, or used once: `used` are the pages that were reached.
    ///
    /// # Errors
    /// Names a page that is used twice, used and free, or lost.
    pub(super) fn check(&self, used: Vec<Lpn>) -> Result<(), String> {
        let mut seen = vec![0u8; self.next as usize];
        for (what, page) in used.iter().map(|page| ("is used twice", page)).chain(
            self.free
                .iter()
                .map(|page| ("is free, and used or free", page)),
        ) {
            match seen.get_mut(page.index()) {
                Some(times) if *times == 0 => *times = 1,
                Some(_) => return Err(format!("page {page} {what}")),
                None => return Err(format!("page {page} was never taken")),
            }
        }
        match seen.iter().position(|&times| times == 0) {
            Some(page) => Err(format!("page {page} is neither used nor free")),
            None => Ok(()),
        }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        (self.free.capacity() * size_of::<Lpn>()) as u64
    }

    /// Appends the encoded free pages.
    pub(super) fn emit(&self, into: &mut Vec<u8>) {
        let mut head = [0; space_head::SIZE];
        put(&mut head, space_head::NEXT, u64::from(self.next));
        put(&mut head, space_head::FREE, self.free.len() as u64);
        into.extend_from_slice(&head);
        for page in &self.free {
            into.extend_from_slice(&page.0.to_le_bytes());
        }
    }

    /// Decodes free pages, if valid. Also returns the remaining bytes.
    pub(super) fn parse(bytes: &[u8], pages: u32) -> Option<(Space, &[u8])> {
        let (head, rest) = bytes.split_at_checked(space_head::SIZE)?;
        let next = get(head, space_head::NEXT) as u32;
        let free = get(head, space_head::FREE) as usize;
        let (list, rest) = rest.split_at_checked(free.checked_mul(4)?)?;
        let free: Vec<Lpn> = list
            .chunks(4)
            .map(|page| Lpn(get(page, 0..4) as u32))
            .collect();
        let is_possible = next <= pages && free.len() <= next as usize;
        let sound = is_possible && free.iter().all(|page| page.0 < next);
        sound.then_some((Space { next, pages, free }, rest))
    }
}
