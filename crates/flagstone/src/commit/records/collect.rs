//! State of a record-level device beyond the FTL's tables, and its hooks for the collector
//! ([FlagCommit] §4.3, garbage collection).

use super::format::{List, Tail, list_bytes};
use super::merge::merge;
use super::versions::{Held, Version, Versions};
use super::{Live, Member, Verdicts};
use crate::ftl::{
    Cause, Ftl, FtlError, Moving, Owner, PageKind, Relocation, Stream, Victim, Written,
};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use std::collections::BTreeMap;

type Flags = [u8; super::ENTRIES_MAX];

pub(super) struct Records {
    /// Transactions in progress and in doubt.
    pub(super) live: BTreeMap<TxId, Live>,
    pub(super) versions: Versions,
    pub(super) verdicts: Box<dyn Verdicts>,
    /// When everything that replaces the victim is durable: merged pages and flags.
    pub(super) left: Nanos,
    /// Number of versions replaced by merging.
    pub(super) merged: u64,
}

impl Records {
    pub(super) fn is_live(&self, tx: TxId) -> bool {
        self.live.contains_key(&tx)
    }

    /// Programs a version of page `at`, which becomes its newest one. `pending` has each live
    /// transaction with records in it, and their slots: each gets an entry with a flag. Returns
    /// when the version is durable.
    pub(super) fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        at: Lpn,
        image: &[u8],
        cause: Cause,
        pending: impl Iterator<Item = (TxId, Box<[u16]>)>,
    ) -> Result<Nanos, FtlError> {
        let mut list = List::default();
        let mut held = Vec::new();
        let mut flags = [0xff; super::ENTRIES_MAX];
        let mut start = now;
        for (index, (tx, slots)) in pending.enumerate() {
            flags[index] = self.verdicts.next(tx);
            start = start.max(self.verdicts.earliest(tx));
            list.entries.push(super::format::Entry {
                tx,
                slots: slots.clone(),
            });
            let index = index as u8;
            held.push(Held { tx, index, slots });
        }
        if start > now {
            ftl.sync(now, start)?;
        }
        let to = self.program(ftl, start, Stream::Host, cause, at, image, &list, flags)?;
        for (index, Held { tx, .. }) in held.iter().enumerate() {
            let member = Member {
                at: to.at,
                seq: to.seq as u32,
                index: index as u8,
            };
            self.verdicts.wrote(ftl, *tx, member, to.done);
            self.live.get_mut(tx).expect("it is live").note(at);
        }
        let live = &self.live;
        let version = Version { at: to.at, held };
        let undecided = |tx| live.contains_key(&tx);
        self.versions.push(ftl, at, version, to.done, undecided);
        ftl.sync(start, to.done)
    }

    /// Programs a version of page `at`: `image` with `list` behind it, and `flags` in the spare
    /// area.
    fn program(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        stream: Stream,
        cause: Cause,
        at: Lpn,
        image: &[u8],
        list: &List,
        flags: Flags,
    ) -> Result<Written, FtlError> {
        let tail = Tail {
            version: ftl.last_seq() + 1,
            list: list.bytes() as u16,
            entries: list.entries.len() as u8,
            flags,
        };
        let mut data = Vec::with_capacity(image.len() + list.bytes());
        data.extend_from_slice(image);
        list.emit(&mut data);
        let what = (PageKind::Data, at, None);
        let to = ftl.append_with(now, (stream, None), what, &data, cause, |_, bytes| {
            tail.emit(bytes);
        })?;
        debug_assert_eq!(to.seq, tail.version);
        Ok(to)
    }

    /// Rewrites a page without pending records as one version that replaces all others (D7).
    /// Returns when that is done, or `None` if it does not fit a page.
    pub(super) fn rewrite(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        at: Lpn,
        stream: Stream,
        cause: Cause,
    ) -> Result<Option<Nanos>, FtlError> {
        let live = &self.live;
        let undecided = |tx: TxId| live.contains_key(&tx);
        let single;
        let list = match self.versions.get(at) {
            Some(list) => list,
            None => {
                let Some(page) = ftl.slot(at).ppn() else {
                    return Ok(None);
                };
                // A page without a list has one version, and no pending records.
                single = [Version {
                    at: page,
                    held: Vec::new(),
                }];
                &single
            }
        };
        let from = list.len() as u64;
        let blocks = list
            .iter()
            .map(|version| ftl.geometry().block_of(version.at));
        let start = blocks
            .map(|block| self.versions.safe_at(block))
            .fold(now, Nanos::max);
        ftl.sync(now, start)?;
        let merged = merge(ftl, start, list, undecided, cause)?;
        let room = ftl.geometry().page_bytes as usize;
        if merged.image.len() + list_bytes(0, 0, merged.restored.len()) > room {
            return Ok(None);
        }
        let list = List {
            entries: Vec::new(),
            restored: merged.restored,
        };
        let flags = [0xff; super::ENTRIES_MAX];
        let written = self.program(
            ftl,
            merged.done,
            stream,
            cause,
            at,
            &merged.image,
            &list,
            flags,
        )?;
        self.versions.replace(ftl, at, written.at, written.done);
        self.merged += from - 1;
        Ok(Some(written.done))
    }

    /// Whether a page has a list of versions, and no pending records.
    fn is_quiet(&self, at: Lpn) -> bool {
        let list = self.versions.get(at);
        let mut held = list.into_iter().flatten().flat_map(|v| &v.held);
        list.is_some() && !held.any(|held| self.is_live(held.tx))
    }
}

impl Owner for Records {
    /// Merges the versions of each live page of the victim that has no pending records (D7), and
    /// settles flags. Afterwards `left` says when all of that is durable.
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        let mut pages: Vec<(Ppn, Lpn)> = Vec::new();
        let read = ftl.block_records(now, victim, Cause::Gc, |at, head, _| {
            pages.push((at, head.lpn));
        })?;
        let now = ftl.sync(read.done, self.versions.safe_at(victim))?;
        self.left = now;
        for (at, lpn) in pages {
            if ftl.blocks.is_live(at) && self.is_quiet(lpn) {
                match self.rewrite(ftl, now, lpn, Stream::Gc, Cause::Gc) {
                    Ok(done) => self.left = self.left.max(done.unwrap_or_default()),
                    // A version is unreadable: the collector will find it again.
                    Err(FtlError::Unreadable { .. }) => {}
                    Err(other) => return Err(other),
                }
            }
        }
        let flagged = self.verdicts.prepare(ftl, now, victim, &self.versions)?;
        self.left = self.left.max(flagged);
        Ok(now)
    }

    fn relocate(&mut self, _: &Ftl, page: &Moving<'_>, tail: &mut [u8]) -> Relocation {
        let mut says = Tail::parse(tail);
        let committed = self.verdicts.flag_of_copy(TxId(0));
        says.flags[..usize::from(says.entries)].fill(committed);
        for held in self.versions.held(page.header.lpn, page.from) {
            says.flags[usize::from(held.index)] = self.verdicts.flag_of_copy(held.tx);
        }
        says.emit(tail);
        Relocation::Renew
    }

    fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Written) {
        self.versions.moved(ftl, page.header.lpn, page.from, to.at);
        self.verdicts.relocated(page.from, &to);
    }

    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, of: Victim) -> Result<Nanos, FtlError> {
        ftl.sync(now, self.left.max(self.versions.safe_at(of.block)))
    }

    fn erased(&mut self, _: &mut Ftl, victim: Pbn, done: Nanos) {
        let safe_at = self.versions.safe_at(victim);
        self.versions.forget(victim);
        self.verdicts.erased(victim, safe_at, done);
    }
}
