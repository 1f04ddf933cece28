//! SEAL's tables of a device at rest: the transactions that still need evidence.

use super::evidence::{Evidence, Undecided, Witness};
use super::recovery::Recovery;
use crate::ftl::{Ftl, FtlError, Mounted, Resting};
use crate::layout;
use crate::layout::{get, put};
use crate::units::{Nanos, Pbn, TxId};

layout! {
    /// The head of what SEAL adds to the tables of a device at rest.
    pub head: 10 => {
        LAST_TX: 6, "the last transaction that began";
        COUNT:   4, "transactions that need evidence: a record each follows";
    }
}

layout! {
    /// A transaction that needs evidence, in the tables of a device at rest.
    pub undecided: 21 => {
        XID:     6, "the transaction";
        CV:      6, "its place: the write sequence of its last page";
        WITNESS: 1, "what says that it has committed: 0 its pages, 1 a block, 2 the root";
        BLOCK:   4, "that block";
        COUNT:   4, "blocks without a verdict for it: 4 bytes each follow";
    }
}

const PAGES: u64 = 0;
const BLOCK: u64 = 1;
const ROOT: u64 = 2;

/// Encodes the tables, which are valid once everything that they rely on is durable.
pub(super) fn tables(last_tx: TxId, evidence: &Evidence) -> Vec<u8> {
    let all = evidence.all();
    let mut bytes = vec![0; head::SIZE];
    put(&mut bytes, head::LAST_TX, last_tx.0);
    put(&mut bytes, head::COUNT, all.len() as u64);
    for (tx, open) in all {
        let mut record = [0; undecided::SIZE];
        let (witness, block) = match open.witness {
            Witness::None => (PAGES, Pbn(0)),
            Witness::Block(block) => (BLOCK, block),
            Witness::Root => (ROOT, Pbn(0)),
        };
        put(&mut record, undecided::XID, tx.0);
        put(&mut record, undecided::CV, open.cv);
        put(&mut record, undecided::WITNESS, witness);
        put(&mut record, undecided::BLOCK, block.0.into());
        put(&mut record, undecided::COUNT, open.blocks.len() as u64);
        bytes.extend(record);
        let blocks = open.blocks.iter().flat_map(|block| block.0.to_le_bytes());
        bytes.extend(blocks);
    }
    bytes
}

/// Takes over the tables, and ends the mount.
pub(super) fn resume(
    ftl: &mut Ftl,
    mounted: &Mounted,
    tables: &Resting,
) -> Result<Recovery, FtlError> {
    let own = ftl.resume(mounted, tables)?;
    let blocks = ftl.geometry().blocks();
    let (last_tx, all) = parse(own, blocks).ok_or_else(|| {
        FtlError::Foreign("its tables at rest are wrong: a transaction that cannot be".into())
    })?;
    Ok(Recovery {
        evidence: Evidence::found(all.into_iter()),
        bounds: None,
        with_sums: Vec::new(),
        listing: mounted.blob.clone(),
        last_tx,
        done: mounted.done,
        // No decisions: the tables are used as they are.
        rulings: Vec::new(),
    })
}

/// The last transaction, and those that need evidence.
fn parse(mut bytes: &[u8], blocks: u32) -> Option<(TxId, Vec<(TxId, Undecided)>)> {
    let record = bytes.split_off(..head::SIZE)?;
    let last_tx = TxId(get(record, head::LAST_TX));
    let mut all = Vec::new();
    for _ in 0..get(record, head::COUNT) {
        let record = bytes.split_off(..undecided::SIZE)?;
        let block = |number: u32| (number < blocks).then_some(Pbn(number));
        let named = get(record, undecided::BLOCK) as u32;
        let count = get(record, undecided::COUNT) as usize;
        let list = bytes.split_off(..count.checked_mul(4)?)?;
        let list = list.as_chunks::<4>().0.iter();
        let open = Undecided {
            cv: get(record, undecided::CV),
            durable: Nanos::ZERO,
            blocks: list
                .map(|word| block(u32::from_le_bytes(*word)))
                .collect::<Option<Vec<Pbn>>>()?,
            witness: match get(record, undecided::WITNESS) {
                PAGES => Witness::None,
                BLOCK => Witness::Block(block(named)?),
                ROOT => Witness::Root,
                _ => return None,
            },
        };
        let tx = TxId(get(record, undecided::XID));
        let is_next = all.last().is_none_or(|&(before, _)| before < tx);
        if !is_next || open.blocks.is_empty() {
            return None;
        }
        all.push((tx, open));
    }
    bytes.is_empty().then_some((last_tx, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::small_device::{self, EVERYTHING, NOTHING, PAGES as LPNS, Small, below};
    use crate::commit::{Kind, Options};
    use crate::ftl::Config;
    use crate::ftl::rest::rest;
    use crate::units::Lpn;

    /// A device with a history, and the contents of its pages.
    struct History {
        small: Small,
        holds: Vec<u8>,
        dice: u32,
    }

    impl History {
        fn new(seed: u32) -> History {
            let options = Options::default().with("linger", seed % 3);
            let config = Config {
                works_ahead: seed % 4 > 1,
                ..Config::small(LPNS, Some(3))
            };
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
                    assert_eq!(is.blocks.live_in(block), ftl.blocks.live_in(block));
                    // An erase or program that the cut took back makes a difference only where no
                    // page is live.
                    let is_same = is.blocks.state(block) == ftl.blocks.state(block);
                    assert!(is_same || ftl.blocks.live_in(block) == 0, "block {block}");
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
        let map = rest::SIZE..rest::SIZE + LPNS as usize * 4;
        let entry = |lpn: u32| map.start + lpn as usize * 4;
        // A page in another place.
        let moved = noticed(|tables| tables.swap(entry(3), entry(9)));
        assert!(moved > 100, "{moved}");
        // Two pages in one place.
        let twice = noticed(|tables| tables.copy_within(entry(5)..entry(6), entry(7)));
        assert!(twice > 100, "{twice}");
        // Transactions that need evidence are missing.
        let forgotten = noticed(|tables| {
            let blocks = get(tables, rest::BLOCKS) as usize * 4;
            let own = map.end + blocks;
            tables.truncate(own + head::SIZE);
            put(&mut tables[own..], head::COUNT, 0);
        });
        assert!(forgotten > 50, "{forgotten}");
        // Truncated tables, tables of another device, or tables older than the newest root.
        assert_eq!(noticed(|tables| tables.truncate(tables.len() - 1)), 156);
        assert_eq!(noticed(|tables| tables[rest::PAGES.start] ^= 1), 156);
        assert_eq!(noticed(|tables| tables[rest::GENERATION.start] ^= 1), 156);
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
}
