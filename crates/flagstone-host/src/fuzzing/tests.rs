//! Runs the fuzz targets on seeded damage: valid inputs with a few bytes changed, and random bytes.
//! The targets must not panic. Some inputs must be accepted and some refused, or the damage would
//! be too small or too large.

use super::*;
use flagstone::commit::Kind;
use flagstone::dice::Dice;
use flagstone::ftl::{self, Header, PageKind, header};
use flagstone::fuzzing::{page, root, spare};
use flagstone::layout::Layout;
use flagstone::page::Page;
use flagstone::units::Lpn;
use std::collections::BTreeSet;

/// Changes or removes some bytes, or repeats a part.
fn mutate(dice: &mut Dice, valid: &[u8]) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..1 + dice.below(3) {
        if bytes.is_empty() {
            bytes.push(dice.next() as u8);
        }
        let at = dice.pick(bytes.len() as u32) as usize;
        match dice.below(6) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = dice.next() as u8,
            2 => bytes[at] = [0, 0xff, 0x7f, 0x80][dice.pick(4) as usize],
            3 => bytes.truncate(at),
            4 => bytes.insert(at, dice.next() as u8),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

/// Runs a target on valid inputs, which it must accept, on damaged ones, and on random bytes.
fn run(target: fn(&[u8]) -> bool, valid: &[Vec<u8>], rounds: u32) {
    let mut dice = Dice(17);
    let (mut taken, mut refused) = (0, 0);
    for valid in valid {
        assert!(target(valid), "{valid:x?} is valid");
        for round in 0..rounds {
            let bytes = match round % 8 {
                0 => (0..dice.below(80)).map(|_| dice.next() as u8).collect(),
                _ => mutate(&mut dice, valid),
            };
            if target(&bytes) {
                taken += 1
            } else {
                refused += 1
            }
        }
    }
    assert!(
        taken > 50 && refused > 50,
        "{taken} taken, {refused} refused"
    );
}

/// The data of all pages of one kind, from devices of every stack.
fn data_of(kind: PageKind) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for stack in Stack::all() {
        let contents = sample::contents(stack);
        let mut pages = contents.data.iter().filter(|(at, _)| {
            let spare = &contents.spare[at.index() * contents.spare_kept..];
            Header::parse(spare).is_some_and(|head| head.kind == kind)
        });
        // The last page holds the most.
        all.extend(pages.next_back().map(|(_, data)| data.to_vec()));
    }
    all
}

#[test]
fn roots() {
    let roots = data_of(PageKind::Root);
    assert!(roots.len() >= 6, "{} stacks have a root", roots.len());
    run(root, &roots, 1_000);
    // The bytes after the head of the only part.
    let mut layouts = ftl::LAYOUTS.iter();
    let is_head = |layout: &&Layout| layout.path.ends_with("::root_part");
    let head = layouts.find(is_head).expect("a part has a head").size;
    let images: Vec<Vec<u8>> = roots.iter().map(|root| root[head..].to_vec()).collect();
    run(root, &images, 1_000);
}

#[test]
fn what_protocols_keep_in_a_root() {
    let zones = [
        &[9, 0, 0, 0, 0, 0, 0, 0][..],
        &[7, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0, 0, 0, 1, 0, 0, 0],
        &[3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0],
    ];
    let compacted = vec![1, 2, 0, 0, 0, 0, 3, 0, 0, 0, 3, 1, 0x80, 2];
    run(root, &[zones.concat(), compacted], 3_000);
}

#[test]
fn log_pages_and_log_records() {
    fn log(bytes: &[u8]) -> bool {
        let parsed = flagstone::fuzzing::log(bytes);
        super::log(bytes) || parsed
    }
    let logs = data_of(PageKind::Log);
    assert!(logs.len() >= 4, "{} stacks have a log", logs.len());
    run(log, &logs, 1_000);
    let mut records = vec![25, 0, 5, 7, 0, 0, 0, 0, 0];
    records.resize(25, 0);
    records.extend([29, 0, 3, 8, 0, 0, 0, 0, 0]);
    records.resize(48, 0);
    records.extend([2, 0, b'a', b'b', b'c', b'd']);
    run(log, &[records], 4_000);
}

