//! A small device with a history. Golden images are made from it, and fuzzing damages it.

use crate::{Host, HostConfig, HostError, Rid, Stack, Step};
use flagstone::commit::{Kind, Options};
use flagstone::ftl::Config;
use flagstone::nand::{Cell, Chip, Contents, Flash, Geometry, Pairing, Shared, Timing};
use flagstone::page::SlotNo;
use flagstone::units::{Lpn, Nanos, TxId};
use std::collections::BTreeMap;

/// The number of pages of records, and of records in each.
const PAGES: u32 = 12;
const SLOTS: SlotNo = 3;
/// The number of rounds after which MixSL has compacted its log.
const ROUNDS: u32 = 28;

/// The configuration of the device's FTL.
pub const DEVICE: Config = Config::small(40, Some(3));

/// The configuration of the host: so few frames that pages are evicted before they are committed.
pub fn host(stack: Stack) -> HostConfig {
    let config = HostConfig {
        frames: 6,
        log_pages: 16,
        ..HostConfig::default()
    };
    config
        .with("log_buffer_bytes", 600)
        .with("checkpoint_every", 4)
        .keep_those_of(stack)
}

/// The shape of the device.
pub fn geometry(stack: Stack) -> Geometry {
    let flags_records = stack.record_kind().is_some();
    Geometry {
        channels: 2,
        packages_per_channel: 1,
        planes_per_package: 1,
        blocks_per_plane: 36,
        pages_per_block: 6,
        page_bytes: 256,
        spare_bytes: 64,
        cell: Cell::Slc {
            partial_programs: if flags_records { 4 } else { 3 },
        },
        strict_order: !flags_records,
        pairing: Pairing::None,
    }
}

/// Records by page and slot. A missing one was deleted or never written.
pub type Records = BTreeMap<(u32, SlotNo), Vec<u8>>;

/// All places that can hold a record.
pub fn places() -> impl Iterator<Item = (u32, SlotNo)> {
    (0..PAGES).flat_map(|page| (0..SLOTS).map(move |slot| (page, slot)))
}

/// The records that a round writes or deletes.
fn writes(round: u32) -> impl Iterator<Item = ((u32, SlotNo), Option<Vec<u8>>)> {
    (0..3).map(move |i| {
        let page = (round * 5 + i * 7) % PAGES;
        let slot = ((round + i) % u32::from(SLOTS)) as SlotNo;
        let bytes = vec![round as u8; 3 + (round % 5) as usize];
        let deletes = round % 11 == 10 && i == 0;
        ((page, slot), (!deletes).then_some(bytes))
    })
}

/// Whether a round is rolled back. `plain` does not support that.
fn aborts(stack: Stack, round: u32) -> bool {
    round % 4 == 3 && stack != Stack::Force(Kind::Plain)
}

/// The records that a restart must find.
pub fn records(stack: Stack) -> Records {
    let mut records = Records::new();
    for round in (0..ROUNDS).filter(|&round| !aborts(stack, round)) {
        for (place, bytes) in writes(round) {
            match bytes {
                Some(bytes) => records.insert(place, bytes),
                None => records.remove(&place),
            };
        }
    }
    records
}

/// The contents of the flash after the history: transactions that committed, others that were
/// rolled back, and one that was interrupted.
pub fn contents(stack: Stack) -> Contents {
    let geometry = geometry(stack);
    let flash = Shared::new(Chip::new(
        geometry,
        Timing::default(),
        geometry.spare_bytes as usize,
    ));
    let mut host = start(stack, Box::new(flash.clone())).expect("the device is blank");
    let mut now = host.recovered_at();
    for round in 0..ROUNDS {
        let tx = run(&mut host, &mut now, round);
        if aborts(stack, round) {
            now = host.abort(now, tx).expect("it can be rolled back");
        } else {
            now = commit(&mut host, now, tx);
        }
    }
    if stack != Stack::Force(Kind::Plain) {
        run(&mut host, &mut now, ROUNDS);
    }
    drop(host);
    flash.take().contents()
}

fn start(stack: Stack, flash: Box<dyn Flash>) -> Result<Host, HostError> {
    let (options, host) = (Options::default(), host(stack));
    Host::open(flash, stack, DEVICE, &options, &host, Nanos::ZERO)
}

/// Runs rounds of transactions until the first error.
fn go_on(host: &mut Host, mut now: Nanos, rounds: u32) -> Result<(), HostError> {
    for round in 0..rounds {
        let tx = host.begin(now)?;
        for ((page, slot), bytes) in writes(round) {
            let page = Lpn(page);
            match host.write(now, tx, Rid { page, slot }, bytes.as_deref())? {
                Step::Done((), done) => now = done,
                _ => return Ok(()),
            }
        }
        if let Step::Done((), done) = host.commit(now, tx)? {
            now = done;
        }
        host.acknowledged(now, true)?;
    }
    Ok(())
}

/// Begins a transaction with the writes of a round. Then reads enough other pages that the written
/// ones are evicted, if the stack allows that.
fn run(host: &mut Host, now: &mut Nanos, round: u32) -> TxId {
    let tx = host.begin(*now).expect("it begins");
    for ((page, slot), bytes) in writes(round) {
        let page = Lpn(page);
        let step = host.write(*now, tx, Rid { page, slot }, bytes.as_deref());
        match step.expect("it has room") {
            Step::Done((), done) => *now = done,
            other => panic!("nobody else is there: {other:?}"),
        }
    }
    let mut bytes = Vec::new();
    for page in (0..PAGES).map(Lpn) {
        let looked = host.look(*now, Rid { page, slot: 0 }, &mut bytes);
        *now = looked.expect("it has frames").1;
    }
    tx
}

fn commit(host: &mut Host, now: Nanos, tx: TxId) -> Nanos {
    match host.commit(now, tx).expect("it commits") {
        Step::Done((), done) => done,
        _ => {
            let over = host.acknowledged(now, true).expect("the group is written");
            over.first().expect("it is in the group").1
        }
    }
}

/// The records in a device after a restart. The device must also accept writes.
///
/// # Errors
/// Describes why the device cannot be opened, read or written.
pub fn open(stack: Stack, contents: Contents) -> Result<Records, String> {
    open_and_write(stack, contents, 4)
}

/// The number of rounds after which every block found at the start has been collected.
pub const MANY_ROUNDS: u32 = 120;

/// Like [`open`], then writes for `rounds` rounds.
///
/// # Errors
/// Describes why the device cannot be opened, read or written.
pub fn open_and_write(stack: Stack, contents: Contents, rounds: u32) -> Result<Records, String> {
    let chip = Chip::with_contents(geometry(stack), Timing::default(), contents)?;
    let mut host = start(stack, Box::new(chip)).map_err(|error| error.to_string())?;
    host.verify()?;
    let (mut now, mut bytes, mut records) = (host.recovered_at(), Vec::new(), Records::new());
    for (page, slot) in places() {
        let at = Lpn(page);
        let looked = host.look(now, Rid { page: at, slot }, &mut bytes);
        let (is_there, done) = looked.map_err(|error| error.to_string())?;
        now = done;
        if is_there {
            records.insert((page, slot), bytes.clone());
        }
    }
    go_on(&mut host, now, rounds).map_err(|error| error.to_string())?;
    Ok(records)
}
