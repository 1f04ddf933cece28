//! What holds for every stack alike: it says what it keeps in memory, its device counts the
//! operations that reach the flash, and a copy of a device goes its own way.

use flagstone::commit::{Device, Kind, Options};
use flagstone::ftl::Operation;
use flagstone::fuzzing::sample;
use flagstone::host::{Host, Stack};
use flagstone::nand::{Chip, Entry, Flash, OpKind, Tracer};
use flagstone::units::{Lpn, Nanos};
use std::cell::RefCell;
use std::rc::Rc;

fn chip(stack: Stack) -> Chip {
    let contents = sample::contents(stack);
    Chip::with_contents(sample::geometry(stack), sample::TIMING, contents).expect("it was a chip's")
}

fn open(stack: Stack, flash: Box<dyn Flash>) -> Host {
    let (options, config) = (Options::default(), sample::host());
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
        let story: Rc<RefCell<Vec<Entry>>> = Rc::default();
        let host = open(stack, Box::new(Tracer::new(chip(stack), Rc::clone(&story))));
        let story = story.borrow();
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
        let done = copy.write(now, tx, Lpn(30), b"copy").expect("it writes");
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
