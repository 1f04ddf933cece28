//! Multi-head logging with data clustering (MHL-D).
//!
//! Paper       [LightTx] §4.1, where it is a baseline; its recovery and mapping persistence are
//!             those of LightTx there.
//! Idea        The flash is written as several logs side by side. A transaction is bound to the
//!             head of one when it begins, so that its pages follow each other in it, and its last
//!             page ends and counts it.
//! Cost        k programs for k pages, one after the other on one plane: a transaction alone does
//!             not use the planes side by side. Checkpoints and recovery as LightTx.
//!
//!   spare     | header: kind lpn seq | TxID 4 | count, 0 until the end 4 | TxVer 4 |
//!   head h    | T5 | T5 | T5 end 3 | T9 | T9 end 2 | T12 | ...
//!   root      | ckptVer | last TxID | Available blocks | Unavailable blocks |      super::zones
//!
//! Invariants  1 to 5 of [`super::lighttx`].
//!             6. A head serves one transaction at a time, so that pages of others never come
//!                between its pages as long as the zone has a block on the head's planes.
//!
//! Recovery    @A to @F of [`super::lighttx`]: the end flag is a count that is not 0.
//!
//! Departures  D1 to D5 of [`super::lighttx`] hold here from the start.
//!             D6. The paper gives a head a package; a head takes the planes of its package block
//!                 by block, which keeps their wear and their free space even.
//!             D7. The transactions that find no head are refused; who drives the device waits.
//!             D8. Where the zone has no block left on the head's planes, its pages go elsewhere.
//!                 They are counted, not followed, so it does not matter where they are.

use crate::commit::counted::{self, Counted, count_record};
use crate::commit::{Found, Info, Isolation, Options, Protocol, Recovered, Taken, Way, Write};
use crate::ftl::{Fate, Format, Ftl, FtlError, Header, Mounted, Owner, Stream, Written};
use crate::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use std::collections::VecDeque;

pub(in crate::commit) const INFO: Info = Info {
    name: "mhl-d",
    idea: "pages of a transaction follow each other in the log of its head; the last counts them",
    paper: "LightTx",
    section: "§4.1",
    isolation: Isolation::Serializable,
    live_max: Some(Options::HEADS_MAX),
    reprograms: false,
    rewrites: true,
    atomic: true,
    as_published: false,
    modes: &[],
    format: Format {
        tail_bytes: count_record::SIZE,
        flag_bytes: 0,
        persist_map: true,
        logs: 0,
        zoned: true,
    },
};

#[derive(Clone)]
struct MhlD {
    pages: Counted,
    /// The plane that each head writes to.
    heads: Vec<u32>,
    /// Heads that serve no transaction, the longest idle first.
    idle: VecDeque<u32>,
}

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let planes = ftl.geometry().planes();
    let heads = options.heads(ftl.geometry()).min(planes);
    let (pages, done) = counted::recover(ftl, &mounted, options, (false, false))?;
    Ok(Recovered {
        last_tx: pages.zones.last_tx,
        protocol: Box::new(MhlD {
            pages,
            heads: (0..heads).map(|head| head * planes / heads).collect(),
            idle: (0..heads).collect(),
        }),
        done,
    })
}

impl Protocol for MhlD {
    fn live_max(&self) -> Option<u32> {
        Some(self.heads.len() as u32)
    }

    fn begin(&mut self, _: &mut Ftl, _: Nanos, tx: TxId) -> Result<(), FtlError> {
        let head = self.idle.pop_front().expect("the device keeps to live_max");
        self.pages.zones.last_tx = tx;
        self.pages.active.open(tx).head = head;
        Ok(())
    }

