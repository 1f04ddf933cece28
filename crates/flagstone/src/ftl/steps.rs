//! Incremental collection: a device that works ahead moves a few pages for each page that the host
//! writes, so that no request waits for a whole collection.
//!
//! One block at a time is collected this way. Its copies become durable with the host's waits, and
//! its erase follows at the begin of a later transaction. If the host is faster, free blocks run
//! short, and whole collections follow as on any other device.

use super::collector::choose;
use super::moves::{begin, finish, give_back, move_live};
use super::{Cause, Ftl, FtlError, Owner, Victim};
use crate::units::{Nanos, Pbn};

/// A block in incremental collection.
#[derive(Debug, Clone, Copy)]
pub(super) struct InSteps {
    pub(super) victim: Pbn,
    /// The next page to examine.
    pub(super) next: u32,
    /// When the copies are durable.
    pub(super) durable: Nanos,
    /// Credit per page that the host writes, and cost of a copied page.
    pub(super) earns: u32,
    pub(super) costs: u32,
    /// The accumulated credit.
    pub(super) credit: u32,
}

impl Ftl {
    /// The collector works when fewer blocks than this are free. Higher if it works ahead.
    pub fn collects_below(&self) -> u32 {
        // The host may open a block on each plane at the same time.
        let ahead = if self.config.works_ahead {
            self.geometry.planes() + 1
        } else {
            0
        };
        self.collector.threshold_blocks + ahead
    }
}

/// Moves some pages, before the host writes one.
#[inline]
pub(crate) fn step(ftl: &mut Ftl, owner: &mut dyn Owner, now: Nanos) -> Result<(), FtlError> {
    match ftl.collector.in_steps {
        None if !ftl.config.works_ahead || ftl.blocks.writable() >= ftl.collects_below() => Ok(()),
        in_steps => step_slowly(ftl, owner, now, in_steps),
    }
}

/// Adds the credit for a page of the host, and moves as many pages as the credit pays for. Chooses
/// a block if none is in incremental collection.
fn step_slowly(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    in_steps: Option<InSteps>,
) -> Result<(), FtlError> {
    let Some(mut work) = in_steps.or_else(|| start(ftl, owner)) else {
        return Ok(());
    };
    work.credit += work.earns;
    let most = work.credit / work.costs;
    work.credit %= work.costs;
    ftl.collector.in_steps = Some(work);
    if most > 0 && work.next < ftl.data_pages {
        advance(ftl, owner, now, &mut work, most)?;
    }
    Ok(())
}

/// Chooses a block to collect, if the owner allows steps. Its copies are to be over before the host
/// has written as many pages as the block will free.
fn start(ftl: &mut Ftl, owner: &dyn Owner) -> Option<InSteps> {
    if !ftl.format.in_steps {
        return None;
    }
    let victim = choose(ftl).filter(|&victim| owner.is_worth(ftl, victim))?;
    let live = ftl.blocks.live_in(victim);
    begin(ftl, victim);
    Some(InSteps {
        victim,
        next: 0,
        durable: Nanos::ZERO,
        // A quarter faster than the host uses up what the collection gains.
        earns: 5 * live,
        costs: 4 * (ftl.data_pages - live).max(1),
        credit: 0,
    })
}

/// Moves at most `most` pages. Returns `false` if one cannot be read: the block is stuck then, and
/// no longer collected.
fn advance(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    work: &mut InSteps,
    most: u32,
) -> Result<bool, FtlError> {
    let victim = Victim {
        block: work.victim,
        prepared: owner.prepare(ftl, now, work.victim)?,
        cause: Cause::Gc,
    };
    let moved = move_live(ftl, owner, victim, work.next, most)?;
    work.next = moved.next;
    work.durable = work.durable.max(victim.prepared).max(moved.durable);
    ftl.collector.in_steps = (!moved.lost).then_some(*work);
    Ok(!moved.lost)
}

/// Limits of collection while the host is idle.
///
/// ```
/// use flagstone::ftl::Leisure;
/// use flagstone::nand::small::{GEOMETRY, chip};
/// use flagstone::prelude::*;
///
/// let mut config = Config::small(500, None);
/// config.works_ahead = true;
/// let (flash, options) = (Box::new(chip(GEOMETRY)), Options::default());
/// let mut device = Device::open(flash, Kind::Seal, config, &options, Nanos::ZERO)?;
/// let mut now = device.recovered_at();
/// for page in (0..500).chain((0..500).step_by(2)).chain((0..500).step_by(3)) {
///     let tx = device.begin(now)?;
///     device.write(now, tx, Lpn(page), b"data")?;
///     now = device.commit(now, tx)?.expect("it is alone");
/// }
/// // Until 20 more blocks are free: blocks with at most 6 live pages, and at most 8 pages.
/// let moved = device.collect_ahead(now, Leisure::new(20, 6, 8))?;
/// assert!((1..=8).contains(&moved));
/// # Ok::<(), DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Leisure {
    /// Target number of free blocks, beyond those that the collector keeps free anyway.
    pub blocks: u32,
    /// Maximum number of live pages in a block that is worth collecting: these may be overwritten
    /// before its room is needed.
    pub live: u32,
    /// Maximum number of pages to move.
    pub pages: u32,
}

impl Leisure {
    /// Creates limits from the three values.
    pub fn new(blocks: u32, live: u32, pages: u32) -> Leisure {
        Leisure {
            blocks,
            live,
            pages,
        }
    }
}

