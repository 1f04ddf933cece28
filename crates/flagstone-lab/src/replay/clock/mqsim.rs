//! Compares the clock with MQSim's model of a chip and its channel (NV-DDR2, one plane per command)
//! at MQSim's default latencies. MQSim counts channel time for commands and addresses, which the
//! clock leaves out; nothing else may differ for single operations and for queues. MQSim's
//! scheduler, which prefers reads and suspends programs, is not modelled.

use super::setup;
use flagstone::commit::Kind;
use flagstone::nand::{Chip, Flash, Geometry, Timing};
use flagstone::units::{Nanos, Pbn};

/// Timing parameters of ONFI in nanoseconds, as in MQSim.
mod onfi {
    pub(super) const CS: u64 = 20;
    pub(super) const WC: u64 = 25;
    pub(super) const WB: u64 = 100;
    pub(super) const RR: u64 = 20;
    pub(super) const ADL: u64 = 70;
    pub(super) const WPST: u64 = 6;
    pub(super) const WPSTH: u64 = 15;
    pub(super) const RPRE: u64 = 15;
    pub(super) const DQSRE: u64 = 15;
    /// Time for two bytes on a channel of eight bits.
    pub(super) const DSC: u64 = 6;
}

/// Channel time besides the data: for a read the command and the start of its data, for a program
/// the command, and for an erase the command.
const READ: u64 = onfi::CS + 6 * onfi::WC + onfi::WB + onfi::RR + onfi::RPRE + onfi::DQSRE;
const PROGRAM: u64 = onfi::CS + 6 * onfi::WC + onfi::ADL + onfi::WPST + onfi::WPSTH + onfi::WB;
const ERASE: u64 = onfi::CS + 4 * onfi::WC + onfi::WB;

const TIMING: Timing = Timing {
    read: Nanos::from_micros(25),
    program: Nanos::from_micros(200),
    reprogram: Nanos::from_micros(200),
    erase: Nanos::from_micros(1_500),
    transfer_ps_per_byte: onfi::DSC * 1_000 / 2,
};

/// A device of `number` chips with one plane each, all on one channel.
fn chips(number: u32) -> (Chip, Geometry) {
    let mut device = setup(Kind::Plain, number, number, 1).device;
    device.timing = TIMING;
    (device.chip(64), device.geometry)
}

/// Channel time of a page and its spare area, counted for two bytes at a time as in MQSim.
fn transfer(geometry: &Geometry) -> u64 {
    u64::from(geometry.page_bytes + geometry.spare_bytes) / 2 * onfi::DSC
}

/// Programs `pages` of the first block of each chip, all ready at once. Returns the last end.
fn programs(chip: &mut Chip, geometry: &Geometry, pages: u32) -> u64 {
    let mut done = 0;
    for page in 0..pages {
        for plane in 0..geometry.planes() {
            let at = geometry.page(Pbn(plane * geometry.blocks_per_plane), page);
            let end = chip.program(Nanos::ZERO, at, &[1], &[1]).unwrap();
            done = end.0.max(done);
        }
    }
    done
}

#[test]
fn single_operations_and_queues_take_what_mqsim_says_without_commands() {
    let (mut chip, geometry) = chips(1);
    let page = transfer(&geometry);
    let first = geometry.page(Pbn(0), 0);
    let mut data = vec![0; geometry.page_bytes as usize];

    // A queue of programs, of reads, and an erase. Each is ready when the one before has ended.
    let ours = programs(&mut chip, &geometry, 32);
    let theirs = 32 * (PROGRAM + page + TIMING.program.0);
    assert_eq!(theirs - ours, 32 * PROGRAM);
    let mut now = Nanos(ours);
    for _ in 0..32 {
        let read = chip.read(Nanos(ours), first, &mut data, &mut []).unwrap();
        now = read.done.max(now);
    }
    let theirs = 32 * (READ + TIMING.read.0 + page);
    assert_eq!(theirs - (now.0 - ours), 32 * READ);
    let end = chip.erase(now, Pbn(0)).unwrap();
    assert_eq!(ERASE + TIMING.erase.0 - (end.0 - now.0), ERASE);

    // Two chips on one channel: transfers are serial, programs are parallel.
    let (mut both, geometry) = chips(2);
    let ours = programs(&mut both, &geometry, 32);
    let theirs = 32 * (PROGRAM + page + TIMING.program.0) + PROGRAM + page;
    assert_eq!(theirs - ours, 33 * PROGRAM);

    // The omitted time is at most 1 % of an operation with data.
    let share = |command: u64, cells: Nanos| command as f64 / (cells.0 + page) as f64;
    assert!(share(READ, TIMING.read) < 0.01 && share(PROGRAM, TIMING.program) < 0.002);
}
