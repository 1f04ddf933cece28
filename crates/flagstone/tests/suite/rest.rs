//! Tables of a SEAL device at rest: a restart by them finds what a restart by its blocks finds, and
//! notices tables of another state.

use crate::layouts::{field, size};
use crate::small_device::{self, EVERYTHING, NOTHING, PAGES as LPNS, Small, below};
use flagstone::commit::{Kind, Options};
use flagstone::ftl::Config;
use flagstone::layout::{get, put};
use flagstone::units::{Lpn, Pbn};

/// A device with a history, and the contents of its pages.
struct History {
    small: Small,
    holds: Vec<u8>,
    dice: u32,
}

impl History {
    fn new(seed: u32) -> History {
        let options = Options::default().with("linger", seed % 3);
        let mut config = Config::small(LPNS, Some(3));
        config.works_ahead = seed % 4 > 1;
        History {
            small: Small::on(small_device::chip(), config, Kind::Seal, options),
            holds: vec![0; LPNS as usize],
            dice: seed,
        }
    }

    /// Runs small transactions, of which some roll back, and a long one.
    fn go_on(&mut self, transactions: u32) {
        let long = self.small.begin();
        for i in 0..transactions {
            let tx = self.small.begin();
            let mut wrote = Vec::new();
            for _ in 0..=below(&mut self.dice, 4) {
                let (at, value) = (
                    below(&mut self.dice, 60),
                    below(&mut self.dice, 250) as u8 + 1,
                );
                match below(&mut self.dice, 12) {
                    0 => self.small.trim(tx, at),
                    _ => self.small.write(tx, at, value),
                }
                wrote.push(at);
            }
            let read = wrote
                .iter()
                .map(|&at| (at, self.small.value_in(Some(tx), at)));
            let values: Vec<(u32, u8)> = read.collect();
            if below(&mut self.dice, 5) == 0 {
                self.small.abort(tx);
            } else {
                self.small.commit(tx);
                values
                    .iter()
                    .for_each(|&(at, value)| self.holds[at as usize] = value);
            }
            if i % 3 == 0 {
                self.small.write(long, 60 + below(&mut self.dice, 8), 77);
            }
        }
        // Its pages may be copied while the originals are not erased yet.
        if below(&mut self.dice, 2) == 0 {
            let wrote = (60..68).map(|at| self.small.value_in(Some(long), at));
            let values: Vec<u8> = wrote.collect();
            self.small.commit(long);
            self.holds[60..68].copy_from_slice(&values);
        }
    }

    fn is_right(&mut self) -> bool {
        self.small.values(LPNS) == self.holds
    }
}

/// The tables of a device that is brought to rest, if it returns any.
fn tables_of(small: &mut Small) -> Option<Vec<u8>> {
    let now = small.now;
    small.device().rest(now).expect("there is no cut")
}

/// Brings a device to rest repeatedly and changes the tables. Returns in how many rounds the
/// change was detected.
fn noticed(change: impl Fn(&mut Vec<u8>)) -> u32 {
    let mut noticed = 0;
    for seed in 1..40 {
        let mut history = History::new(seed);
        for _ in 0..4 {
            history.go_on(20 + seed);
            let mut tables = tables_of(&mut history.small).expect("it has tables");
            change(&mut tables);
            let (mut recovered, resumed) = history.small.both_ways(tables.clone());
            let ftl = recovered.device().ftl();
            let is_same = ftl.compare_with_rest(&tables).is_ok();
            let resumed = resumed.ok().filter(|_| is_same);
            let Some(mut resumed) = resumed else {
                noticed += 1;
                history.small = recovered;
                continue;
            };
            for block in (0..ftl.geometry().blocks()).map(Pbn) {
                let is = resumed.device().ftl();
                assert_eq!(is.blocks().live_in(block), ftl.blocks().live_in(block));
                // An erase or program that the cut took back makes a difference only where no
                // page is live.
                let is_same = is.blocks().state(block) == ftl.blocks().state(block);
                assert!(is_same || ftl.blocks().live_in(block) == 0, "block {block}");
            }
            history.small = resumed;
            assert!(history.is_right(), "seed {seed}");
            // Collections and a cut show whether the evidence was right.
            history.go_on(20);
            let dice = [NOTHING, EVERYTHING][below(&mut history.dice, 2) as usize];
            history.small = history.small.restart(dice);
            assert!(history.is_right(), "seed {seed}, after a cut");
        }
    }
    noticed
}

#[test]
fn a_device_at_rest_is_what_a_restart_finds() {
    assert_eq!(noticed(|_| ()), 0);
}

#[test]
fn tables_that_take_the_memory_of_the_mapping_table_are_the_same() {
    let mut history = History::new(11);
    history.go_on(60);
    let (tables, now) = (tables_of(&mut history.small), history.small.now);
    let last = history.small.device().rest_for_good(now);
    assert!(tables.is_some());
    assert_eq!(last.expect("there is no cut"), tables);
}

#[test]
fn tables_that_are_not_those_of_the_device_are_noticed() {
    let at = |name| field("rest::rest", name);
    let map = size("rest::rest")..size("rest::rest") + LPNS as usize * 4;
    let entry = |lpn: u32| map.start + lpn as usize * 4;
    // A page in another place.
    let moved = noticed(|tables| tables.swap(entry(3), entry(9)));
    assert!(moved > 100, "{moved}");
    // Two pages in one place.
    let twice = noticed(|tables| tables.copy_within(entry(5)..entry(6), entry(7)));
    assert!(twice > 100, "{twice}");
    // Transactions that need evidence are missing.
    let forgotten = noticed(|tables| {
        let blocks = get(tables, at("BLOCKS")) as usize * 4;
        let own = map.end + blocks;
        tables.truncate(own + size("rest::head"));
        put(&mut tables[own..], field("rest::head", "COUNT"), 0);
    });
    assert!(forgotten > 50, "{forgotten}");
    // Truncated tables, tables of another device, or tables older than the newest root.
    assert_eq!(noticed(|tables| tables.truncate(tables.len() - 1)), 156);
    assert_eq!(noticed(|tables| tables[at("PAGES").start] ^= 1), 156);
    assert_eq!(noticed(|tables| tables[at("GENERATION").start] ^= 1), 156);
}

#[test]
fn tables_of_an_earlier_rest_are_those_of_another_state() {
    let mut history = History::new(7);
    history.go_on(20);
    let tables = tables_of(&mut history.small).expect("it has tables");
    history.go_on(5);
    let ftl = history.small.device().ftl();
    assert!(ftl.compare_with_rest(&tables).is_err());
    assert!(ftl.slot(Lpn(0)).ppn().is_some() || history.holds[0] == 0);
}

#[test]
fn restarts_that_are_bounded_have_no_tables_at_rest() {
    let mut small = Small::new(Kind::SealR, Options::default());
    small.set(1, &[1, 2]);
    assert_eq!(tables_of(&mut small), None);
}

#[test]
fn tables_are_of_no_use_to_protocols_that_give_none() {
    let mut seal = Small::new(Kind::Seal, Options::default());
    seal.set(1, &[1, 2]);
    let tables = tables_of(&mut seal).expect("it has tables");
    for kind in [Kind::SealR, Kind::LightTx, Kind::MhlM] {
        let mut small = Small::new(kind, Options::default());
        small.set(1, &[1, 2]);
        let held = small.values(LPNS);
        let (mut recovered, resumed) = small.both_ways(tables.clone());
        let why = resumed.err().expect("its blocks are read");
        assert_eq!(why, "the tables were of no use", "{kind:?}");
        assert_eq!(recovered.values(LPNS), held, "{kind:?}");
    }
}