/// Moves pages while the host is idle. Returns the number of moved pages: 0 if nothing is left to
/// do.
pub(crate) fn collect_ahead(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
    leisure: Leisure,
) -> Result<u32, FtlError> {
    let Leisure {
        blocks,
        live,
        pages,
    } = leisure;
    let free = ftl.collects_below().saturating_add(blocks);
    let is_worth = |ftl: &Ftl| {
        ftl.blocks
            .fewest_live()
            .is_some_and(|fewest| fewest <= live)
    };
    let mut moved = 0;
    while moved < pages {
        let work = match ftl.collector.in_steps {
            None if ftl.config.works_ahead && ftl.blocks.writable() < free && is_worth(ftl) => {
                start(ftl, owner)
            }
            in_steps => in_steps,
        };
        let Some(mut work) = work else {
            break;
        };
        let before = ftl.blocks.live_in(work.victim);
        ftl.collector.in_steps = Some(work);
        let goes_on = advance(ftl, owner, now, &mut work, pages - moved)?;
        moved += before - ftl.blocks.live_in(work.victim);
        if goes_on && work.next >= ftl.data_pages {
            end(ftl, owner, now)?;
        }
    }
    Ok(moved)
}

/// Erases the block in incremental collection if its pages have moved.
#[inline]
pub(crate) fn finish_steps(
    ftl: &mut Ftl,
    owner: &mut dyn Owner,
    now: Nanos,
) -> Result<(), FtlError> {
    match ftl.collector.in_steps {
        Some(work) if ftl.blocks.live_in(work.victim) == 0 => end(ftl, owner, now),
        _ => Ok(()),
    }
}

/// Completes an incremental collection at once, if one is in progress.
pub(super) fn end(ftl: &mut Ftl, owner: &mut dyn Owner, now: Nanos) -> Result<(), FtlError> {
    let Some(mut work) = ftl.collector.in_steps else {
        return Ok(());
    };
    if advance(ftl, owner, now, &mut work, u32::MAX)? {
        ftl.collector.in_steps = None;
        ftl.stats.collections += 1;
        let start = work.durable.max(now);
        let victim = Victim {
            block: work.victim,
            prepared: now,
            cause: Cause::Gc,
        };
        let done =
            finish(ftl, owner, victim, work.durable).inspect_err(|_| give_back(ftl, work.victim));
        ftl.stats.gc_ns += done?.since(start);
    }
    Ok(())
}

/// Makes a block in incremental collection a candidate again: some of its pages must stay.
pub(super) fn give_up(ftl: &mut Ftl, block: Pbn) {
    let work = ftl.collector.in_steps.take();
    let work = work.filter(|work| work.victim == block);
    let work = work.unwrap_or_else(|| panic!("block {block} is collected at once"));
    ftl.collector.copied = ftl.collector.copied.max(work.durable);
    give_back(ftl, block);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::{Config, Format, PageKind, Slot, Stream, collect};
    use crate::nand::{Change, PowerCut, Shared, small};
    use crate::units::Lpn;

    /// Notes which programs a cut could undo when an erase is next.
    struct Watcher {
        flash: Shared<PowerCut>,
        in_flight: Option<Vec<Change>>,
    }

    impl Owner for Watcher {
        fn before_erase(&mut self, _: &mut Ftl, now: Nanos, _: Victim) -> Result<Nanos, FtlError> {
            self.in_flight = Some(self.flash.look(PowerCut::in_flight));
            Ok(now)
        }
    }

    /// Fails if the copies of a collection that was given up for a snapshot may still be lost when
    /// their block is erased.
    #[test]
    fn copies_of_a_collection_that_was_given_up_are_durable_before_the_erase() {
        let flash = small::flash();
        let format = Format {
            in_steps: true,
            ..Format::NONE
        };
        let config = Config {
            works_ahead: true,
            ..Config::small(200, None)
        };
        let mounted = Ftl::mount(Box::new(flash.clone()), config, format, Nanos::ZERO);
        let (mut ftl, mut now) = mounted
            .map(|(ftl, mounted)| (ftl, mounted.done))
            .expect("it is blank");
        ftl.finish_mount();
        for lpn in (0..20).map(Lpn) {
            let (to, page) = ((Stream::Host, None), (PageKind::Data, lpn, None));
            let written = ftl.append(now, to, page, &[], b"page", Cause::Host);
            let written = written.expect("there is room");
            ftl.set_slot(lpn, Slot::Page(written.at));
            now = ftl.sync(now, written.done).expect("there is no cut");
        }
        let drop_page = |ftl: &mut Ftl, lpn| {
            let old = ftl.set_slot(lpn, Slot::Empty).ppn();
            ftl.kill(old.expect("it was written"));
        };
        // Two pages of the victim stay.
        let block_of = |ftl: &Ftl, lpn| ftl.slot(lpn).ppn().map(|at| ftl.geometry.block_of(at));
        let victim = block_of(&ftl, Lpn(0)).expect("it was written");
        let inside: Vec<Lpn> = (0..20)
            .map(Lpn)
            .filter(|&lpn| block_of(&ftl, lpn) == Some(victim))
            .collect();
        inside[2..].iter().for_each(|&lpn| drop_page(&mut ftl, lpn));
        let mut owner = Watcher {
            flash,
            in_flight: None,
        };
        let blocks = ftl.blocks.len();
        let moved = collect_ahead(&mut ftl, &mut owner, now, Leisure::new(blocks, 8, 1));
        assert_eq!(moved, Ok(1));
        let copy = ftl.slot(inside[0]).ppn().expect("it has moved");
        assert_ne!(ftl.geometry.block_of(copy), victim);
        // The snapshot needs the other page.
        let snapshot = ftl.snapshots.take();
        drop_page(&mut ftl, inside[1]);
        ftl.end_snapshot(snapshot);
        collect(&mut ftl, &mut owner, now, victim).expect("there is room");
        let in_flight = owner.in_flight.expect("it is erased");
        assert!(!in_flight.contains(&Change::Program(copy)), "{in_flight:?}");
    }
}
