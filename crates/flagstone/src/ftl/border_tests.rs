//! The whole layer against a model: random writes, trims, snapshots, collections, wear levelling,
//! checkpoints and restarts, through the methods that a commit protocol calls. The model knows the
//! value of each page. The tests know no field of the layer, so its parts may change.

use super::*;
use crate::dice::Dice;
use crate::nand::small;
use crate::units::{Lpn, SnapshotId};
use std::collections::BTreeMap;

const PAGES: u32 = 400;

/// An owner without transactions: the mapping table has every live page.
#[derive(Default)]
struct Mapped {
    /// When the last write is done.
    written: Nanos,
}

impl Owner for Mapped {
    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, _: Victim) -> Result<Nanos, FtlError> {
        ftl.sync(now, self.written)
    }
}

/// A state of the pages: those without an entry hold nothing.
type Values = BTreeMap<Lpn, u32>;

struct Bench {
    ftl: Ftl,
    owner: Mapped,
    config: Config,
    format: Format,
    now: Nanos,
    seed: u64,
    dice: Dice,
    values: Values,
    snapshots: Vec<(SnapshotId, Values)>,
    last: u32,
    collected: u64,
    ended: u32,
}

impl Bench {
    fn new(config: Config, format: Format, seed: u64) -> Bench {
        let flash = Box::new(small::chip(small::GEOMETRY));
        let (mut ftl, mounted) = Ftl::mount(flash, config, format, Nanos::ZERO).expect("blank");
        ftl.finish_mount();
        Bench {
            ftl,
            owner: Mapped::default(),
            config,
            format,
            now: mounted.done,
            seed,
            dice: Dice(seed),
            values: Values::new(),
            snapshots: Vec::new(),
            last: 0,
            collected: 0,
            ended: 0,
        }
    }

    fn append(&mut self, kind: PageKind, lpn: Lpn, data: &[u8]) -> Ppn {
        let (ftl, owner) = (&mut self.ftl, &mut self.owner);
        finish_steps(ftl, owner, self.now).expect("there is no cut");
        make_room(ftl, owner, self.now).expect("there is no cut");
        step(ftl, owner, self.now).expect("there is no cut");
        let (to, page) = ((Stream::Host, None), (kind, lpn, None));
        let written = ftl.append(self.now, to, page, &[], data, Cause::Host);
        let written = written.expect("there is room");
        owner.written = owner.written.max(written.done);
        self.now = ftl.sync(self.now, written.done).expect("there is no cut");
        written.at
    }

    fn write(&mut self, lpn: Lpn) {
        self.last += 1;
        let at = self.append(PageKind::Data, lpn, &self.last.to_le_bytes());
        self.map(lpn, Slot::Page(at));
        self.values.insert(lpn, self.last);
    }

    fn map(&mut self, lpn: Lpn, slot: Slot) {
        if let Some(old) = self.ftl.set_slot(lpn, slot).ppn() {
            self.ftl.kill(old);
        }
    }

    fn trim(&mut self, named: &[Lpn]) {
        let highest = *named.last().expect("it trims a page");
        if let [at] = named {
            let page = self.append(PageKind::Trim, *at, &[]);
            self.map(*at, Slot::Trimmed(page));
        } else {
            let list = self.append(PageKind::Trims, highest, &trims_page(named));
            self.ftl.map_trims(list, named.iter().copied());
        }
        for at in named {
            self.values.remove(at);
        }
    }

    fn read(&mut self, slot: Slot) -> Option<u32> {
        let Slot::Page(at) = slot else {
            return None;
        };
        let mut data = vec![0; small::GEOMETRY.page_bytes as usize];
        let read = self.ftl.read(self.now, at, &mut data, &mut [], Cause::Host);
        assert_eq!(read.expect("it is readable").data_bytes, 4);
        Some(u32::from_le_bytes([data[0], data[1], data[2], data[3]]))
    }

    /// Compares the pages and all open snapshots with the model.
    fn look(&mut self) {
        let seed = self.seed;
        assert_eq!(self.ftl.check(), Ok(()), "seed {seed}");
        let current = self.values.clone();
        for lpn in (0..PAGES).map(Lpn) {
            let slot = self.ftl.slot(lpn);
            assert_eq!(
                self.read(slot),
                current.get(&lpn).copied(),
                "seed {seed}, page {lpn}"
            );
        }
        let before = self.snapshots.len();
        let mut open = std::mem::take(&mut self.snapshots);
        open.retain(|&(id, _)| self.ftl.snapshot_slot(id, Lpn(0)).is_some());
        self.ended += (before - open.len()) as u32;
        for (id, values) in &open {
            for lpn in (0..PAGES).map(Lpn) {
                let slot = self.ftl.snapshot_slot(*id, lpn).expect("it is open");
                let found = self.read(slot);
                assert_eq!(
                    found,
                    values.get(&lpn).copied(),
                    "seed {seed}, page {lpn} of {id:?}"
                );
            }
        }
        if open.is_empty() {
            assert_eq!(self.ftl.snapshots().counts(), (0, 0), "seed {seed}");
        }
        self.snapshots = open;
    }

    /// Collects a candidate, which is no change that a snapshot sees.
    fn collect(&mut self) {
        let blocks = self.ftl.blocks.for_data();
        let block = blocks[self.dice.pick(blocks.len() as u32) as usize];
        if self.ftl.blocks.is_candidate(block) && self.ftl.blocks.free_blocks() > 2 {
            let before = self.ftl.snapshots().counts();
            let done = collect(&mut self.ftl, &mut self.owner, self.now, block);
            self.now = done.expect("there is no cut");
            assert_eq!(self.ftl.snapshots().counts(), before);
            self.collected += 1;
        }
    }

