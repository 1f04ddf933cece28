//! Runs the fuzz target on seeded damage. It must not panic. Some inputs must be accepted and some
//! refused, or the damage would be too small or too large.

use super::*;
use flagstone::dice::Dice;
use std::collections::BTreeSet;

/// A message without its numbers, to tell kinds of messages apart.
fn numberless(message: &str) -> String {
    message.replace(|c: char| c.is_ascii_digit(), "")
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

/// Fails if an index trusts what it reads: a number beyond the end of a list panics, and pages that
/// refer to each other make a search endless.
#[test]
fn pages_of_indexes() {
    let mut dice = Dice(7);
    for (which, used) in (0..).zip(uses()) {
        let whole = open_damaged(&[which]);
        assert_eq!(whole, Ok(records()), "{used:?}");
        let (mut taken, mut messages) = (0, BTreeSet::new());
        for _ in 0..200 {
            match open_damaged(&edits(&mut dice, which)) {
                Ok(_) => taken += 1,
                Err(why) => drop(messages.insert(numberless(&why.to_string()))),
            }
        }
        assert!(
            taken > 5 && !messages.is_empty(),
            "{used:?}: {taken} taken, refused: {messages:#?}"
        );
    }
}

/// Inputs that the target found. Each once led to a panic or to an endless search.
#[test]
fn damage_to_indexes_that_was_trusted_once() {
    for damage in [
        // A list of buckets has a record more than the metadata counts, and a run of buckets lies
        // beyond the last page.
        &[1, 40, 219, 48, 230, 20, 124][..],
        &[
            2, 190, 48, 135, 206, 243, 128, 31, 55, 248, 231, 161, 131, 254, 18, 56, 61, 41, 221,
        ],
        // Records, and keys of nodes, are out of order.
        &[
            4, 57, 157, 111, 142, 87, 0, 255, 81, 162, 3, 92, 0, 95, 221, 235, 24, 109, 0,
        ],
        &[12, 9, 246, 179, 41, 93, 0],
        // The links of leaves form a cycle.
        &[5, 154, 64, 151, 207, 206, 99, 48, 117, 132, 113, 99, 127],
        // A log page of SAL-hashing refers to itself as the head.
        &[
            15, 217, 170, 53, 221, 54, 205, 159, 255, 188, 20, 122, 255, 109, 172, 61, 151, 196, 0,
        ],
        // A batch of SAL-hashing's groups ends beyond the last page number.
        &[7, 21, 114, 106, 32, 244, 255, 236, 148, 167, 127, 166, 255],
    ] {
        let _ = open_damaged(damage);
    }
}
