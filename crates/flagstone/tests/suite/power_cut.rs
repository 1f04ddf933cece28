//! What a power cut leaves of the operations in flight, and of pages that share cells with them.

use flagstone::nand::{
    Aim, Cell, Change, Chip, Cut, Flash, FlashError, Geometry, Left, Pairing, PowerCut, Timing,
    small,
};
use flagstone::units::{Nanos, Pbn, Ppn};

/// A safe page, a page in flight in each of two blocks, and the erase of the first block.
fn work(power: &mut PowerCut) -> Result<(), FlashError> {
    let page = |block: u32, at: u32| small::GEOMETRY.page(Pbn(block), at);
    let done = power.program(Nanos::ZERO, page(2, 0), b"safe", &[])?;
    let now = power.sync(done, done)?;
    power.program(now, page(2, 1), b"one", &[])?;
    power.program(now, page(3, 0), b"two", &[])?;
    power.erase(now, Pbn(2))?;
    power.program(now, page(3, 1), b"three", &[]).map(|_| ())
}

fn cut(dice: u64, torn: bool) -> PowerCut {
    let cut = Cut { at: 4, dice, torn };
    let power = PowerCut::new(small::chip(small::GEOMETRY));
    let mut power = power.arm(cut).aim(Aim::Exact).keeping(1);
    assert_eq!(work(&mut power), Err(FlashError::PowerLost));
    power
}

fn contents(chip: &Chip) -> Vec<bool> {
    let pages = [(2, 0), (2, 1), (3, 0), (3, 1)];
    let at = |(block, page)| small::GEOMETRY.page(Pbn(block), page);
    pages.map(|place| chip.is_programmed(at(place))).to_vec()
}

#[test]
fn every_landing_is_there_once() {
    let power = cut(0, false);
    let landings = power.moments()[0].landings(100, false);
    assert!(landings.whole);
    let mut found = Vec::new();
    for (dice, torn) in landings.each {
        let landed = contents(&power.moments()[0].land(dice, torn));
        // A cut with these dice leaves the same contents.
        assert_eq!(landed, contents(&cut(dice, torn).into_chip()), "{dice:x}");
        found.push(landed);
    }
    // The erase takes both pages of its block, whether or not the second one has landed. So
    // block 2 has three outcomes, and the two pages of block 3 have four.
    assert_eq!(found.len(), 12);
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 12);
}

#[test]
fn each_operation_that_can_be_torn_is_torn_once() {
    let power = cut(0, false);
    let landings = power.moments()[0].landings(100, true).each;
    let torn = |wanted: u64| {
        let all = landings.iter().filter(|(_, torn)| *torn);
        all.filter(|(dice, _)| dice & 0xffff_ffff_ffff == wanted)
            .count()
    };
    // If nothing has landed: either page of block 3, or the erase. If all has: none.
    assert_eq!((torn(0), torn(0b1111)), (3, 0));
    let pages = |dice| {
        let chip = power.moments()[0].land(dice, true);
        let damaged = (0..small::GEOMETRY.pages()).map(|at| chip.damage(Ppn(at)).is_some());
        damaged.collect::<Vec<bool>>()
    };
    assert_ne!(pages(0), pages(1 << 48));
}

#[test]
fn what_somebody_else_knows_to_have_landed_is_left() {
    let mut power = PowerCut::new(small::chip(small::GEOMETRY));
    work(&mut power).expect("no cut is armed");
    let at = |block, page| small::GEOMETRY.page(Pbn(block), page);
    let ops = [
        Change::Program(at(2, 1)),
        Change::Program(at(3, 0)),
        Change::Erase(Pbn(2)),
        Change::Program(at(3, 1)),
    ];
    assert_eq!(power.in_flight(), ops);
    let (all, none, torn) = (Left::All, Left::Nothing, Left::Torn);
    let left = |left: [Left; 4]| power.clone().pull_as(&left);
    assert_eq!(contents(&left([none; 4])), [true, false, false, false]);
    assert_eq!(contents(&left([all; 4])), [false, false, true, true]);
    assert_eq!(
        contents(&left([none, all, none, none])),
        [true, false, true, false]
    );
    let chip = left([all, none, none, torn]);
    assert_eq!(contents(&chip), [true, true, false, true]);
    let damaged = [(2, 1), (3, 0), (3, 1)].map(|(b, p)| chip.damage(at(b, p)).is_some());
    assert_eq!(damaged, [false, false, true]);
}

