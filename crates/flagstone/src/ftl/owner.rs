//! Decisions of the pages' owner during collection.

use super::{Ftl, FtlError, Header, Slot, Written};
use crate::units::{Lpn, Nanos, Pbn, Ppn};

/// The owner's decision about a live page in a victim.
///
/// Example: [`Owner`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relocation {
    /// Copy it with its write sequence.
    Copy,
    /// Copy it as a new program, with the next write sequence.
    Renew,
    /// Drop it: it is not needed.
    Drop,
}

/// The module that gives pages their meaning: a commit protocol. The collector calls these hooks.
///
/// A part of an owner, which drops logical pages from 1000 on at collection:
///
/// ```
/// use flagstone::ftl::{Config, Format, Ftl, FtlError, Header, Owner, PageKind, Relocation};
/// use flagstone::nand::Chip;
/// use flagstone::units::{Lpn, Nanos, Ppn};
///
/// struct Cache;
///
/// impl Owner for Cache {
///     fn relocate(&mut self, _: &Ftl, _: Ppn, header: &Header, _: &mut [u8]) -> Relocation {
///         match header.lpn.0 {
///             0..1000 => Relocation::Copy,
///             _ => Relocation::Drop,
///         }
///     }
/// }
///
/// let flash = Box::new(Chip::default());
/// let (ftl, _) = Ftl::mount(flash, Config::default(), Format::NONE, Nanos::ZERO)?;
/// let mut relocate = |lpn| {
///     let header = Header { kind: PageKind::Data, lpn, seq: 1 };
///     Cache.relocate(&ftl, Ppn(0), &header, &mut [])
/// };
/// assert_eq!(relocate(Lpn(999)), Relocation::Copy);
/// assert_eq!(relocate(Lpn(1000)), Relocation::Drop);
/// # Ok::<(), FtlError>(())
/// ```
pub trait Owner: Send {
    /// Called before any page of `victim` is copied, so that the owner can settle flags. May kill
    /// pages of the victim. Returns when the owner's work is done.
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        let _ = (ftl, victim);
        Ok(now)
    }

    /// Whether the erase of `victim` frees more pages than must be written before it. An owner that
    /// writes pages besides the copies can decide better than the number of live pages. Other
    /// blocks are skipped.
    fn is_worth(&self, ftl: &Ftl, victim: Pbn) -> bool {
        let _ = (ftl, victim);
        true
    }

    /// Called before a live page is copied. `tail` is the tail of its spare area, and may be
    /// changed for the copy.
    fn relocate(&mut self, ftl: &Ftl, from: Ppn, header: &Header, tail: &mut [u8]) -> Relocation {
        let _ = (ftl, from, header, tail);
        Relocation::Copy
    }

    /// Whether the copy of a list of trims, if it is a new program, keeps naming a logical page. A
    /// page with a newer version must not be named: the copy would be newer still.
    fn keeps_trim(&self, ftl: &Ftl, at: Lpn, list: Ppn) -> bool {
        ftl.slot(at) == Slot::Trimmed(list)
    }

    /// Called before the copy is programmed into `to`: the last chance to change its `tail`. Called
    /// again with the original tail if that program fails and another page is used.
    fn place(&mut self, to: Ppn, tail: &mut [u8]) {
        let _ = (to, tail);
    }

    /// Called when the copy of a live page is at `to`. The owner updates its tables; the collector
    /// kills the old page. Logical pages mapped to a list of trims have been remapped before.
    fn relocated(&mut self, ftl: &mut Ftl, header: &Header, from: Ppn, to: Written) {
        if ftl.slot(header.lpn).ppn() == Some(from) {
            ftl.set_slot(header.lpn, Slot::of(header.kind, to.at));
        }
    }

    /// Called when all copies are durable and the erase is next. Returns when it may be issued.
    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        let _ = (ftl, victim);
        Ok(now)
    }

    /// Called if a block to refresh is pinned or waits for its summary, or is a log block that
    /// cannot be copied. The owner releases it if it can: a checkpoint makes a log obsolete.
    fn let_go(&mut self, ftl: &mut Ftl, now: Nanos, block: Pbn) -> Result<(), FtlError> {
        let _ = (ftl, now, block);
        Ok(())
    }

    /// Called when the erase was issued. It will be done at `done`.
    fn erased(&mut self, ftl: &mut Ftl, victim: Pbn, done: Nanos) {
        let _ = (ftl, victim, done);
    }

    /// Whether a block may be collected in steps, between which the host writes, commits and rolls
    /// back. [`Owner::prepare`] is then called before each step.
    fn allows_steps(&self) -> bool {
        false
    }
}
