//! Flags that cannot be changed in place: the device forbids it (strict program order), or a power
//! cut tore an earlier change and the page's programs are used up. Then a copy of the page, linked
//! to the page that it copies, carries the new flag ([FlagCommit] Appendix C).
//!
//! A carrier that is no longer the current version of its page stays live until the page that it
//! copies is erased, or the collector would have to make another one.

use super::{Link, Shadow, Tail};
use crate::commit::table_bytes;
use crate::ftl::{Cause, Ftl, FtlError, Stream, Written};
use crate::units::{Nanos, Ppn};
use rustc_hash::FxHashMap;

#[derive(Debug, Clone, Copy)]
struct Carried {
    target: Ppn,
    /// Whether the carrier is also a version in the mapping table or in a row.
    current: bool,
}

/// Pages that carry the flag of another page.
#[derive(Debug, Clone, Default)]
pub(super) struct Carriers {
    of_target: FxHashMap<Ppn, Ppn>,
    carriers: FxHashMap<Ppn, Carried>,
}

impl Carriers {
    /// Records that `carrier`, a live page, carries the flag of `target`.
    pub(super) fn insert(&mut self, ftl: &mut Ftl, target: Ppn, carrier: Ppn, current: bool) {
        self.leave(ftl, target);
        self.of_target.insert(target, carrier);
        self.carriers.insert(carrier, Carried { target, current });
    }

    /// Whether a page's flag is carried by another one.
    pub(super) fn has(&self, target: Ppn) -> bool {
        self.of_target.contains_key(&target)
    }

    /// Kills the version at `at`, unless it carries a flag.
    pub(super) fn retire(&mut self, ftl: &mut Ftl, at: Ppn) {
        match self.carriers.get_mut(&at) {
            Some(carried) => carried.current = false,
            None => ftl.kill(at),
        }
    }

    /// Updates a page that the collector has copied.
    pub(super) fn moved(&mut self, from: Ppn, to: Ppn) {
        if !self.carriers.is_empty()
            && let Some(carried) = self.carriers.remove(&from)
        {
            self.of_target.insert(carried.target, to);
            self.carriers.insert(to, carried);
        }
    }

    /// Removes a page that was erased or has lost its transaction. Its flag need not be carried any
    /// more.
    pub(super) fn leave(&mut self, ftl: &mut Ftl, target: Ppn) {
        if !self.of_target.is_empty()
            && let Some(carrier) = self.of_target.remove(&target)
        {
            let carried = self.carriers.remove(&carrier).expect("both tables have it");
            if !carried.current {
                ftl.kill(carrier);
            }
        }
    }

    /// Memory of both tables in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let entries = self.carriers.len();
        table_bytes::<Ppn, Ppn>(entries) + table_bytes::<Ppn, Carried>(entries)
    }

    /// Checks that the tables agree and that every carrier is live.
    pub(super) fn check(&self, ftl: &Ftl) -> Result<(), String> {
        for (carrier, carried) in &self.carriers {
            if self.of_target.get(&carried.target) != Some(carrier) || !ftl.blocks.is_live(*carrier)
            {
                return Err(format!(
                    "page {carrier} carries the flag of page {}, but is not kept",
                    carried.target
                ));
            }
        }
        Ok(())
    }
}

/// Programs a copy of `page` with another flag and a link to `page`.
pub(super) fn copy_in_place_of(
    ftl: &mut Ftl,
    now: Nanos,
    page: &Shadow,
    flag: u8,
    cause: Cause,
) -> Result<Written, FtlError> {
    let mut data = vec![0; ftl.geometry().page_bytes as usize];
    let read = ftl.read(now, page.at, &mut data, &mut [], cause)?;
    let tail = Tail {
        link: Some(page.link_to_it()),
        flag,
        ..page.tail
    };
    let bytes = &data[..read.data_bytes];
    let what = (page.kind, page.lpn, None);
    ftl.append_with(
        read.done,
        place_of_carrier(ftl, cause),
        what,
        bytes,
        cause,
        |_, out| tail.emit(out),
    )
}

/// The stream of a carrier, and its plane, if it must go to an open block. The last free blocks are
/// for copies of live pages: then a carrier goes to an open block. That of a commit does not take
/// blocks that are reserved for the collector either.
fn place_of_carrier(ftl: &Ftl, cause: Cause) -> (Stream, Option<u32>) {
    let planes = ftl.geometry().planes();
    let reserved = cause == Cause::Commit && ftl.has_only_reserve();
    let few_are_free = ftl.blocks.free_blocks() <= planes;
    let is_open = |plane: &u32| ftl.writer.open_on(Stream::Gc, *plane).is_some();
    let plane = (0..planes).find(|plane| (few_are_free || reserved) && is_open(plane));
    if reserved && plane.is_none() {
        return (Stream::Host, None);
    }
    (Stream::Gc, plane)
}

/// The link of a page that was just programmed.
impl From<Written> for Link {
    fn from(written: Written) -> Link {
        Link::to(written.at, written.seq)
    }
}
