//! What the cyclic protocols share: versions that name each other, the pages of live transactions,
//! what a page's next version has to wait for, and how recovery follows the links.
//!
//! Both protocols write the pages of a transaction as a ring. The newest page is kept back until
//! the next one tells which version it is; at commit the page kept back names the first one and
//! closes the ring:
//!
//! ```text
//!   write A      write B             write C             commit
//!   keep A5      A5 -> B8 | keep B8  B8 -> C2 | keep C2  C2 -> A5
//! ```
//!
//! A link names a version, not a place, so relocation leaves links alone. The programs of a ring
//! need no order: while any of them is missing, the link to it points beyond the newest version of
//! its page, and that page gets no other version before the transaction has ended.

#[cfg(test)]
mod bench;
pub(super) mod bpcc;
mod numbers;
pub(super) mod scc;

use super::{Found, Held, Write, table_bytes};
use crate::ftl::{Ftl, FtlError, Slot, Written};
use crate::units::{Lpn, Nanos, Ppn, TxId};
use rustc_hash::FxHashMap;

/// A version of a logical page. Numbers begin at 1; 0 is no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Version {
    pub(super) page: Lpn,
    pub(super) number: u32,
}

/// A version of a live transaction that is on flash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shadow {
    tx: TxId,
    pub(super) number: u32,
    pub(super) slot: Slot,
    pub(super) next: Version,
}

impl Shadow {
    pub(super) fn ppn(&self) -> Ppn {
        self.slot.ppn().expect("a shadow is on flash")
    }
}

/// The ring of a live transaction as far as it goes.
#[derive(Debug, Clone)]
struct Ring {
    first: Version,
    held: Option<(Version, Held)>,
    /// Pages on flash.
    written: Vec<Lpn>,
    /// When the last program is done.
    done: Nanos,
}

/// Live transactions and their pages: the active transaction table.
#[derive(Debug, Clone, Default)]
pub(super) struct Active {
    rings: FxHashMap<TxId, Ring>,
    shadows: FxHashMap<Lpn, Shadow>,
}

impl Active {
    /// Keeps a version back, and hands out the one that was: its link is the new one.
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
            done: Nanos::ZERO,
        });
        ring.held.replace((version, Held::new(write)))
    }

    /// The version that is kept back: the next request programs it.
    pub(super) fn held(&self, tx: TxId) -> Option<Version> {
        let (version, _) = self.rings.get(&tx)?.held.as_ref()?;
        Some(*version)
    }

    /// The version that is kept back, with the first one as its link: what closes the ring.
    pub(super) fn last(&mut self, tx: TxId) -> Option<(Version, Held, Version)> {
        let ring = self.rings.get_mut(&tx)?;
        let (version, held) = ring.held.take()?;
        Some((version, held, ring.first))
    }

    /// A version of a live transaction was programmed.
    pub(super) fn wrote(
        &mut self,
        tx: TxId,
        version: Version,
        next: Version,
        held: &Held,
        to: Written,
    ) {
        let ring = self.rings.get_mut(&tx).expect("the transaction is live");
        ring.written.push(version.page);
        ring.done = ring.done.max(to.done);
        let shadow = Shadow {
            tx,
            number: version.number,
            slot: Slot::of(held.kind, to.at),
            next,
        };
        let other = self.shadows.insert(version.page, shadow);
        debug_assert!(other.is_none(), "{version:?} is not the only one");
    }

    /// Ends a transaction: its versions on flash, and when the last of them is done.
    pub(super) fn end(&mut self, tx: TxId) -> (Vec<(Lpn, Shadow)>, Nanos) {
        let Some(ring) = self.rings.remove(&tx) else {
            return (Vec::new(), Nanos::ZERO);
        };
        let shadow = |at| {
            (
                at,
                self.shadows.remove(&at).expect("written pages are kept"),
            )
        };
        let pages = ring.written.into_iter().map(shadow).collect();
        (pages, ring.done)
    }

    /// Where a transaction finds a page.
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

    /// The version of a live transaction that is on flash, if there is one.
    pub(super) fn shadow(&self, at: Lpn) -> Option<&Shadow> {
        self.shadows.get(&at)
    }

    /// Follows a page that was moved. False if no live transaction wrote it.
    pub(super) fn relocated(&mut self, at: Lpn, from: Ppn, to: Ppn) -> bool {
        match self.shadows.get_mut(&at) {
            Some(shadow) if shadow.ppn() == from => {
                shadow.slot = match shadow.slot {
                    Slot::Trimmed(_) => Slot::Trimmed(to),
                    _ => Slot::Page(to),
                };
                true
            }
            _ => false,
        }
    }

    /// Bytes of the tables and of the pages kept back.
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
            + own
    }
}