#[test]
fn pages_of_records() {
    let mut pages = data_of(PageKind::Data);
    // The log of the host lies in data pages as well.
    pages.retain(|bytes| Page::parse(bytes).is_ok_and(|page| page.records().count() > 0));
    assert!(pages.len() >= 6, "{} stacks end with a page", pages.len());
    run(page, &pages, 500);
    // A list with two entries, and a restored record.
    let mut list = vec![2, 5, 0, 0, 0, 0, 0, 1, 0, 4, 0];
    list.extend([6, 0, 0, 0, 0, 0, 2, 0, 1, 0, 2, 0]);
    list.extend([3, 0, 40, 0, 0, 0, 0, 0, 0, 0]);
    assert!(page(&list));
    run(page, &[list], 3_000);
}

#[test]
fn spare_areas() {
    let mut areas = Vec::new();
    for stack in Stack::all() {
        let contents = sample::contents(stack);
        let area = contents.spare.chunks_exact(contents.spare_kept);
        areas.extend(
            area.filter(|area| area[0] != 0xff)
                .take(3)
                .map(<[u8]>::to_vec),
        );
    }
    run(spare, &areas, 300);
}

/// A message without its numbers, to tell kinds of messages apart.
fn numberless(message: &str) -> String {
    message.replace(|c: char| c.is_ascii_digit(), "")
}

#[test]
fn whole_devices() {
    let mut dice = Dice(5);
    let (mut taken, mut messages) = (0, BTreeSet::new());
    for (which, stack) in (0..).zip(Stack::all()) {
        assert_eq!(
            open_damaged(&[which]),
            Ok(sample::records(stack)),
            "{stack}"
        );
        for turn in 0..400 {
            let goes_on = if turn % 8 == 0 { 0x80 } else { 0 };
            match open_damaged(&edits(&mut dice, which | goes_on)) {
                Ok(_) => taken += 1,
                Err(why) => drop(messages.insert(numberless(&why))),
            }
        }
    }
    assert!(
        taken > 100 && messages.len() > 10,
        "{taken} taken, refused: {messages:#?}"
    );
}

/// An input of random pieces of damage, after the byte `which`.
fn edits(dice: &mut Dice, which: u8) -> Vec<u8> {
    let mut bytes = vec![which];
    for _ in 0..1 + dice.below(3) {
        let edit = dice.next().to_le_bytes();
        bytes.extend_from_slice(&edit[..EDIT - 1]);
        // Values are extreme more often than not.
        let ends = [0, 0xff, 0x7f, 0x80, 1];
        bytes.push(*ends.get(dice.below(9) as usize).unwrap_or(&edit[7]));
    }
    bytes
}

/// A restart knows a page from the summary of its block. Contradictions in the page itself once
/// appeared only at its collection: its logical page was beyond the device or mapped to another
/// page, or a link led to a missing page.
#[test]
fn pages_that_lie_about_themselves_are_left_where_they_are() {
    for (which, stack) in (0..).zip(Stack::all()) {
        let mut collected = 0;
        for page in (0..160_u16).step_by(7) {
            for (what, place, value) in [
                (0, header::LPN.start, 5),
                (0, header::LPN.end - 1, 0x80),
                (1, header::SIZE, 0x55),
                (1, header::SIZE + 6, 0x55),
            ] {
                let [low, high] = page.to_le_bytes();
                let edit = [what, low, high, place as u8, 0, value];
                let bytes = [&[which | 0x80][..], &edit].concat();
                collected += u32::from(open_damaged(&bytes).is_ok());
            }
        }
        assert!(collected > 5, "{stack}: {collected}");
    }
}

#[test]
fn a_sample_has_the_records_of_its_history() {
    for stack in Stack::all() {
        let contents = sample::contents(stack);
        assert_eq!(
            sample::open(stack, contents),
            Ok(sample::records(stack)),
            "{stack}"
        );
    }
}

/// Pages of live transactions are on flash, in a way specific to each protocol. Groups of a single
/// client have one member, so G-MixSL is left out.
#[test]
fn samples_of_two_stacks_differ() {
    let mut stacks = Stack::all();
    stacks.retain(|&stack| stack != Stack::Force(Kind::GMixSl));
    let all: Vec<Contents> = stacks
        .iter()
        .map(|&stack| sample::contents(stack))
        .collect();
    for (i, one) in all.iter().enumerate() {
        for (j, other) in all.iter().enumerate().skip(i + 1) {
            assert!(one != other, "{} and {}", stacks[i], stacks[j]);
        }
    }
}

#[test]
fn a_spare_area_of_noise_is_seldom_a_page() {
    let (kind, lpn, seq) = (PageKind::Data, Lpn(1), 2);
    let mut area = [0xff; header::SIZE];
    Header { kind, lpn, seq }.emit(&mut area);
    assert!(spare(&area) && !spare(&[]) && !spare(&[0; 40]));
}
