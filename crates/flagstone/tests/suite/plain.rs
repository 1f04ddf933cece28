//! The control, on which the costs of all protocols show: waits, counters, copies and the clock.

use crate::small_device::Small;
use flagstone::commit::{Device, Kind, Options};
use flagstone::dice::Dice;
use flagstone::ftl::{Cause, Config, Operation, Stats};
use flagstone::nand::{Cell, Chip, Geometry, Timing, small};
use flagstone::units::{Lpn, Nanos};

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
        let mut config = Config::default();
        config.over_provision = 0.4;
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
    let mut config = Config::default();
    (config.over_provision, config.copies_stay) = (0.4, copies_stay);
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
    let mut config = Config::default();
    config.over_provision = 0.4;
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
