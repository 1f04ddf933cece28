//! The tables of CFC and AFC on pages, and the steps that both protocols share: the effect of a
//! write, a commit and an abort on the tables, the flags of copies, and a victim's pages.

use super::{BLOCK_FLAGS, Carriers, DirtyPages, Shadow, Waits, copy_in_place_of};
use crate::commit::Options;
use crate::ftl::{Cause, Ftl, FtlError, Moving, Slot, Written};
use crate::nand::Geometry;
use crate::settings::BadSetting;
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};

/// The tables of both protocols.
#[derive(Clone)]
pub(super) struct Tables {
    pub(super) geometry: Geometry,
    pub(super) block_flags: bool,
    pub(super) as_published: bool,
    pub(super) dirty: DirtyPages,
    pub(super) carriers: Carriers,
    pub(super) waits: Waits,
}

impl Tables {
    pub(super) fn new(ftl: &Ftl, options: &Options) -> Result<Tables, BadSetting> {
        let geometry = *ftl.geometry();
        let block_flags = options.settings.flag(&super::INFO, BLOCK_FLAGS.name)?;
        Ok(Tables {
            geometry,
            block_flags: block_flags && geometry.can_reprogram(), // D8
            as_published: options.as_published,
            dirty: DirtyPages::default(),
            carriers: Carriers::default(),
            waits: Waits::default(),
        })
    }

    /// Commits a transaction that wrote these pages; the commit is durable at `done`.
    pub(super) fn commit(&mut self, ftl: &mut Ftl, tx: TxId, lpns: &[Lpn], done: Nanos) {
        let obsolete = lpns.iter().filter_map(|&lpn| {
            let obsolete = self.dirty.commit(lpn)?;
            self.carriers.retire(ftl, obsolete);
            Some(self.geometry.block_of(obsolete))
        });
        self.waits.commit(tx, done, obsolete);
    }

    /// Rolls back a transaction that wrote these pages.
    pub(super) fn abort(&mut self, ftl: &mut Ftl, lpns: &[Lpn]) {
        for &lpn in lpns {
            let never_was = self.dirty.abort(ftl, lpn).expect("it was written");
            ftl.kill(never_was);
        }
    }

    /// D8: programs a copy of a page that carries another flag.
    pub(super) fn carry(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        page: &Shadow,
        flag: u8,
        cause: Cause,
    ) -> Result<Written, FtlError> {
        let to = copy_in_place_of(ftl, now, page, flag, cause)?;
        let slot = Slot::of(page.kind, to.at);
        let current = self.dirty.moved(ftl, page.lpn, page.at, slot);
        self.carriers.insert(ftl, page.at, to.at, current);
        if current {
            self.carriers.retire(ftl, page.at);
        }
        Ok(to)
    }

    /// The pages of a victim, and when the commits that the collection relies on are durable.
    pub(super) fn of_victim(
        &self,
        ftl: &mut Ftl,
        now: Nanos,
        victim: Pbn,
    ) -> Result<(Vec<Shadow>, Nanos), FtlError> {
        let mut pages = Vec::new();
        let read = ftl.block_records(now, victim, Cause::Gc, |at, head, tail| {
            pages.push(Shadow::parse(at, &head, tail));
        })?;
        let acks = self.waits.acks_of(read.done, Shadow::xids(&pages));
        Ok((pages, ftl.sync(read.done, acks)?))
    }

    /// Updates the tables after the collector has copied a page.
    pub(super) fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Ppn) {
        let slot = Slot::of(page.header.kind, to);
        self.dirty.moved(ftl, page.header.lpn, page.from, slot);
        self.carriers.moved(page.from, to);
    }

    /// Checks the tables.
    pub(super) fn check(
        &self,
        ftl: &Ftl,
        in_progress: impl Fn(TxId) -> bool,
    ) -> Result<(), String> {
        self.carriers.check(ftl)?;
        self.dirty.check(ftl, in_progress)
    }

    /// Waits until a victim with these pages may be erased. Its flags are transferred at `flagged`.
    pub(super) fn before_erase(
        &self,
        ftl: &mut Ftl,
        now: Nanos,
        flagged: Nanos,
        victim: Pbn,
        pages: &[Shadow],
    ) -> Result<Nanos, FtlError> {
        let mut until = flagged;
        if !self.as_published {
            until = until.max(self.waits.before_erase(now, victim, Shadow::xids(pages)));
        }
        ftl.sync(now, until)
    }
}
