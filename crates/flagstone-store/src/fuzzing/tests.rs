//! The fuzz targets on seeded damage: valid inputs with a few changed bytes, and random bytes. They
//! must not panic. That some inputs are accepted and some are not shows that the damage is neither
//! too small nor too large.

use super::*;
use crate::pages::tests::Dice;
use std::collections::BTreeSet;

/// Changes some bytes.
fn mutate(dice: &mut Dice, valid: &[u8]) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..=dice.below(3) {
        let at = dice.below(bytes.len() as u64) as usize;
        match dice.below(3) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = dice.below(256) as u8,
            _ => bytes[at] = [0, 0xff, 0x7f, 0x80][dice.below(4) as usize],
        }
    }
    bytes
}

/// Runs a target on damaged valid inputs, on the valid ones, which it accepts, and on noise.
fn run(target: fn(&[u8]) -> bool, valid: &[Vec<u8>], rounds: u32) {
    let mut dice = Dice(17);
    let (mut taken, mut refused) = (0, 0);
    for valid in valid {
        assert!(target(valid), "{valid:x?} is valid");
        for round in 0..rounds {
            let bytes = match round % 8 {
                0 => (0..dice.below(300))
                    .map(|_| dice.below(256) as u8)
                    .collect(),
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

/// The pages of the medium of a store with a history, with their numbers.
fn medium_pages() -> Vec<(usize, Vec<u8>)> {
    let contents = contents(Kind::Seal, false);
    let pages = contents.chunks_exact(MEDIUM_PAGE_BYTES);
    (0..).zip(pages.map(<[u8]>::to_vec)).collect()
}

#[test]
fn superblocks() {
    let pages = medium_pages();
    let head = |first: &[u8], second: &[u8]| {
        [&first[..superblock::SIZE], &second[..superblock::SIZE]].concat()
    };
    let (first, second) = (&pages[0].1, &pages[1].1);
    let mut old = vec![0; superblock::SIZE];
    old[..superblock_v1::CRC.start].copy_from_slice(&second[..superblock_v1::CRC.start]);
    old[superblock_v1::SHAPE].fill(0);
    put(&mut old, superblock::VERSION, 1);
    seal_superblock(&mut old);
    let blank = [0; superblock::SIZE];
    let valid = [
        head(first, second),
        head(&blank, second),
        head(&blank, &old),
    ];
    run(super::head, &valid, 4_000);
}

#[test]
fn marks_and_pages() {
    let mut valid = Vec::new();
    let pages = medium_pages();
    let blocks = get(&pages[1].1, superblock::BLOCKS) as u32;
    for (at, bytes) in pages
        .into_iter()
        .filter(|(_, page)| page.iter().any(|&b| b != 0))
    {
        let (number, end) = match Part::of(at, blocks) {
            Part::Mark => ((at as u32 - 2) / (PAGES_PER_BLOCK + 1), 20),
            Part::Page(number) if valid.len() < 4 => (number, MEDIUM_PAGE_BYTES),
            _ => continue,
        };
        valid.push([&number.to_le_bytes()[..], &bytes[..end]].concat());
    }
    assert!(valid.len() > 6, "{} inputs", valid.len());
    run(super::page, &valid, 400);
}

#[test]
fn a_store_that_was_closed_has_left_something() {
    let contents = contents(Kind::Seal, true);
    let head = Superblock::read(&Memory::with(contents));
    let head = head.expect("it is a store").expect("it is one");
    assert!(head.superblock.closed == Some(true) && head.superblock.rested > 0);
}

#[test]
fn whole_stores() {
    let mut dice = Dice(5);
    let (mut taken, mut refused, mut messages) = (0, 0, BTreeSet::new());
    for (which, protocol) in (0..).zip(protocols().chain(protocols())) {
        let found = open_damaged(&[which]);
        assert_eq!(found.expect("it is whole"), pages(protocol), "{protocol}");
        for _ in 0..120 {
            let mut bytes = vec![which];
            for _ in 0..=dice.below(3) {
                let byte = |dice: &mut Dice| dice.below(256) as u8;
                bytes.extend((1..EDIT).map(|_| byte(&mut dice)));
                // Extreme values are more frequent than others.
                let ends = [0, 0xff, 0x7f, 0x80, 1];
                let end = ends.get(dice.below(9) as usize).copied();
                bytes.push(end.unwrap_or_else(|| byte(&mut dice)));
            }
            match open_damaged(&bytes) {
                Ok(_) => taken += 1,
                Err(error) => {
                    refused += 1;
                    let text = error.to_string();
                    assert!(!text.is_empty());
                    let words: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
                    messages.insert(words);
                }
            }
        }
    }
    assert!(
        taken > 50 && refused > 50,
        "{taken} taken, {refused} refused"
    );
    assert!(messages.len() > 8, "{messages:#?}");
}

/// Inputs of several edits after `first`.
fn edits(dice: &mut Dice, first: &[u8]) -> Vec<u8> {
    let mut bytes = first.to_vec();
    for _ in 0..=dice.below(3) {
        bytes.extend((1..EDIT).map(|_| dice.below(256) as u8));
        // Extreme values are more frequent than others.
        let ends = [0, 0xff, 0x7f, 0x80, 1];
        let end = ends.get(dice.below(9) as usize).copied();
        bytes.push(end.unwrap_or_else(|| dice.below(256) as u8));
    }
    bytes
}

/// Runs a target that has its own sample on edits.
fn run_on_damage(target: fn(&[u8]) -> bool, rounds: u32) {
    let (mut dice, mut taken) = (Dice(23), 0);
    for _ in 0..rounds {
        taken += u32::from(target(&edits(&mut dice, &[])));
    }
    let few = rounds / 50;
    assert!(
        (few..=rounds - few).contains(&taken),
        "{taken} taken of {rounds}"
    );
}

#[test]
fn damaged_tables() {
    let whole = held::use_tables(held::tables_undamaged());
    assert_eq!(whole.expect("they are whole"), held::sample());
    run_on_damage(tables, 1_000);
}

#[test]
fn damaged_disks() {
    let whole = held::use_disk(held::disk_undamaged());
    assert!(whole.expect("it is whole") == held::disk_sample());
    run_on_damage(disk, 300);
}

#[test]
fn typed_keys() {
    let valid = [
        &b"\x05"[..],
        b"\x80\0\0\0\0\0\0\x05",
        b"text",
        b"\x01\x80\x07",
        b"a\0\xffb\0\0\0\0\0\x09",
        b"\x80\0\0\x03\x01x\0\0\x01",
    ];
    run(typed, &valid.map(<[u8]>::to_vec), 2_000);
}