    fn one(&mut self) {
        match self.dice.pick(40) {
            0 => {
                let first = self.dice.pick(PAGES - 9);
                let lpns = (first..first + 9).map(Lpn);
                let named: Vec<Lpn> = lpns.filter(|lpn| self.values.contains_key(lpn)).collect();
                if !named.is_empty() {
                    self.trim(&named);
                }
            }
            1 => {
                let at = Lpn(self.dice.pick(PAGES));
                self.trim(&[at]);
            }
            2 if self.snapshots.len() < 4 => {
                let id = self.ftl.snapshots.take();
                assert!(self.ftl.snapshots().is_current(id));
                self.snapshots.push((id, self.values.clone()));
            }
            3 if !self.snapshots.is_empty() => {
                let which = self.dice.pick(self.snapshots.len() as u32) as usize;
                let (id, _) = self.snapshots.swap_remove(which);
                self.ftl.end_snapshot(id);
            }
            4 => self.collect(),
            5 => {
                let leisure = Leisure::new(8, 6, 5);
                let moved = collect_ahead(&mut self.ftl, &mut self.owner, self.now, leisure);
                assert!(moved.expect("there is no cut") <= 5);
            }
            6 if self.format.persist_map => self.checkpoint(),
            _ => {
                let at = Lpn(self.dice.skewed(PAGES));
                self.write(at);
            }
        }
    }

    fn checkpoint(&mut self) {
        let blob = self.last.to_le_bytes().to_vec();
        let done = self.ftl.checkpoint(self.now, blob);
        self.now = done.expect("there is no cut");
        let logged = self.ftl.log(self.now, 0, &self.last.to_le_bytes());
        self.now = logged.expect("there is no cut").done;
    }

    /// Mounts the flash again: with the mapping table on flash, or by a scan of all blocks.
    fn restart(self) -> Bench {
        let mut old = self;
        if old.format.persist_map {
            old.checkpoint();
        }
        let flash = old.ftl.into_flash();
        let (mut ftl, mounted) =
            Ftl::mount(flash, old.config, old.format, old.now).expect("it mounts");
        if old.format.persist_map {
            assert_eq!(mounted.blob, old.last.to_le_bytes());
            assert_eq!(mounted.logs.len(), 1, "logs of the last checkpoint");
        } else {
            let (blocks, mut found) = (ftl.blocks.for_data(), Vec::new());
            ftl.scan(mounted.done, &blocks, |at, head, _| found.push((head, at)))
                .expect("there is no cut");
            found.sort_by_key(|(head, _)| head.seq);
            for (head, at) in found {
                let named = if head.kind == PageKind::Trims {
                    let list = ftl.read_trims(mounted.done, at, head.lpn);
                    list.expect("it is readable").1
                } else {
                    vec![head.lpn]
                };
                for lpn in named {
                    ftl.set_slot(lpn, Slot::of(head.kind, at));
                }
            }
        }
        ftl.revive_mapped().expect("no page is mapped twice");
        ftl.finish_mount();
        Bench {
            ftl,
            now: mounted.done,
            snapshots: Vec::new(),
            ..old
        }
    }

    /// Runs a history of `rounds` rounds of 300 steps, each followed by a look, some by a restart.
    fn run(mut self, rounds: u32) -> Bench {
        for round in 0..rounds {
            for _ in 0..300 {
                self.one();
            }
            self.look();
            if round % 3 == 2 {
                self = self.restart();
                self.look();
            }
        }
        self
    }
}

/// Fails if a collection loses, doubles or misplaces a page; if the copy of a page counts as a new
/// version for snapshots; if a replaced version of a snapshot is collected; if the pins or counts
/// of blocks, lists of trims or candidates go wrong; if a restart maps an old version.
#[test]
fn pages_and_snapshots_hold_what_was_written() {
    let on_flash = Format {
        persist_map: true,
        logs: 1,
        ..Format::NONE
    };
    let (mut ended, mut collected) = (0, 0);
    for seed in 1..=12 {
        let format = Format {
            in_steps: seed % 3 == 0,
            ..if seed % 2 == 0 {
                on_flash
            } else {
                Format::NONE
            }
        };
        let config = Config {
            works_ahead: seed % 3 == 0,
            checksums: seed % 4 == 0,
            ..Config::small(PAGES, (seed % 5 == 0).then_some(2))
        };
        let bench = Bench::new(config, format, seed).run(12);
        ended += bench.ended;
        collected += bench.collected;
    }
    assert!(collected > 300, "{collected} collections");
    assert!(ended > 0, "no snapshot had to end to gain room");
}

/// Fails if a full device says that its pages for roots, mapping and logs can hold data.
#[test]
fn a_full_device_tells_how_many_pages_can_hold_data() {
    let format = Format {
        persist_map: true,
        ..Format::NONE
    };
    let flash = Box::new(small::chip(small::GEOMETRY));
    let config = Config::small(PAGES, None);
    let (mut ftl, _) = Ftl::mount(flash, config, format, Nanos::ZERO).expect("blank");
    ftl.finish_mount();
    let mut live = 0;
    let full = loop {
        let (to, page) = ((Stream::Gc, None), (PageKind::Data, Lpn(live), None));
        match ftl.append(Nanos::ZERO, to, page, &[], b"page", Cause::Host) {
            Ok(_) => live += 1,
            Err(error) => break error,
        }
    };
    let expected = FtlError::Full {
        live: live.into(),
        pages: live.into(),
        out_of_service: 0,
    };
    assert_eq!(full, expected);
}
