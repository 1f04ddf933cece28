//! The unfinished rings of live transactions: the active transaction table of SCC and BPCC.

use super::Version;
use crate::commit::show::live_row;
use crate::commit::{Found, Held, Write, table_bytes};
use crate::ftl::{Ftl, Slot, Written};
use crate::units::{Lpn, Nanos, Ppn, TxId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// A version on flash that belongs to a live transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shadow {
    tx: TxId,
    pub(super) number: u32,
    /// How many versions of the page came before this one in the ring.
    again: u32,
    pub(super) slot: Slot,
    pub(super) next: Version,
}

/// A version on flash that another of the same ring has replaced, or its own copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replaced {
    tx: TxId,
    pub(super) version: Version,
    pub(super) next: Version,
}

impl Shadow {
    pub(super) fn ppn(&self) -> Ppn {
        self.slot.ppn().expect("a shadow is on flash")
    }
}

/// The versions of a transaction that has ended: the last of each page, and those replaced.
type Ended = (Vec<(Lpn, Shadow)>, Vec<(Ppn, Replaced)>);

/// The unfinished ring of a live transaction.
#[derive(Debug, Clone)]
struct Ring {
    first: Version,
    held: Option<(Version, Held)>,
    /// Pages on flash.
    written: Vec<Lpn>,
    /// Places of versions that were replaced. Some may have been erased.
    replaced: Vec<Ppn>,
    /// When its last program is done.
    done: Nanos,
}

/// The active transaction table: live transactions and their pages.
#[derive(Debug, Clone, Default)]
pub(super) struct Rings {
    rings: FxHashMap<TxId, Ring>,
    shadows: FxHashMap<Lpn, Shadow>,
    /// Versions that wait for nothing but their erase, and must be told apart if their ring is
    /// aborted.
    replaced: BTreeMap<Ppn, Replaced>,
}

impl Rings {
    /// Holds a version back. Returns the previously held one, which links to the new one.
    pub(super) fn hold(
        &mut self,
        tx: TxId,
        version: Version,
        write: Write<'_>,
    ) -> Option<(Version, Held)> {
        let ring = self.rings.entry(tx).or_insert_with(|| Ring {
            first: version,
            held: None,
            written: Vec::new(),
            replaced: Vec::new(),
            done: Nanos::ZERO,
        });
        ring.held.replace((version, Held::new(write)))
    }

    /// Replaces the contents of the held-back version, if it is of this page.
    pub(super) fn hold_again(&mut self, tx: TxId, write: &Write<'_>) -> bool {
        let held = self.rings.get_mut(&tx).and_then(|ring| ring.held.as_mut());
        match held.filter(|(version, _)| version.page == write.at) {
            Some((_, held)) => {
                *held = Held::new(*write);
                true
            }
            None => false,
        }
    }

    /// Number of versions of a page that a live transaction has on flash, or had there.
    pub(super) fn versions_of(&self, at: Lpn) -> u32 {
        self.shadows.get(&at).map_or(0, |shadow| shadow.again + 1)
    }

    /// When the last program of a transaction is done.
    pub(super) fn written_at(&self, tx: TxId) -> Nanos {
        self.rings.get(&tx).map_or(Nanos::ZERO, |ring| ring.done)
    }

    /// Holds a version back again, instead of the one that was to follow it.
    #[cold]
    pub(super) fn keep_back(&mut self, tx: TxId, version: Version, held: Held) {
        let ring = self.rings.get_mut(&tx).expect("the transaction is live");
        ring.held = Some((version, held));
    }

    /// The held-back version, which the next request programs.
    pub(super) fn held(&self, tx: TxId) -> Option<Version> {
        let (version, _) = self.rings.get(&tx)?.held.as_ref()?;
        Some(*version)
    }

    /// The held-back version with the first version as its link, which closes the ring.
    pub(super) fn last(&mut self, tx: TxId) -> Option<(Version, Held, Version)> {
        let ring = self.rings.get_mut(&tx)?;
        let (version, held) = ring.held.take()?;
        Some((version, held, ring.first))
    }