#[test]
fn what_has_not_landed_can_be_programmed_then() {
    let mut power = PowerCut::new(small::chip(small::GEOMETRY));
    work(&mut power).expect("no cut is armed");
    let mut chip = power.pull_as(&[Left::All, Left::Nothing, Left::Nothing, Left::Nothing]);
    let at = small::GEOMETRY.page(Pbn(3), 0);
    chip.program(Nanos::ZERO, at, &[1], &[])
        .expect("it is there");
}

#[test]
fn of_too_many_landings_a_sample_is_taken() {
    let power = cut(0, false);
    let some = power.moments()[0].landings(5, false);
    assert_eq!((some.each.len(), some.whole), (5, false));
}

fn power(pairing: Pairing) -> PowerCut {
    let geometry = Geometry {
        pages_per_block: 6,
        cell: Cell::Mlc,
        pairing,
        ..small::GEOMETRY
    };
    PowerCut::new(Chip::new(geometry, Timing::default(), 16))
}

/// Programs pages and waits for each but the last, whose program is cut with these dice.
/// Returns the pages that are unreadable afterwards.
fn lost(pairing: Pairing, pages: u32, dice: u64) -> Vec<u32> {
    let mut flash = power(pairing).arm(Cut {
        at: u64::from(pages) - 1,
        dice,
        torn: false,
    });
    let mut now = Nanos::ZERO;
    for page in 0..pages {
        match flash.program(now, Ppn(page), b"page", &[]) {
            Ok(done) => now = flash.sync(now, done).unwrap(),
            Err(error) => assert_eq!((error, page), (FlashError::PowerLost, pages - 1)),
        }
    }
    let mut chip = flash.into_chip();
    let reads = |page: &u32| chip.read(now, Ppn(*page), &mut [], &mut []).is_err();
    (0..pages).filter(reads).collect()
}

#[test]
fn a_cut_program_destroys_the_pages_below_it_and_no_others() {
    for (pairing, pages, below) in [
        (Pairing::Distance3, 3, vec![0]),
        (Pairing::Distance3, 5, vec![1]),
        (Pairing::Tlc, 5, vec![0, 2]),
        // A lower page has no page below it.
        (Pairing::Distance3, 4, vec![]),
        (Pairing::None, 3, vec![]),
    ] {
        let all: Vec<Vec<u32>> = (0..64).map(|dice| lost(pairing, pages, dice)).collect();
        assert!(
            all.contains(&vec![]),
            "{pairing} {pages}: a program may land"
        );
        assert!(all.contains(&below), "{pairing} {pages}: {below:?}");
        assert!(all.iter().all(|lost| lost.is_empty() || *lost == below));
    }
}

#[test]
fn a_program_that_has_not_begun_destroys_nothing() {
    for dice in 0..64 {
        let mut flash = power(Pairing::Distance3);
        let done = flash.program(Nanos::ZERO, Ppn(0), b"safe", &[]).unwrap();
        let now = flash.sync(done, done).unwrap();
        flash.program(now, Ppn(1), b"other", &[]).unwrap();
        let later = now + Nanos::from_micros(1_000_000);
        let mut flash = flash.arm(Cut {
            at: 1,
            dice,
            torn: false,
        });
        flash.program(later, Ppn(2), b"upper", &[]).unwrap();
        let cut = flash.program(now, Ppn(6), b"elsewhere", &[]);
        assert_eq!(cut, Err(FlashError::PowerLost));
        let mut chip = flash.into_chip();
        assert!(chip.read(now, Ppn(0), &mut [], &mut []).is_ok(), "{dice}");
    }
}
