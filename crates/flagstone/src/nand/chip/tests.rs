//! The rules, the clock and the memory of the perfect device.

use super::*;
use crate::nand::small::TINY;

fn chip() -> Chip {
    Chip::new(TINY, Timing::default(), 8)
}

#[test]
fn planes_work_side_by_side_and_each_in_turn() {
    let mut chip = chip();
    let first = chip.program(Nanos::ZERO, Ppn(0), &[], &[1]).unwrap();
    let same_plane = chip.program(Nanos::ZERO, Ppn(1), &[], &[1]).unwrap();
    let other_plane = chip.program(Nanos::ZERO, Ppn(16), &[], &[1]).unwrap();
    assert_eq!(first, Nanos::from_micros(200));
    assert_eq!(same_plane, Nanos::from_micros(400));
    assert_eq!(other_plane, Nanos::from_micros(200));
}

#[test]
fn a_summary_page_is_kept_as_a_mark_and_reads_back_the_same() {
    // Twice: with the spare areas alone, and with four more bytes for each page.
    for words in [&[][..], &[8, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 1]] {
        let mut chip = chip();
        for page in 0..3u8 {
            chip.program(Nanos::ZERO, Ppn(page.into()), &[9, page], &[page, 7, 0xff])
                .unwrap();
        }
        let summary = [&[0, 7, 1, 7, 2, 7], words].concat();
        chip.program(Nanos::ZERO, Ppn(3), &summary, &[5]).unwrap();
        let reads_back = |chip: &mut Chip| {
            let mut data = [0; 64];
            let read = chip.read(Nanos::ZERO, Ppn(3), &mut data, &mut []).unwrap();
            assert_eq!(&data[..read.data_bytes], summary);
            let read = chip.read(Nanos::ZERO, Ppn(3), &mut data[..5], &mut []);
            assert_eq!(read.unwrap().data_bytes, 5);
            chip.data.get(Pbn(0), 3).map_or(0, <[u8]>::len)
        };
        assert_eq!((chip.summary[0], reads_back(&mut chip)), (2, words.len()));
        // A reprogram outside the repeated bytes keeps the flag; one inside drops it.
        chip.reprogram(Nanos::ZERO, Ppn(0), 2, &[1]).unwrap();
        assert_eq!((chip.summary[0], reads_back(&mut chip)), (2, words.len()));
        chip.reprogram(Nanos::ZERO, Ppn(1), 0, &[0]).unwrap();
        assert_eq!((chip.summary[0], reads_back(&mut chip)), (0, summary.len()));
        // Another chip with the same contents reads the same.
        let contents = chip.contents();
        let mut other = Chip::with_contents(*chip.geometry(), *chip.timing(), contents).unwrap();
        reads_back(&mut other);
    }
}

#[test]
fn what_is_forgotten_goes_only_where_that_was_asked_for() {
    for (mut chip, left) in [(chip(), 3), (chip().with_forgetting(), 0)] {
        chip.program(Nanos::ZERO, Ppn(0), &[1, 2, 3], &[7]).unwrap();
        chip.forget(Ppn(0));
        let (mut data, mut spare) = ([0; 64], [0; 1]);
        let read = chip.read(Nanos::ZERO, Ppn(0), &mut data, &mut spare);
        assert_eq!((read.unwrap().data_bytes, spare), (left, [7]));
        assert!(chip.is_programmed(Ppn(0)), "it is not erased");
    }
}

#[test]
fn bytes_of_any_length_come_back_from_a_chip_of_many_pages() {
    let geometry = Geometry {
        blocks_per_plane: 3000,
        ..*chip().geometry()
    };
    let mut chip = Chip::new(geometry, Timing::default(), 8).with_forgetting();
    // Whole pages, shorter ones, and none.
    let bytes = |page: u32, lap: u32| -> Vec<u8> {
        let len = match (page + lap) % 5 {
            0 => 0,
            1 => 7,
            _ => 64,
        };
        (0..len).map(|i| (page * 31 + lap * 7 + i) as u8).collect()
    };
    let mut memory = Vec::new();
    for lap in 0..3 {
        for page in 0..geometry.pages() {
            let data = bytes(page, lap);
            chip.program(Nanos::ZERO, Ppn(page), &data, &[]).unwrap();
        }
        for page in (0..geometry.pages()).step_by(3) {
            chip.forget(Ppn(page));
        }
        let copy = chip.clone();
        for page in 0..geometry.pages() {
            let mut into = [0; 64];
            let length = copy.peek(Ppn(page), &mut into, &mut []).unwrap();
            let kept = match page % 3 {
                0 => Vec::new(),
                _ => bytes(page, lap),
            };
            assert_eq!(&into[..length], kept, "page {page}");
        }
        memory.push(chip.memory_bytes());
        for block in 0..geometry.blocks() {
            chip.erase(Nanos::ZERO, Pbn(block)).unwrap();
        }
    }
    assert!(memory[2] < memory[0] + memory[0] / 20, "{memory:?}");
}

#[test]
#[should_panic(expected = "program of page 0, which is not blank")]
fn a_page_is_programmed_once() {
    let mut chip = chip();
    chip.program(Nanos::ZERO, Ppn(0), &[], &[1]).unwrap();
    chip.program(Nanos::ZERO, Ppn(0), &[], &[1]).unwrap();
}

#[test]
#[should_panic(expected = "would set bits")]
fn a_reprogram_only_clears_bits() {
    let mut chip = chip();
    chip.program(Nanos::ZERO, Ppn(0), &[], &[0b10]).unwrap();
    chip.reprogram(Nanos::ZERO, Ppn(0), 0, &[0b11]).unwrap();
}

#[test]
#[should_panic(expected = "2 times programmed already")]
fn the_partial_program_level_holds() {
    let mut chip = chip();
    chip.program(Nanos::ZERO, Ppn(0), &[], &[0b11]).unwrap();
    chip.reprogram(Nanos::ZERO, Ppn(0), 0, &[0b01]).unwrap();
    chip.reprogram(Nanos::ZERO, Ppn(0), 0, &[0b00]).unwrap();
}
