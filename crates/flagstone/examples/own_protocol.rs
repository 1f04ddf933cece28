//! A commit protocol of one's own, outside of the library: shadow paging.
//!
//! Idea        A write goes to a page that no table names. At commit the mapping table is changed,
//!             and its changed parts and a new root are written: that root is the commit.
//! Cost        k programs for k pages, one for each changed part of the table, and one root.
//!             Recovery reads the root and the table, and no data page.
//!
//! Invariants  1. The mapping table holds committed versions only.
//!             2. A root is written after every page that its table names is durable.
//!             3. A block is erased after a root that names none of its pages is durable.
//!
//! Recovery    the newest root says what is committed; all else is garbage
//!
//! A protocol is two traits. [`Protocol`] has what the host asks for. [`Owner`] has what the
//! garbage collector tells. [`Device::open_with`] puts both on a flash. The program cuts the power
//! at many operations of a small workload and checks that every transaction is whole or absent. The
//! same protocol with a mistake is the control: it writes the root without waiting for the pages.
//!
//! `cargo run --example own_protocol`

use flagstone::commit::{Content, Found, Info, Protocol, Recovered, Taken, Write};
use flagstone::ftl::{Ftl, FtlError, Mounted, Moving, Owner, Slot, Stream, Victim, Written};
use flagstone::prelude::*;
use std::collections::BTreeMap;

const INFO: Info = {
    let mut info = Info::new("shadow", "a new root for each commit");
    info.isolation = Isolation::NoPageConflict;
    info.format.persist_map = true;
    info
};

/// What a live transaction has written.
#[derive(Clone, Default)]
struct Writes {
    versions: BTreeMap<Lpn, Slot>,
    /// When the last of its programs is done.
    done: Nanos,
}

#[derive(Clone)]
struct Shadow {
    live: BTreeMap<TxId, Writes>,
    /// When all pages that the mapping table names are programmed.
    written: Nanos,
    last_tx: TxId,
    /// The mistake of the control: roots are written without waiting for the pages.
    hasty: bool,
}

impl Shadow {
    fn recover(ftl: &mut Ftl, mounted: Mounted, hasty: bool) -> Result<Recovered, FtlError> {
        // The table has been read already. Each page that it names is live.
        ftl.revive_mapped()?;
        ftl.finish_mount();
        let last_tx = match mounted.blob.try_into() {
            Ok(bytes) => TxId(u64::from_le_bytes(bytes)),
            Err(_) if !mounted.has_root => TxId(0),
            Err(_) => return Err(FtlError::Foreign("its root is not a shadow root".into())),
        };
        let protocol = Shadow {
            live: BTreeMap::new(),
            written: Nanos::ZERO,
            last_tx,
            hasty,
        };
        Ok(Recovered::new(Box::new(protocol), last_tx, mounted.done))
    }

    /// Writes the table and a root, after the pages that the table names (invariant 2).
    fn root(&self, ftl: &mut Ftl, now: Nanos) -> Result<Nanos, FtlError> {
        let now = if self.hasty {
            now
        } else {
            ftl.sync(now, self.written)?
        };
        ftl.checkpoint(now, self.last_tx.0.to_le_bytes().to_vec())
    }
}

impl Protocol for Shadow {
    fn begin(&mut self, _: &mut Ftl, _: Nanos, tx: TxId) -> Result<(), FtlError> {
        self.live.insert(tx, Writes::default());
        self.last_tx = tx;
        Ok(())
    }

    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        let mut done = now;
        let slot = match write.content {
            Content::Trim => Slot::Empty,
            Content::Data(bytes) => {
                let (to, page) = ((Stream::Host, None), (write.content.kind(), write.at, None));
                let to = ftl.append(now, to, page, &[], bytes, write.cause)?;
                done = to.done;
                Slot::Page(to.at)
            }
        };
        let writes = self
            .live
            .get_mut(&tx)
            .expect("the device knows who is live");
        writes.done = writes.done.max(done);
        let before = writes.versions.insert(write.at, slot);
        if let Some(page) = before.and_then(Slot::ppn) {
            ftl.kill(page);
        }
        // The host goes on at once. Only the commit waits for the program.
        Ok(Taken::new(now, done))
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        let writes = tx.and_then(|tx| self.live.get(&tx));
        let own = writes.and_then(|writes| writes.versions.get(&at));
        own.copied().unwrap_or_else(|| ftl.slot(at)).into()
    }

    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        let writes = self.live.remove(&tx).expect("the device knows who is live");
        self.written = self.written.max(writes.done);
        for (at, slot) in writes.versions {
            if let Some(page) = ftl.set_slot(at, slot).ppn() {
                ftl.kill(page);
            }
        }
        self.root(ftl, now).map(Some)
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        let writes = self.live.remove(&tx).expect("the device knows who is live");
        for page in writes.versions.into_values().filter_map(Slot::ppn) {
            ftl.kill(page);
        }
        Ok(now)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let versions: usize = self.live.values().map(|writes| writes.versions.len()).sum();
        vec![(
            "live_versions",
            (versions * size_of::<(Lpn, Slot)>()) as u64,
        )]
    }
}

