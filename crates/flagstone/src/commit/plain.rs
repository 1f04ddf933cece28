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
        if let Some(seq) = newest.get_mut(head.lpn.index())
            && head.seq > *seq
        {
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

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::small_device::Small;
    use super::super::{Config, Device};
    use super::*;
    use crate::dice::Dice;
    use crate::ftl::{Cause, Operation, Stats};
    use crate::nand::{Cell, Chip, Geometry, Timing, small};

    #[test]
    fn a_commit_waits_for_its_own_writes_only() {
        let mut small = Small::new(Kind::Plain, Options::default());
        let (one, two) = (small.begin(), small.begin());
        let (now, later) = (small.now, small.now + Nanos(9_000_000));
        let device = small.device();
        device.write(now, one, Lpn(1), &[1]).unwrap();
        device.write(later, two, Lpn(2), &[2]).unwrap();
        let idle = device.begin(now).unwrap();
        assert_eq!(device.commit(now, idle), Ok(Some(now)));
        let early = device.commit(now, one).unwrap().unwrap();
        let late = device.commit(now, two).unwrap().unwrap();
        assert!(now < early && early < later && later < late);
    }

    #[test]
    fn a_write_says_when_its_page_is_done_and_counts_as_it_was_told() {
        for (kind, holds) in [(Kind::Plain, false), (Kind::Scc, true)] {
            let mut small = Small::new(kind, Options::default());
            let (tx, now) = (small.begin(), small.now);
            let device = small.device();
            let first = device.write_as(Cause::Log, now, tx, Lpn(1), &[1]).unwrap();
            assert_eq!(first.done > now, !holds);
            assert_eq!(
                device.stats().count(Operation::Program, Cause::Log),
                u64::from(!holds)
            );
            let second = device.write(now, tx, Lpn(2), &[2]).unwrap();
            assert!(second.next == now && second.done > now);
            assert_eq!(device.stats().count(Operation::Program, Cause::Log), 1);
            assert_eq!(
                device.stats().count(Operation::Program, Cause::Host),
                u64::from(!holds)
            );
        }
    }

    #[test]
    fn a_flash_that_forgets_dead_pages_gives_the_same_answers_in_less_memory() {
        let run = |chip: Chip| {
            let config = Config {
                over_provision: 0.4,
                ..Config::default()
            };
            let (flash, options) = (Box::new(chip), Options::default());
            let opened = Device::open(flash, Kind::Plain, config, &options, Nanos::ZERO);
            let mut device = opened.unwrap();
            let (mut now, mut answers) = (device.recovered_at(), Vec::new());
            let pages = device.pages() / 4;
            for n in 0..20_000u32 {
                let at = Lpn(n.wrapping_mul(2_654_435_761) % pages);
                let tx = device.begin(now).unwrap();
                device.write(now, tx, at, &[n as u8; 256]).unwrap();
                now = device.commit(now, tx).unwrap().expect("nothing is grouped");
                let (done, bytes) = device.read(now, None, Lpn(n % pages)).unwrap();
                answers.push((done, bytes.map(<[u8]>::to_vec)));
                now = done;
            }
            device.check().unwrap();
            let stats = device.stats().clone();
            assert!(stats.collections > 0);
            let chip = device.ftl().flash().model().expect("the chip");
            (answers, stats, chip.memory_bytes() / u64::from(pages))
        };
        let chip = || small::chip(small::GEOMETRY);
        let (all, live) = (run(chip()), run(chip().with_forgetting()));
        assert_eq!((&all.0, &all.1), (&live.0, &live.1));
        assert!(live.2 * 2 < all.2, "{} and {} bytes a page", live.2, all.2);
    }

    /// Number of pages that moved to another plane while others were written, and of copied pages.
    fn strayed(copies_stay: bool) -> (u32, u64) {
        let config = Config {
            over_provision: 0.4,
            copies_stay,
            ..Config::default()
        };
        let (flash, options) = (Box::new(small::chip(small::GEOMETRY)), Options::default());
        let opened = Device::open(flash, Kind::Plain, config, &options, Nanos::ZERO);
        let mut device = opened.unwrap();
        let (mut now, mut strayed, mut dice) = (device.recovered_at(), 0, Dice(1));
        let pages = device.pages() * 3 / 4;
        let mut planes = vec![None; pages as usize];
        for _ in 0..6_000 {
            let at = dice.pick(pages);
            let tx = device.begin(now).unwrap();
            device.write(now, tx, Lpn(at), &[]).unwrap();
            now = device.commit(now, tx).unwrap().expect("nothing is grouped");
            for page in 0..pages {
                let ppn = device.ftl().slot(Lpn(page)).ppn();
                let plane = ppn.map(|ppn| {
                    let geometry = device.geometry();
                    geometry.plane_of(geometry.block_of(ppn))
                });
                let was = std::mem::replace(&mut planes[page as usize], plane);
                strayed += u32::from(page != at && was != plane);
            }
        }
        (strayed, device.stats().relocated)
    }

    #[test]
    fn copies_that_stay_are_in_the_plane_of_what_they_copy_if_it_has_room() {
        let (anywhere, copied_anywhere) = strayed(false);
        assert!(u64::from(anywhere) * 3 > copied_anywhere);
        let (strayed, copied) = strayed(true);
        assert!(u64::from(strayed) * 20 < copied, "{strayed} of {copied}");
    }

    #[test]
    fn on_one_plane_the_time_of_all_operations_is_the_time_that_passes() {
        // A copy within a plane is not transferred, but the summary of a block filled by such
        // copies is.
        let across = time_of_all_operations(false);
        assert!(time_of_all_operations(true) < across);
    }

    fn time_of_all_operations(copy_back: bool) -> u64 {
        let geometry = Geometry {
            channels: 1,
            page_bytes: 512,
            cell: Cell::Mlc,
            ..small::GEOMETRY
        };
        let timing = Timing {
            read: Nanos(25_000),
            program: Nanos(200_000),
            reprogram: Nanos(190_000),
            erase: Nanos(1_500_000),
            transfer_ps_per_byte: 100_000,
        };
        let chip = Chip::new(geometry, timing, 64);
        let flash = Box::new(if copy_back {
            chip.with_copy_back()
        } else {
            chip
        });
        let config = Config {
            over_provision: 0.4,
            ..Config::default()
        };
        let options = Options::default();
        let mut device = Device::open(flash, Kind::Plain, config, &options, Nanos::ZERO).unwrap();
        let pages = device.pages();
        let started = device.recovered_at();
        let before = device.stats().clone();
        let mut now = started;
        for n in 0..pages * 6 {
            let tx = device.begin(now).unwrap();
            let at = Lpn(n.wrapping_mul(2_654_435_761) % pages);
            device.write(now, tx, at, &[1]).unwrap();
            now = device.commit(now, tx).unwrap().expect("nothing is grouped");
            now = device.read(now, None, at).unwrap().0;
        }
        let stats = device.stats();
        assert!(stats.relocated > 0 && stats.summaries > 0, "{stats:?}");
        let busy = |stats: &Stats| {
            let each = Cause::ALL.map(|cause| stats.busy(cause, &timing, &geometry).0);
            each.into_iter().sum::<u64>()
        };
        assert_eq!(busy(stats) - busy(&before), now.since(started).0);
        let gc = stats.gc_busy(&timing, &geometry);
        let erases = stats.count(Operation::Erase, Cause::Gc);
        assert!(
            erases > stats.collections,
            "blocks are erased when first used"
        );
        let first_uses = (erases - stats.collections) * timing.erase.0;
        let all = stats.busy(Cause::Gc, &timing, &geometry);
        assert_eq!(gc.0 + first_uses, all.0);
        now.since(started).0
    }
}