    /// Records that a version of a live transaction was programmed. Returns the place of the one
    /// that it replaces.
    pub(super) fn wrote(
        &mut self,
        tx: TxId,
        version: Version,
        next: Version,
        held: &Held,
        to: Written,
    ) -> Option<Ppn> {
        let again = self.versions_of(version.page);
        let ring = self.rings.get_mut(&tx).expect("the transaction is live");
        if again == 0 {
            ring.written.push(version.page);
        }
        ring.done = ring.done.max(to.done);
        let shadow = Shadow {
            tx,
            number: version.number,
            again,
            slot: Slot::of(held.kind, to.at),
            next,
        };
        let old = self.shadows.insert(version.page, shadow)?;
        let (page, number) = (version.page, old.number);
        let replaced = Replaced {
            tx,
            version: Version { page, number },
            next: old.next,
        };
        ring.replaced.push(old.ppn());
        self.replaced.insert(old.ppn(), replaced);
        Some(old.ppn())
    }

    /// Removes replaced versions in these pages, which are erased. Nothing has to wait for that:
    /// their pages have later versions, and are not written before the erase of those.
    pub(super) fn erased(&mut self, pages: Range<Ppn>) {
        while let Some((&at, _)) = self.replaced.range(pages.clone()).next() {
            self.replaced.remove(&at);
        }
    }

    /// Ends a transaction. Returns its versions on flash: the last of each page, and those that
    /// they have replaced.
    pub(super) fn end(&mut self, tx: TxId) -> Ended {
        let Some(ring) = self.rings.remove(&tx) else {
            return Ended::default();
        };
        let mut replaced = Vec::new();
        for at in ring.replaced {
            if self.replaced.get(&at).is_some_and(|old| old.tx == tx) {
                replaced.extend(self.replaced.remove_entry(&at));
            }
        }
        let shadow = |at| {
            (
                at,
                self.shadows.remove(&at).expect("written pages are kept"),
            )
        };
        let pages = ring.written.into_iter().map(shadow).collect();
        (pages, replaced)
    }

    /// Finds a page for a transaction.
    pub(super) fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        let Some(tx) = tx else {
            return ftl.slot(at).into();
        };
        if let Some((version, held)) = self.rings.get(&tx).and_then(|ring| ring.held.as_ref())
            && version.page == at
        {
            return held.found();
        }
        match self.shadows.get(&at) {
            Some(shadow) if shadow.tx == tx => shadow.slot.into(),
            _ => ftl.slot(at).into(),
        }
    }

    /// The version on flash that belongs to a live transaction, if any.
    pub(super) fn shadow(&self, at: Lpn) -> Option<&Shadow> {
        self.shadows.get(&at)
    }

    /// Updates a moved page. Returns `false` if it does not belong to a live transaction.
    pub(super) fn relocated(&mut self, at: Lpn, from: Ppn, to: Ppn) -> bool {
        match self.shadows.get_mut(&at) {
            Some(shadow) if shadow.ppn() == from => {
                let (number, next, tx) = (shadow.number, shadow.next, shadow.tx);
                shadow.slot = match shadow.slot {
                    Slot::Trimmed(_) => Slot::Trimmed(to),
                    _ => Slot::Page(to),
                };
                // The original stays if its block has a lost page and is not erased.
                let version = Version { page: at, number };
                self.replaced.insert(from, Replaced { tx, version, next });
                let ring = self.rings.get_mut(&tx);
                ring.expect("it is live").replaced.push(from);
                true
            }
            _ => false,
        }
    }

    /// The rings, for display.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let row = |(&tx, ring): (&TxId, &Ring)| {
            let version = |lpn: &Lpn| {
                let shadow = &self.shadows[lpn];
                format!("{lpn}.{} → p{}", shadow.number, shadow.ppn())
            };
            let versions: Vec<String> = ring.written.iter().map(version).collect();
            let held = ring.held.as_ref().map(|(version, _)| version.page);
            live_row(tx, "live", versions.join(", "), held)
        };
        self.rings.iter().map(row).collect()
    }

    /// Memory of the tables and of the held-back pages in bytes.
    pub(super) fn memory(&self) -> u64 {
        let rings = self.rings.values();
        let own: u64 = rings
            .map(|ring| {
                let held = ring.held.as_ref().map_or(0, |(_, held)| held.data.len());
                (ring.written.len() * size_of::<Lpn>() + held) as u64
            })
            .sum();
        table_bytes::<TxId, Ring>(self.rings.len())
            + table_bytes::<Lpn, Shadow>(self.shadows.len())
            + table_bytes::<Ppn, Replaced>(self.replaced.len())
            + own
    }
}