    fn in_the_way(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        _: TxId,
        round: u32,
    ) -> Result<Option<Way>, FtlError> {
        self.pages.in_the_way(ftl, now, round)
    }

    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        let plane = self.plane(ftl, tx);
        self.pages.write(ftl, now, tx, write, Some(plane))
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        self.pages.find(ftl, tx, at)
    }

    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        let plane = self.plane(ftl, tx);
        self.idle.push_back(self.head(tx));
        self.pages.commit(ftl, now, tx, Some(plane)).map(Some)
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        self.idle.push_back(self.head(tx));
        self.pages.abort(ftl, tx);
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.pages.memory();
        all.push(("heads", self.heads.len() as u64 * 8));
        all
    }

    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        self.pages.check(ftl)
    }
}

impl Owner for MhlD {
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        self.pages.prepare(ftl, now, victim)
    }

    fn relocate(&mut self, ftl: &Ftl, from: Ppn, header: &Header, tail: &mut [u8]) -> Fate {
        self.pages.relocate(ftl, from, header, tail)
    }

    fn relocated(&mut self, ftl: &mut Ftl, header: &Header, from: Ppn, to: Written) {
        self.pages.relocated(ftl, header, from, to);
    }

    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        self.pages.before_erase(ftl, now, victim)
    }
}

impl MhlD {
    fn head(&self, tx: TxId) -> u32 {
        self.pages.active.get(tx).expect("begin opened it").head
    }

    /// The plane that the next page of a transaction goes to: the one of its head, and the next of
    /// the head's planes once the block there is full.
    fn plane(&mut self, ftl: &Ftl, tx: TxId) -> u32 {
        let (head, heads) = (self.head(tx), self.heads.len() as u32);
        let planes = ftl.geometry().planes();
        let (first, end) = (head * planes / heads, (head + 1) * planes / heads);
        let plane = &mut self.heads[head as usize];
        if ftl.open_on(Stream::Host, *plane).is_none() {
            *plane = if *plane + 1 < end { *plane + 1 } else { first };
        }
        *plane
    }
}

#[cfg(test)]
mod tests {
    use crate::commit::small_device::{NOTHING, Small};
    use crate::commit::{DeviceError, Kind, Options};
    use crate::units::{Lpn, Ppn};

    #[test]
    fn pages_of_a_transaction_follow_each_other_in_the_log_of_its_head() {
        let mut small = Small::new(Kind::MhlD, Options::default());
        let (a, b) = (small.begin(), small.begin());
        for at in 0..4 {
            small.write(a, at, 1);
            small.write(b, 10 + at, 2);
        }
        small.commit(a);
        small.commit(b);
        for first in [0u32, 10] {
            let page = |at: u32| small.device().ftl().slot(Lpn(first + at)).ppn();
            let pages: Vec<Ppn> = (0..4).filter_map(page).collect();
            let consecutive = pages.windows(2).all(|two| two[1].0 == two[0].0 + 1);
            assert!(pages.len() == 4 && consecutive, "{pages:?}");
        }
        let mut small = small.restart(NOTHING);
        assert_eq!([0, 3, 10, 13].map(|at| small.value(at)), [1, 1, 2, 2]);
    }

    #[test]
    fn d7_a_transaction_that_finds_no_head_is_refused() {
        let mut small = Small::new(Kind::MhlD, Options::default());
        let (a, _) = (small.begin(), small.begin());
        let now = small.now;
        let refused = small.device().begin(now);
        assert!(matches!(
            refused,
            Err(DeviceError::TooManyLive { limit: 2, .. })
        ));
        small.commit(a);
        small.begin();
    }

    #[test]
    fn heads_keep_to_their_planes_and_survive_many_slides() {
        let mut small = Small::new(Kind::MhlD, Options::default());
        for i in 0..500u32 {
            let tx = small.begin();
            (0..i % 4).for_each(|n| small.write(tx, (i * 7 + n * 13) % 50, i as u8));
            small.commit(tx);
            if i % 50 == 0 {
                small.check();
            }
        }
        assert!(small.checkpoints() > 10 && small.device().stats().collections > 10);
        let before: Vec<u8> = (0..50).map(|at| small.value(at)).collect();
        let mut small = small.restart(NOTHING);
        let after: Vec<u8> = (0..50).map(|at| small.value(at)).collect();
        assert_eq!(before, after);
    }
}
