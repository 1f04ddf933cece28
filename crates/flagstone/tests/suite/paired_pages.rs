//! Pages left blank for pages that share cells. Each test of what closed pairs prevent has a
//! control: the same where pairs are ignored.

use flagstone::ftl::{
    Cause, Config, Format, Ftl, FtlError, PageKind, PairedPages, Stream, Written,
};
use flagstone::nand::{self, Cell, Cut, FlashError, Geometry, Pairing, PowerCut, Shared, small};
use flagstone::units::{Lpn, Nanos, Ppn};

const FORMAT: Format = {
    let mut format = Format::NONE;
    (format.persist_map, format.logs) = (true, 1);
    format
};

fn geometry(pairing: Pairing, pages_per_block: u32) -> Geometry {
    Geometry {
        channels: 1,
        blocks_per_plane: 40,
        pages_per_block,
        page_bytes: 512,
        cell: Cell::Mlc,
        pairing,
        ..small::GEOMETRY
    }
}

fn config(paired_pages: PairedPages) -> Config {
    let mut config = Config::small(30, None);
    config.paired_pages = paired_pages;
    config
}

type Flash = Shared<PowerCut>;

fn mount(power: PowerCut, paired_pages: PairedPages) -> (Flash, Ftl) {
    let flash = Shared::new(power);
    let config = config(paired_pages);
    let mounted = Ftl::mount(Box::new(flash.clone()), config, FORMAT, Nanos::ZERO);
    let (mut ftl, _) = mounted.expect("the device suits");
    ftl.finish_mount();
    (flash, ftl)
}

fn blank(pairing: Pairing, pages_per_block: u32, way: PairedPages) -> (Flash, Ftl) {
    let chip = small::chip(geometry(pairing, pages_per_block));
    mount(PowerCut::new(chip), way)
}

fn append(ftl: &mut Ftl, now: Nanos, lpn: u32) -> Result<Written, FtlError> {
    let page = (PageKind::Data, Lpn(lpn), None);
    ftl.append(now, (Stream::Host, None), page, &[], b"data", Cause::Host)
}

/// The places in their blocks of pages that are written one after the other, with a wait after
/// those that `waits` names.
fn places(ftl: &mut Ftl, count: u32, waits: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut now = Nanos::ZERO;
    let pages = (0..count).map(|n| {
        let written = append(ftl, now, n).expect("there is room");
        if waits(n) {
            now = ftl.sync(now, written.done).expect("the power is on");
        }
        ftl.geometry().page_in_block(written.at)
    });
    pages.collect()
}

#[test]
fn a_wait_leaves_out_the_pages_above_those_that_it_covers() {
    let of = |pairing, pages, way, waits: fn(u32) -> bool| {
        let (_, mut ftl) = blank(pairing, pages, way);
        places(&mut ftl, 5, waits)
    };
    use PairedPages::{Closed, Ignored, Slc};
    use Pairing::{Distance3, Distance6, Tlc};
    let (never, always) = (|_| false, |_| true);
    assert_eq!(of(Distance3, 12, Ignored, always), [0, 1, 2, 3, 4]);
    assert_eq!(of(Distance3, 12, Closed, never), [0, 1, 2, 3, 4]);
    assert_eq!(of(Distance3, 12, Closed, always), [0, 1, 3, 5, 7]);
    assert_eq!(of(Distance3, 12, Slc, never), [0, 1, 3, 5, 7]);
    // After 0, 1, 2 and 3: page 4 is above 1, and 6 above 3.
    assert_eq!(of(Distance3, 12, Closed, |n| n == 3), [0, 1, 2, 3, 5]);
    assert_eq!(of(Distance6, 16, Closed, always), [0, 1, 2, 3, 6]);
    assert_eq!(of(Tlc, 18, Closed, always), [0, 1, 3, 6, 9]);
    // After page 0: 2 and 5 are above it.
    assert_eq!(of(Tlc, 18, Closed, |n| n == 0), [0, 1, 3, 4, 6]);
}

#[test]
fn the_partner_of_the_summary_page_is_left_out() {
    let (_, mut ftl) = blank(Pairing::Distance3, 8, PairedPages::Closed);
    // Page 7 is the summary, above page 5.
    assert_eq!(places(&mut ftl, 7, |_| false), [0, 1, 2, 3, 4, 6, 0]);
    assert_eq!((ftl.stats().left_out, ftl.stats().summaries), (1, 1));
    let (_, mut ftl) = blank(Pairing::Distance3, 8, PairedPages::Ignored);
    assert_eq!(places(&mut ftl, 8, |_| false), [0, 1, 2, 3, 4, 5, 6, 0]);
}

#[test]
fn a_wait_for_a_page_waits_for_the_program_above_it() {
    for (way, closes) in [(PairedPages::Closed, true), (PairedPages::Ignored, false)] {
        for ends in [false, true] {
            let (_, mut ftl) = blank(Pairing::Distance3, 12, way);
            let now = Nanos::ZERO;
            let written: Vec<Written> = (0..3)
                .map(|lpn| append(&mut ftl, now, lpn).expect("there is room"))
                .collect();
            if ends {
                ftl.end_block(ftl.geometry().block_of(written[0].at));
            }
            // Page 2 is above page 0.
            let end = ftl.sync(now, written[0].done).expect("the power is on");
            assert_eq!(end == written[2].done, closes, "{way} {ends}");
            assert_eq!(end == written[0].done, !closes, "{way} {ends}");
        }
    }
}

