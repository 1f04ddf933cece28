//! What the owner of the pages decides while the collector works.

use super::{Ftl, FtlError, Header, Slot, Written};
use crate::units::{Lpn, Nanos, Pbn, Ppn};

/// The owner's decision on a live page whose block is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relocation {
    /// Copy it.
    Copy,
    /// Copy it as a program of its own: the copy takes the next write sequence.
    Renew,
    /// It is not needed after all.
    Drop,
}

/// The module that gives pages their meaning, which is a commit protocol. The collector calls these
/// hooks.
pub trait Owner: Send {
    /// Called before any page of `victim` is copied, so that the owner can bring flags in order. It
    /// may kill pages of the victim. Returns when its work is done.
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        let _ = (ftl, victim);
        Ok(now)
    }

    /// Whether the erase of `victim` gives back more pages than have to be written before it. An
    /// owner that writes pages besides the copies can know better than the count of live pages;
    /// a block that is not worth it is passed over.
    fn is_worth(&self, ftl: &Ftl, victim: Pbn) -> bool {
        let _ = (ftl, victim);
        true
    }

    /// A live page is about to be copied. `tail` is the tail of its spare area, and may be changed
    /// for the copy.
    fn relocate(&mut self, ftl: &Ftl, from: Ppn, header: &Header, tail: &mut [u8]) -> Relocation {
        let _ = (ftl, from, header, tail);
        Relocation::Copy
    }

    /// Whether a copy of a list of trims that is a program of its own goes on to name a logical
    /// page. One that has a newer version must not be named: the copy would be newer still.
    fn keeps_trim(&self, ftl: &Ftl, at: Lpn, list: Ppn) -> bool {
        ftl.slot(at) == Slot::Trimmed(list)
    }

    /// The copy is about to be programmed into `to`: the last chance to change its `tail`. Called
    /// again, with the tail as it was, if that program fails and another page takes its place.
    fn place(&mut self, to: Ppn, tail: &mut [u8]) {
        let _ = (to, tail);
    }

    /// The copy of a live page is at `to`. The owner points its tables there; the old page is
    /// dropped by the collector. Logical pages that are mapped to a list of trims follow it before.
    fn relocated(&mut self, ftl: &mut Ftl, header: &Header, from: Ppn, to: Written) {
        if ftl.slot(header.lpn).ppn() == Some(from) {
            ftl.set_slot(header.lpn, Slot::of(header.kind, to.at));
        }
    }

    /// All copies are durable and the erase comes next. Returns the instant at which it may be
    /// issued.
    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        let _ = (ftl, victim);
        Ok(now)
    }

    /// A block to refresh is pinned or waits for its summary, or is one of a log and cannot be
    /// copied. The owner ends that if it can: a checkpoint makes a log superfluous.
    fn let_go(&mut self, ftl: &mut Ftl, now: Nanos, block: Pbn) -> Result<(), FtlError> {
        let _ = (ftl, now, block);
        Ok(())
    }

    /// The erase has been issued and will be done at `done`.
    fn erased(&mut self, ftl: &mut Ftl, victim: Pbn, done: Nanos) {
        let _ = (ftl, victim, done);
    }

    /// Whether a block may be collected in steps, between which the host writes, commits and rolls
    /// back: [`Owner::prepare`] comes before each step, the other calls are as ever.
    fn allows_steps(&self) -> bool {
        false
    }
}
