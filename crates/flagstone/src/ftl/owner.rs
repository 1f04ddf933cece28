//! Decisions of the pages' owner during collection.

use super::{Cause, Ftl, FtlError, Header, Slot, Written};
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

/// A block that is being collected, as the hooks of its owner see it.
///
/// Example: [`Owner`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim {
    /// The block.
    pub block: Pbn,
    /// When the owner's work before the copies was done ([`Owner::prepare`]).
    pub prepared: Nanos,
    /// The cause under which the collector's operations are counted.
    pub cause: Cause,
}

/// A live page of a victim, as the hooks of its owner see it.
///
/// Example: [`Owner`].
#[derive(Debug, Clone, Copy)]
pub struct Moving<'a> {
    /// The block that it leaves.
    pub victim: Victim,
    /// Its place in that block.
    pub from: Ppn,
    /// The header of its spare area.
    pub header: Header,
    /// The tail of its spare area.
    pub tail: &'a [u8],
}

/// The module that gives pages their meaning: a commit protocol. The collector calls these hooks.
///
/// A part of an owner, which drops logical pages from 1000 on at collection:
///
/// ```
/// use flagstone::ftl::{Cause, Config, Format, Ftl, FtlError, Header, Moving, Owner, Victim};
/// use flagstone::ftl::{PageKind, Relocation};
/// use flagstone::nand::Chip;
/// use flagstone::units::{Lpn, Nanos, Pbn, Ppn};
///
/// struct Cache;
///
/// impl Owner for Cache {
///     fn relocate(&mut self, _: &Ftl, page: &Moving<'_>, _: &mut [u8]) -> Relocation {
///         match page.header.lpn.0 {
///             0..1000 => Relocation::Copy,
///             _ => Relocation::Drop,
///         }
///     }
/// }
///
/// let flash = Box::new(Chip::default());
/// let (ftl, _) = Ftl::mount(flash, Config::default(), Format::NONE, Nanos::ZERO)?;
/// let victim = Victim { block: Pbn(0), prepared: Nanos::ZERO, cause: Cause::Gc };
/// let mut relocate = |lpn| {
///     let header = Header { kind: PageKind::Data, lpn, seq: 1 };
///     Cache.relocate(&ftl, &Moving { victim, from: Ppn(0), header, tail: &[] }, &mut [])
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

    /// Whether a block for which [`Owner::prepare`] found no room may wait until others are
    /// collected. What was written by then must be valid without the rest.
    fn lets_wait(&self) -> bool {
        false
    }

    /// Whether the erase of `victim` frees more pages than must be written before it. An owner that
    /// writes pages besides the copies can decide better than the number of live pages. Other
    /// blocks are skipped.
    fn is_worth(&self, ftl: &Ftl, victim: Pbn) -> bool {
        let _ = (ftl, victim);
        true
    }

    /// Called before a live page is copied. `tail` is the tail of the copy: that of the page,
    /// unless the owner changes it.
    fn relocate(&mut self, ftl: &Ftl, page: &Moving<'_>, tail: &mut [u8]) -> Relocation {
        let _ = (ftl, page, tail);
        Relocation::Copy
    }

    /// Whether the copy of a list of trims, if it is a new program, keeps naming a logical page. A
    /// page with a newer version must not be named: the copy would be newer still.
    fn keeps_trim(&self, ftl: &Ftl, at: Lpn, list: Ppn) -> bool {
        ftl.slot(at) == Slot::Trimmed(list)
    }

    /// Called before the copy is programmed into `to`: the last chance to change its `tail`. Called
    /// again with the original tail if that program fails and another page is used.
    fn place(&self, page: &Moving<'_>, to: Ppn, tail: &mut [u8]) {
        let _ = (page, to, tail);
    }

    /// Called when the copy of a live page is at `to`. The owner updates its tables; the collector
    /// kills the old page. Logical pages mapped to a list of trims have been remapped before.
    fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Written) {
        let Moving { from, header, .. } = page;
        if ftl.slot(header.lpn).ppn() == Some(*from) {
            ftl.move_slot(header.lpn, Slot::of(header.kind, to.at));
        }
    }

    /// Called when all copies are durable and the erase is next. Returns when it may be issued.
    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, of: Victim) -> Result<Nanos, FtlError> {
        let _ = (ftl, of);
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
}
