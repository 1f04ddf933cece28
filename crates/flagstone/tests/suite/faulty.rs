//! Faults that no error reports.

use flagstone::nand::{Chip, Fault, FaultPlan, Faulty, Flash, small};
use flagstone::units::{Nanos, Pbn, Ppn};

/// Injects `fault` into the first read, which is of the first of two pages. Returns what both
/// pages read as; then what the first reads as after an erase and another program.
fn read_after(fault: Fault) -> [Vec<u8>; 3] {
    let mut plan = FaultPlan::default();
    plan.faults.push((0, fault));
    let mut flash = Faulty::new(small::chip(small::GEOMETRY), plan);
    let read = |flash: &mut Faulty<Chip>, at| {
        let (mut data, mut spare) = (vec![0; 256], [0; 64]);
        let first = flash.read(Nanos::ZERO, at, &mut data, &mut spare).unwrap();
        data.truncate(first.data_bytes);
        data.extend(spare);
        data
    };
    let program = |flash: &mut Faulty<Chip>, at, byte| {
        flash
            .program(Nanos::ZERO, at, &[byte; 32], &[byte; 20])
            .unwrap();
    };
    program(&mut flash, Ppn(0), 1);
    program(&mut flash, Ppn(1), 2);
    let wrong = read(&mut flash, Ppn(0));
    assert_eq!(read(&mut flash, Ppn(0)), wrong, "it stays as it is");
    let other = read(&mut flash, Ppn(1));
    flash.erase(Nanos::ZERO, Pbn(0)).unwrap();
    program(&mut flash, Ppn(0), 1);
    assert_eq!(flash.struck(), 1);
    [wrong, other, read(&mut flash, Ppn(0))]
}

#[test]
fn up_to_three_bits_flip_until_the_block_is_erased() {
    for dice in 0..200 {
        let [wrong, other, right] = read_after(Fault::SilentFlips { dice });
        let bits = wrong.iter().zip(&right).map(|(a, b)| (a ^ b).count_ones());
        assert!((1..=3).contains(&bits.sum::<u32>()));
        assert_eq!(other[..32], [2; 32]);
    }
}

#[test]
fn a_page_reads_as_another_until_its_block_is_erased() {
    let [wrong, other, right] = read_after(Fault::SilentSwap { dice: 1 });
    assert_eq!(wrong, other);
    assert_eq!(right[..32], [1; 32]);
}
