//! Plain: no transactions, the control.
//!
//! Paper       none; the FTL of [FlagCommit] §2.2 without a commit protocol.
//! Idea        Each write counts by itself, as soon as it is programmed.
//! Commit      None: each program counts by itself.
//! Cost        k programs for k pages. Recovery reads a summary page a block.
//!
//!   spare     the header alone
//!
//! Invariants  1. The version of a page with the highest write sequence is the one that counts.
//!             2. Begin, commit and abort keep nothing together and take nothing back: a power-cut
//!                campaign that holds it to atomicity must find it wanting.
//!
//! Recovery    the highest sequence of each logical page; equal sequences are copies of each other
//!
//! Departures  none.

use super::show::{Rulings, rows};
use super::{Found, Info, Isolation, Options, Protocol, Recovered, Taken, Write};
use crate::ftl::{Ftl, FtlError, Header, Mounted, Owner, Slot, Stream, Victim};
use crate::units::{Lpn, Nanos, Ppn, TxId};

pub(super) const INFO: Info = Info {
    isolation: Isolation::Serializable,
    atomic: false,
    recovery: rows! {
        "newest": "the highest sequence of its logical page" => "counts";
        "older": "another version has a higher sequence" => "does not count";
    },
    ..Info::new("plain", "no transactions: each write counts by itself")
};

#[derive(Clone)]
struct Plain {
    /// When the last program of any transaction is done.
    written: Nanos,
    /// Live transactions that have written, each with the time at which its last program is done.
    live: Vec<(TxId, Nanos)>,
}

/// Recovers the control: maps the version of each logical page with the highest write sequence.
pub(super) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let mut rulings = Rulings::new(options.tells);
    let mut versions: Vec<(Ppn, Lpn, u64)> = Vec::new();
    let mut newest: Vec<u64> = vec![0; ftl.logical_pages() as usize];
    let mut found: Vec<(Lpn, Slot)> = Vec::new();
    let blocks = ftl.blocks.for_data();
    let done = ftl.scan(mounted.done, &blocks, |at: Ppn, head: Header, _: &[u8]| {
        if rulings.listens() {
            versions.push((at, head.lpn, head.seq));
        }
        let seq = &mut newest[head.lpn.index()];
        if head.seq > *seq {
            *seq = head.seq;
            found.push((head.lpn, Slot::of(head.kind, at)));
        }
    })?;
    for (lpn, slot) in found {
        ftl.set_slot(lpn, slot);
    }
    for (at, lpn, seq) in versions {
        let counts = ftl.slot(lpn).ppn() == Some(at);
        let because = format!("logical page {lpn}, sequence {seq}");
        let row = if counts { "newest" } else { "older" };
        rulings.say(row, None, vec![at], counts, because);
    }
    ftl.revive_mapped()?;
    ftl.finish_mount();
    let protocol = Box::new(Plain {
        written: Nanos::ZERO,
        live: Vec::new(),
    });
    Ok(Recovered {
        protocol,
        last_tx: TxId(0),
        done,
        rulings: rulings.into_list(),
    })
}

impl Protocol for Plain {
    /// Programs the page and maps it at once: an abort takes nothing back.
    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        let Write { at, content, cause } = write;
        let page = (content.kind(), at, None);
        let host = (Stream::Host, None);
        let to = ftl.append(now, host, page, &[], content.bytes(), cause)?;
        if let Some(old) = ftl.set_slot(at, Slot::of(content.kind(), to.at)).ppn() {
            ftl.kill(old);
        }
        self.written = self.written.max(to.done);
        match self.live.iter_mut().find(|(live, _)| *live == tx) {
            Some((_, written)) => *written = to.done.max(*written),
            None => self.live.push((tx, to.done)),
        }
        let (next, done) = (now, to.done);
        Ok(Taken { next, done })
    }

    fn find(&self, ftl: &Ftl, _: Option<TxId>, at: Lpn) -> Found<'_> {
        ftl.slot(at).into()
    }

    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        match self.end(tx) {
            Some(written) => ftl.sync(now, written).map(Some),
            None => Ok(Some(now)),
        }
    }

    fn abort(&mut self, _: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        self.end(tx);
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let live = self.live.capacity() * size_of::<(TxId, Nanos)>();
        vec![("live_writes", live as u64)]
    }
}

impl Plain {
    /// Removes a transaction. Returns when its last program is done, if it has written anything.
    fn end(&mut self, tx: TxId) -> Option<Nanos> {
        let place = self.live.iter().position(|&(live, _)| live == tx)?;
        Some(self.live.swap_remove(place).1)
    }
}

impl Owner for Plain {
    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, _: Victim) -> Result<Nanos, FtlError> {
        // A dead page is still needed while its replacement is in flight.
        ftl.sync(now, self.written)
    }
}