#[test]
fn logs_and_roots_take_lower_pages_only() {
    let (_, mut ftl) = blank(Pairing::Distance3, 12, PairedPages::Closed);
    let mut now = Nanos::ZERO;
    let mut places = Vec::new();
    for byte in 0..4 {
        let page = ftl.log(now, 0, &[byte]).expect("there is room");
        places.push(ftl.geometry().page_in_block(page.at));
        now = ftl.sync(now, page.done).expect("the power is on");
    }
    assert_eq!(places, [0, 1, 3, 5]);
    ftl.checkpoint(now, b"blob".to_vec())
        .expect("there is room");
    let flash = ftl.into_flash();
    let mounted = Ftl::mount(flash, config(PairedPages::Closed), FORMAT, Nanos::ZERO);
    let (ftl, mounted) = mounted.expect("it is as it was written");
    assert_eq!(
        (&mounted.blob[..], ftl.blob()),
        (&b"blob"[..], &b"blob"[..])
    );
}

#[test]
fn a_restart_finds_logs_behind_pages_that_were_left_out() {
    let (_, mut ftl) = blank(Pairing::Distance3, 12, PairedPages::Closed);
    for byte in 0..5 {
        ftl.log(Nanos::ZERO, 0, &[byte]).expect("there is room");
    }
    let flash = ftl.into_flash();
    let mounted = Ftl::mount(flash, config(PairedPages::Closed), FORMAT, Nanos::ZERO);
    let (_, mounted) = mounted.expect("it is as it was written");
    let found: Vec<u8> = mounted.logs.iter().map(|page| page.data[0]).collect();
    assert_eq!(found, [0, 1, 2, 3, 4]);
}

/// Waits for each page, and lets the power fail at the `at`th program. Says whether a page that was
/// waited for is lost.
fn loses(way: PairedPages, pairing: Pairing, (at, dice): (u64, u64)) -> bool {
    let (flash, ftl) = blank(pairing, 12, way);
    drop(ftl);
    let cut = Cut {
        at,
        dice,
        torn: true,
    };
    let (flash, mut ftl) = mount(PowerCut::new(flash.take().into_chip()).arm(cut), way);
    let (mut now, mut safe): (_, Vec<Ppn>) = (Nanos::ZERO, Vec::new());
    let failed = loop {
        let lpn = safe.len() as u32;
        let synced = append(&mut ftl, now, lpn).and_then(|written| {
            now = ftl.sync(now, written.done)?;
            Ok(written.at)
        });
        match synced {
            Ok(page) => safe.push(page),
            Err(error) => break error,
        }
    };
    assert_eq!(failed, FtlError::PowerLost);
    drop(ftl);
    let mut chip = flash.take().into_chip();
    let lost = |page: &Ppn| {
        let read = nand::Flash::read(&mut chip, now, *page, &mut [], &mut []);
        matches!(read, Err(FlashError::Uncorrectable { .. }))
    };
    safe.iter().any(lost)
}

#[test]
fn a_page_that_was_waited_for_survives_a_cut_at_any_program() {
    for pairing in [Pairing::Distance3, Pairing::Distance6, Pairing::Tlc] {
        let cuts = (0..40).flat_map(|at| (0..8).map(move |dice| (at, dice)));
        let lost = |way| cuts.clone().filter(|&cut| loses(way, pairing, cut)).count();
        assert_eq!(lost(PairedPages::Closed), 0, "{pairing}");
        assert_eq!(lost(PairedPages::Slc), 0, "{pairing}");
        assert!(lost(PairedPages::Ignored) > 20, "{pairing}");
    }
}

#[test]
fn a_way_to_deal_with_pairs_that_there_are_none_of_is_refused() {
    let refused = Ftl::capacity(
        &geometry(Pairing::None, 12),
        &config(PairedPages::Closed),
        &FORMAT,
    );
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("set its pairing"), "{error}");
    for (name, way) in PairedPages::NAMES {
        assert_eq!((name.parse(), way.to_string()), (Ok(way), name.to_string()));
    }
    assert!(
        "padded"
            .parse::<PairedPages>()
            .unwrap_err()
            .contains("closed")
    );
}

#[test]
fn a_device_is_refused_with_another_way_than_it_was_written_with() {
    let ways = PairedPages::NAMES.map(|(_, way)| way);
    for (written, opened) in ways.iter().flat_map(|&one| ways.map(|other| (one, other))) {
        for has_root in [true, false] {
            let (flash, mut ftl) = blank(Pairing::Distance3, 8, written);
            let at = append(&mut ftl, Nanos::ZERO, 0).expect("there is room").at;
            if has_root {
                ftl.checkpoint(Nanos::ZERO, Vec::new())
                    .expect("there is room");
            }
            drop(ftl);
            let chip = flash.take().into_chip();
            let power = Shared::new(PowerCut::new(chip));
            let mounted = Ftl::mount(Box::new(power), config(opened), FORMAT, Nanos::ZERO);
            // Without a root it is the scan that refuses it.
            let found = mounted.and_then(|(mut ftl, _)| {
                let block = ftl.geometry().block_of(at);
                let mut seen = 0;
                ftl.scan(Nanos::ZERO, &[block], |_, _, _| seen += 1)?;
                Ok(seen)
            });
            match (found, written == opened) {
                (Ok(1), true) => {}
                (Err(FtlError::Foreign(why)), false) => {
                    let named = [written, opened].map(|way| why.contains(&format!("`{way}`")));
                    assert_eq!(named, [true, true], "{why}");
                }
                (found, _) => panic!("{written}, {opened}, {has_root}: {found:?}"),
            }
        }
    }
}