impl Owner for Shadow {
    fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Written) {
        let header = page.header;
        let (old, new) = (Slot::Page(page.from), Slot::Page(to.at));
        if ftl.slot(header.lpn) == old {
            ftl.move_slot(header.lpn, new);
            self.written = self.written.max(to.done);
            return;
        }
        let all = self.live.values_mut();
        let holder = all.filter(|writes| writes.versions.get(&header.lpn) == Some(&old));
        for writes in holder {
            writes.versions.insert(header.lpn, new);
            writes.done = writes.done.max(to.done);
        }
    }

    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, _: Victim) -> Result<Nanos, FtlError> {
        self.root(ftl, now) // invariant 3
    }
}

/// A device of 4 MiB. The collector has work soon.
fn chip() -> Chip {
    let geometry = Geometry {
        blocks_per_plane: 32,
        pages_per_block: 8,
        ..Geometry::default()
    };
    Chip::new(geometry, Timing::default(), 64)
}

fn open(flash: impl Flash + 'static, hasty: bool) -> Result<Device, DeviceError> {
    let mut config = Config::default();
    config.over_provision = 0.0;
    config.logical_pages = Some(PAGES);
    let recover = |ftl: &mut Ftl, mounted| Shadow::recover(ftl, mounted, hasty);
    let options = Options::default();
    Device::open_with(
        Box::new(flash),
        &INFO,
        recover,
        config,
        &options,
        Nanos::ZERO,
    )
}

const PAGES: u32 = 400;
const TRANSACTIONS: u8 = 150;

/// The pages of transaction `n`: each takes the number of the transaction that wrote it last.
fn pages(n: u8) -> impl Iterator<Item = u32> {
    (0..12).map(move |i| (u32::from(n) * 37 + i * 31) % PAGES)
}

/// The contents of the pages after this many transactions.
fn after(transactions: u8) -> Vec<Option<u8>> {
    let mut all = vec![None; PAGES as usize];
    for n in 0..transactions {
        pages(n).for_each(|page| all[page as usize] = Some(n));
    }
    all
}

fn work(device: &mut Device, acknowledged: &mut u8) -> Result<(), DeviceError> {
    let mut now = device.recovered_at();
    for n in 0..TRANSACTIONS {
        let tx = device.begin(now)?;
        for page in pages(n) {
            now = device.write(now, tx, Lpn(page), &[n])?.next;
        }
        now = device.commit(now, tx)?.expect("a root is written at once");
        *acknowledged += 1;
    }
    Ok(())
}

/// Cuts the power at an operation and restarts. Returns whether the contents are consistent, or
/// `None` if the workload ended before the cut.
fn cut(at: u64, hasty: bool) -> Result<Option<bool>, DeviceError> {
    let (dice, torn) = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15), at.is_multiple_of(2));
    let power = PowerCut::new(chip()).arm(Cut { at, dice, torn });
    let flash = Shared::new(power);
    let mut device = open(flash.clone(), hasty)?;
    let mut acknowledged = 0;
    match work(&mut device, &mut acknowledged) {
        Ok(()) => return Ok(None),
        Err(error) if error.is_power_loss() => drop(device),
        Err(error) => return Err(error),
    }
    // A page that cannot be read is a loss, too.
    let mut device = open(flash.take().into_chip(), hasty)?;
    let now = device.recovered_at();
    let mut found = Vec::new();
    for page in 0..PAGES {
        match device.read(now, None, Lpn(page)) {
            Ok((_, bytes)) => found.push(bytes.and_then(|bytes| bytes.first().copied())),
            Err(DeviceError::Unreadable(_)) => return Ok(Some(false)),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(
        found == after(acknowledged) || found == after(acknowledged + 1),
    ))
}

fn main() -> Result<(), DeviceError> {
    let mut device = open(chip(), false)?;
    work(&mut device, &mut 0)?;
    let (host, stats) = (*device.request_stats(), device.stats());
    let programs = stats.total(Operation::Program) as f64 / host.committed as f64;
    let (name, collections) = (device.info().name, stats.collections);
    println!("{name}: {programs:.1} programs a transaction, {collections} collections");
    assert!(collections > 0);

    for hasty in [false, true] {
        let (mut cuts, mut losses) = (0, 0);
        // Every 13th operation, which is enough to meet all phases of a commit and of a collection.
        for at in (0..).step_by(13) {
            match cut(at, hasty)? {
                Some(whole) => losses += u32::from(!whole),
                None => break,
            }
            cuts += 1;
        }
        let form = if hasty {
            "in a hurry"
        } else {
            "as it should be"
        };
        println!("{name}, {form}: {cuts} power cuts, {losses} losses");
        assert!(cuts > 100);
        assert_eq!(losses > 0, hasty);
    }
    Ok(())
}
