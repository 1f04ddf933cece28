//! What holds for every stack alike: it says what it keeps in memory, its device counts the
//! operations that reach the flash and says why it refuses, and a copy of a device goes its own
//! way.

use flagstone::commit::{Device, DeviceError, Isolation, Kind, Options};
use flagstone::ftl::{FtlError, Operation};
use flagstone::nand::{Chip, Flash, OpKind, Timing, Traced, Tracer};
use flagstone::units::{Lpn, Nanos, Ppn, TxId};
use flagstone_host::fuzzing::sample;
use flagstone_host::{Host, Stack};
use std::sync::{Arc, Mutex};

fn chip(stack: Stack) -> Chip {
    let contents = sample::contents(stack);
    Chip::with_contents(sample::geometry(stack), Timing::default(), contents)
        .expect("it was a chip's")
}

fn open(stack: Stack, flash: Box<dyn Flash>) -> Host {
    let (options, config) = (Options::default(), sample::host(stack));
    let opened = Host::open(flash, stack, sample::DEVICE, &options, &config, Nanos::ZERO);
    opened.expect("it opens")
}

fn device(kind: Kind) -> Device {
    let flash = Box::new(chip(Stack::Force(kind)));
    let options = Options::default();
    Device::open(flash, kind, sample::DEVICE, &options, Nanos::ZERO).expect("it opens")
}

#[test]
fn every_stack_lists_what_it_keeps_in_memory() {
    for stack in Stack::all() {
        let host = open(stack, Box::new(chip(stack)));
        let memory = host.memory();
        let all: u64 = memory.iter().map(|(_, bytes)| bytes).sum();
        // Tables for 40 pages in 72 blocks, and what the stack adds.
        assert!((1_000..1 << 20).contains(&all), "{stack}: {memory:?}");
    }
}

#[test]
fn a_device_counts_what_reaches_the_flash() {
    for stack in Stack::all() {
        let story: Arc<Mutex<Vec<Traced>>> = Arc::default();
        let host = open(
            stack,
            Box::new(Tracer::new(chip(stack), Arc::clone(&story))),
        );
        let story = story.lock().expect("one thread");
        assert!(story.iter().all(|entry| entry.error.is_none()));
        let told = |is: fn(&OpKind) -> bool| story.iter().filter(|e| is(&e.kind)).count() as u64;
        let counted = |operation| host.ftl().stats().total(operation);
        let told = [
            told(|kind| matches!(kind, OpKind::Read { .. })),
            told(|kind| matches!(kind, OpKind::Program { .. })),
            told(|kind| matches!(kind, OpKind::Reprogram { .. })),
            told(|kind| matches!(kind, OpKind::Erase { .. })),
        ];
        let counted = [
            counted(Operation::Read),
            counted(Operation::Program),
            counted(Operation::Reprogram),
            counted(Operation::Erase),
        ];
        assert_eq!(
            told, counted,
            "{stack}: reads, programs, reprograms, erases"
        );
        assert!(told[0] > 5, "{stack} has read its flash");
    }
}

#[test]
fn a_copy_of_a_device_goes_its_own_way() {
    for &kind in Kind::ALL {
        let first = device(kind);
        let mut copy = first.duplicate(Box::new(chip(Stack::Force(kind))));
        let now = copy.recovered_at();
        let tx = copy.begin(now).expect("it begins");
        let done = copy
            .write(now, tx, Lpn(30), b"copy")
            .expect("it writes")
            .next;
        copy.commit(done, tx).expect("it commits");
        let over = copy.acknowledged(done, true).expect("the group is written");
        let now = over.iter().map(|&(_, when)| when).max().unwrap_or(done);
        let (_, bytes) = copy.read(now, None, Lpn(30)).expect("it reads");
        assert_eq!(bytes, Some(&b"copy"[..]), "{kind}");
        assert!(copy.last_tx() > first.last_tx(), "{kind}");
        copy.check().expect("the books agree");
        first.check().expect("nothing has happened here");
    }
}

/// A call that a device cannot follow says why, and changes nothing.
#[test]
fn a_refusal_says_why() {
    for &kind in Kind::ALL {
        let mut device = device(kind);
        let now = device.recovered_at();
        let first = device.begin(now).expect("it begins");
        let says = |refused: Result<(), DeviceError>, why: &str| {
            let message = refused.expect_err(why).to_string();
            assert!(message.contains(why), "{kind}: {message}");
        };
        says(
            device.write(now, first, Lpn(40), b"x").map(drop),
            "page 40 is beyond the device, which has 40",
        );
        says(
            device.write(now, first, Lpn(1), &[0; 257]).map(drop),
            "257 bytes do not fit a page of 256",
        );
        says(
            device.write(now, TxId(1 << 40), Lpn(1), b"x").map(drop),
            "is not a live transaction",
        );
        says(
            device.read(now, None, Lpn(99)).map(drop),
            "page 99 is beyond",
        );
        device.write(now, first, Lpn(30), b"x").expect("it is free");
        let limit = device.live_max().unwrap_or(2);
        for _ in 1..limit {
            let tx = device.begin(now).expect("it begins");
            if kind.info().isolation == Isolation::NoPageConflict {
                says(
                    device.write(now, tx, Lpn(30), b"y").map(drop),
                    "page 30 is being written by",
                );
            }
        }
        match limit {
            _ if device.live_max().is_none() => {}
            1 => says(device.begin(now).map(drop), "strict isolation only"),
            _ => says(
                device.begin(now).map(drop),
                "live transactions: end one first",
            ),
        }
        for tx in device.live().collect::<Vec<_>>() {
            device.abort(now, tx).expect("it is live");
        }
        device.check().expect("nothing was changed");
    }
}

#[test]
fn messages_of_a_device_that_cannot_go_on_have_its_numbers() {
    let full = |out_of_service| FtlError::Full {
        live: 311,
        pages: 317,
        out_of_service,
    };
    for (error, why) in [
        (full(0), "311 of 317 pages are live"),
        (full(3), "3 blocks are out of service"),
        (
            FtlError::Unreadable { at: Ppn(77) },
            "page 77 cannot be read",
        ),
        (
            FtlError::MetaFull,
            "no block is left for mapping pages and logs",
        ),
        (FtlError::PowerLost, "the power is gone"),
    ] {
        assert!(DeviceError::from(error).to_string().contains(why), "{why}");
    }
}