#[derive(Debug, Clone, Copy)]
struct Gate {
    until: Nanos,
    /// Whether somebody has waited for that instant already.
    waited: bool,
}

/// Instants before which a page's next version is not programmed, because that would settle what an
/// older version or a link to one means while a power cut can still undo it.
#[derive(Debug, Clone, Default)]
pub(super) struct Gates {
    closed: FxHashMap<Lpn, Gate>,
    /// Gates that were forgotten were closed until here at most.
    floor: Nanos,
    /// How many there are when the past ones are forgotten next.
    limit: usize,
}

impl Gates {
    const LIMIT_MIN: usize = 4096;

    /// Closes a page until an instant that somebody has waited for, or nobody yet.
    pub(super) fn close(&mut self, at: Lpn, until: Nanos, waited: bool) {
        let gate = self.closed.entry(at).or_insert(Gate { until, waited });
        gate.until = gate.until.max(until);
        gate.waited &= waited;
    }

    /// Waits until a page's next version may be programmed.
    pub(super) fn pass(&mut self, ftl: &mut Ftl, now: Nanos, at: Lpn) -> Result<Nanos, FtlError> {
        let now = now.max(self.floor);
        let Some(gate) = self.closed.get_mut(&at) else {
            return Ok(now);
        };
        let until = gate.until;
        if until <= now && gate.waited {
            self.closed.remove(&at);
            return Ok(now);
        }
        // The gate stays: should this version be taken back, the next one may come before `until`.
        gate.waited = true;
        ftl.sync(now, until)
    }

    /// Forgets gates of the past once there are many.
    pub(super) fn forget(&mut self, ftl: &mut Ftl, now: Nanos) -> Result<(), FtlError> {
        if self.closed.len() < self.limit.max(Gates::LIMIT_MIN) {
            return Ok(());
        }
        // One wait, in the background, for all that nobody has waited for.
        let open = self.closed.values().filter(|gate| !gate.waited);
        if let Some(until) = open.map(|gate| gate.until).max() {
            ftl.sync(now, until)?;
        }
        let floor = &mut self.floor;
        self.closed.retain(|_, gate| {
            gate.waited = true;
            if gate.until <= now {
                *floor = gate.until.max(*floor);
            }
            gate.until > now
        });
        self.limit = 2 * self.closed.len();
        Ok(())
    }

    pub(super) fn memory(&self) -> u64 {
        table_bytes::<Lpn, Gate>(self.closed.len())
    }
}

/// What one link says of the version that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Committed,
    Uncommitted,
    /// What the newest version of this page is.
    AsNewestOf(Lpn),
}

/// Whether the newest version of each page is committed: follows links until one decides, or until
/// the ring closes, which decides too. Every link is followed once.
pub(super) fn judge(pages: u32, link: impl Fn(Lpn) -> Verdict) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Known(bool),
    }
    let mut marks = vec![Mark::New; pages as usize];
    let mut path = Vec::new();
    for start in 0..pages {
        let mut at = Lpn(start);
        let committed = loop {
            match marks[at.index()] {
                Mark::Known(committed) => break committed,
                Mark::OnPath => break true,
                Mark::New => {}
            }
            marks[at.index()] = Mark::OnPath;
            path.push(at);
            match link(at) {
                Verdict::Committed => break true,
                Verdict::Uncommitted => break false,
                Verdict::AsNewestOf(next) => at = next,
            }
        };
        for at in path.drain(..) {
            marks[at.index()] = Mark::Known(committed);
        }
    }
    marks
        .into_iter()
        .map(|mark| mark == Mark::Known(true))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{AsNewestOf, Committed, Uncommitted};

    #[test]
    fn a_closed_ring_is_committed_and_a_path_is_what_its_end_is() {
        let links = [
            AsNewestOf(Lpn(1)), // 0 -> 1 -> 2 -> 0: closed
            AsNewestOf(Lpn(2)),
            AsNewestOf(Lpn(0)),
            AsNewestOf(Lpn(3)), // itself
            AsNewestOf(Lpn(5)), // 4 -> 5, which is missing
            Uncommitted,
            AsNewestOf(Lpn(7)), // 6 -> 7, which has been written again
            Committed,
            AsNewestOf(Lpn(4)), // joins the path that ends in 5
        ];
        let committed = judge(links.len() as u32, |at| links[at.index()]);
        let right = [true, true, true, true, false, false, true, true, false];
        assert_eq!(committed, right);
    }
}
