//! Damages superblocks. Random histories end with a killed process, a cut or a close, and then one
//! superblock (rarely both) is lost. If the store opens, it must hold the committed data, and its
//! check must report the damage; otherwise the opening must fail. A repair must restore everything,
//! or report that something is lost.
//!
//! Control: the whole medium is replaced by an earlier version of itself. No store can detect that,
//! so the campaign must.

use super::model::{Model, Places, Writes, bytes_of};
use crate::campaign::caught;
use flagstone::commit::{DeviceError, Kind};
use flagstone::units::Lpn;
use flagstone_store::medium::{Landing, Medium, Recorded};
use flagstone_store::tools::{Hints, repair};
use flagstone_store::{MEDIUM_PAGE_BYTES, OpenOptions, PageStore, StoreError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fmt;
use std::ops::AddAssign;
use std::path::Path;

/// One in this many damaged stores is repaired as well, which needs files.
const REPAIRS: u32 = 4;

/// One in this many stores loses both superblocks.
const BOTH: u32 = 10;

/// The task of a superblock campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadCampaign {
    /// The commit protocol.
    pub protocol: Kind,
    /// Whether the stores are encrypted.
    pub encrypted: bool,
    /// Control: replace the medium by an earlier version instead of damaging it.
    pub aged: bool,
    /// Minimum number of damaged stores: each history is damaged several times.
    pub damages: u64,
    /// Seed of the campaign.
    pub seed: u64,
}

/// Results of a campaign.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeadTally {
    /// Damaged stores.
    pub damaged: u64,
    /// Damaged stores that opened with all data.
    pub opened: u64,
    /// Damaged stores that failed to open.
    pub refused: u64,
    /// Damaged stores that were repaired with all data.
    pub repaired: u64,
    /// Repairs that reported a loss, or failed.
    pub unrepaired: u64,
    /// Stores whose two superblocks had different numbers of blocks.
    pub grown: u64,
    /// Stores with other contents than were committed, or with unreported damage.
    pub violations: u64,
    /// The first violation.
    pub first: Option<String>,
}

impl AddAssign for HeadTally {
    fn add_assign(&mut self, other: HeadTally) {
        self.damaged += other.damaged;
        self.opened += other.opened;
        self.refused += other.refused;
        self.repaired += other.repaired;
        self.unrepaired += other.unrepaired;
        self.grown += other.grown;
        self.violations += other.violations;
        self.first = self.first.take().or(other.first);
    }
}

/// How a superblock is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Zeros,
    Ones,
    Noise(u64),
    /// One bit of its record is flipped.
    Flip(usize),
    /// It is overwritten with the other copy.
    Other,
    /// Reads of it fail.
    Refused,
    /// Control: the medium is an earlier version of itself.
    Aged,
}

/// A damage, and the superblock or superblocks that it affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    damage: Damage,
    /// The number of the affected superblock, if not both are.
    copy: usize,
    both_superblocks: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.both_superblocks {
            write!(f, "{:?} over both superblocks", self.damage)
        } else {
            write!(f, "{:?} over superblock {}", self.damage, self.copy)
        }
    }
}

/// The byte range of a superblock's field.
fn field(name: &str) -> std::ops::Range<usize> {
    let record = flagstone_store::LAYOUTS
        .iter()
        .find(|record| record.path.ends_with("::superblock"))
        .expect("stores have superblocks");
    let mut fields = record.fields.iter();
    let &(_, at, bytes, _) = fields
        .find(|field| field.0 == name)
        .expect("a superblock has it");
    at..at + bytes
}

/// Reads the number in a field of a superblock.
fn said(head: &[u8], copy: usize, name: &str) -> u64 {
    let mut word = [0; 8];
    let bytes = &head[copy * MEDIUM_PAGE_BYTES..][field(name)];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The index of the newer superblock.
fn newest(head: &[u8]) -> usize {
    usize::from(said(head, 1, "SEQUENCE") > said(head, 0, "SEQUENCE"))
}

impl Case {
    /// Draws a damage of a medium with the superblocks `head`. A single damage hits the newer one
    /// two of three times. With `aged` it is the control.
    fn draw(aged: bool, head: &[u8], dice: &mut Pcg64Mcg) -> Case {
        let damage = match dice.random_range(0..6) {
            _ if aged => Damage::Aged,
            0 => Damage::Zeros,
            1 => Damage::Ones,
            2 => Damage::Noise(dice.random()),
            3 => Damage::Flip(dice.random_range(0..8 * field("CRC").end)),
            4 => Damage::Other,
            _ => Damage::Refused,
        };
        let newest = newest(head);
        let copy = match dice.random_range(0..3) {
            0 if !aged => 1 - newest,
            _ => newest,
        };
        // Each overwritten with the other would leave both whole.
        let both_superblocks = damage != Damage::Other && !aged && dice.random_range(0..BOTH) == 0;
        Case {
            damage,
            copy,
            both_superblocks,
        }
    }

    /// A copy of the medium with this damage applied.
    fn on(&self, left: &Recorded) -> Recorded {
        let mut bytes = left.to_vec();
        let copies = if self.both_superblocks {
            0..2
        } else {
            self.copy..self.copy + 1
        };
        for copy in copies.clone() {
            self.write(&mut bytes, copy);
        }
        let medium = Recorded::with(&bytes);
        if self.damage == Damage::Refused {
            medium.refuse(&copies.map(|copy| copy as u64).collect::<Vec<_>>());
        }
        medium
    }

    /// Damages superblock number `copy` in the bytes of a medium.
    fn write(&self, bytes: &mut [u8], copy: usize) {
        let (here, other) = (copy * MEDIUM_PAGE_BYTES, (1 - copy) * MEDIUM_PAGE_BYTES);
        let page = here..here + MEDIUM_PAGE_BYTES;
        match self.damage {
            Damage::Zeros => bytes[page].fill(0),
            Damage::Ones => bytes[page].fill(0xff),
            Damage::Noise(seed) => {
                let mut dice = Pcg64Mcg::seed_from_u64(seed);
                bytes[page].fill_with(|| dice.random());
            }
            Damage::Flip(bit) => bytes[here + bit / 8] ^= 1 << (bit % 8),
            Damage::Other => bytes.copy_within(other..other + MEDIUM_PAGE_BYTES, here),
            // In a file a bad sector is replaced by noise.
            Damage::Refused => bytes[page].fill(0xbd),
            Damage::Aged => {}
        }
    }
}

/// A history in progress.
struct HeadRun<'a> {
    task: &'a HeadCampaign,
    folder: &'a Path,
    options: OpenOptions,
    places: Places,
    dice: Pcg64Mcg,
    model: Model,
    /// An earlier version of the medium, for the control.
    older: Option<Recorded>,
    tag: u64,
    tally: HeadTally,
}

impl HeadCampaign {
    /// Executes the campaign. `progress` receives the number of damaged stores examined.
    ///
    /// # Errors
    /// The folder for files of repairs cannot be created.
    pub fn run(&self, progress: &dyn Fn(u64)) -> std::io::Result<HeadTally> {
        let folder = tempfile::tempdir()?;
        let mut tally = HeadTally::default();
        // Each history is damaged at least once, unless its store fails before that.
        for number in 0..self.damages {
            if tally.damaged >= self.damages {
                break;
            }
            let seed = self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(number);
            let one = self.one(folder.path(), seed);
            progress(one.damaged);
            tally += one;
        }
        Ok(tally)
    }

    /// Runs one history, determined by its seed.
    fn one(&self, folder: &Path, seed: u64) -> HeadTally {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let mut options = OpenOptions::default().with_protocol(self.protocol);
        options.pages_per_block = [16, 16, 24, 32][dice.random_range(0..4)];
        options.space = [1.2, 1.5, 4.0][dice.random_range(0..3)];
        #[cfg(feature = "encryption")]
        if self.encrypted {
            options.key = Some(flagstone_store::Key::raw([17; 32]));
        }
        let mut run = HeadRun {
            task: self,
            folder,
            options,
            places: Places {
                count: dice.random_range(10..150),
                apart: [1, 1, dice.random_range(2..12)][dice.random_range(0..3)],
            },
            dice,
            model: Model::default(),
            older: None,
            tag: 0,
            tally: HeadTally::default(),
        };
        if let Err(what) = caught(|| run.live()) {
            run.tally.violations += 1;
            run.tally
                .first
                .get_or_insert(format!("seed {seed}: {what}"));
        }
        let tally = run.tally;
        HeadTally {
            first: tally.first.map(|what| format!("seed {seed}: {what}")),
            ..tally
        }
    }
}

fn failed(what: &str) -> impl Fn(StoreError) -> String + '_ {
    move |error| format!("{what}: {error}")
}

impl HeadRun<'_> {
    /// Commits to a store over a few lives, and damages the medium after each.
    fn live(&mut self) -> Result<(), String> {
        let mut medium = Recorded::default();
        for _ in 0..self.dice.random_range(1..4) {
            let opened = PageStore::on(Box::new(medium.clone()), &self.options);
            let mut store = opened.map_err(failed("it does not open"))?;
            for _ in 0..self.dice.random_range(1..60) {
                self.commit(&mut store)?;
                if self.dice.random_range(0..20) == 0 {
                    self.damage(&medium.cut(Landing::Nothing));
                }
            }
            // The life ends with a close, a killed process, or a cut.
            let left = match self.dice.random_range(0..3) {
                0 => {
                    store.close().map_err(failed("close"))?;
                    medium.cut(Landing::Nothing)
                }
                1 => medium.cut(Landing::Everything),
                _ => medium.cut(Landing::Sectors(self.dice.random())),
            };
            for _ in 0..3 {
                self.damage(&left);
            }
            medium = left;
        }
        Ok(())
    }

    /// A transaction of a few pages.
    fn commit(&mut self, store: &mut PageStore) -> Result<(), String> {
        let tx = store.begin().map_err(failed("begin"))?;
        let mut writes = Writes::new();
        for _ in 0..self.dice.random_range(1..12) {
            let at = self.places.draw(&mut self.dice);
            if writes.contains_key(&at) {
                continue;
            }
            self.tag += 1;
            let trims = self.dice.random_range(0..8) == 0;
            let written = if trims {
                store.trim(tx, Lpn(at))
            } else {
                store.write(tx, Lpn(at), &bytes_of(self.tag))
            };
            match written {
                Ok(()) => _ = writes.insert(at, (!trims).then_some(self.tag)),
                // The protocol cannot accept this page now.
                Err(StoreError::Device(DeviceError::Conflict { .. })) => {}
                Err(error) => return Err(failed("write")(error)),
            }
        }
        store.commit(tx).map_err(failed("commit"))?;
        self.model = self.model.with(&writes);
        Ok(())
    }

    /// Damages the medium once, and examines it in all ways. The control examines the medium of the
    /// previous call, unharmed, against the newer model.
    fn damage(&mut self, left: &Recorded) {
        let older;
        let mut left = left;
        if self.task.aged {
            let Some(before) = self.older.replace(left.snapshot()) else {
                return;
            };
            older = before;
            left = &older;
        }
        let mut head = vec![0; 2 * MEDIUM_PAGE_BYTES];
        left.read_at(0, &mut head).expect("nothing is refused");
        let case = Case::draw(self.task.aged, &head, &mut self.dice);
        let has_grown = said(&head, 0, "BLOCKS") != said(&head, 1, "BLOCKS");
        self.tally.damaged += 1;
        self.tally.grown += u64::from(has_grown);
        let repairs = self.dice.random_range(0..REPAIRS) == 0;
        let looked = self.open(left, case).and_then(|()| {
            if repairs {
                self.repair(left, case)
            } else {
                Ok(())
            }
        });
        if let Err(what) = looked {
            self.tally.violations += 1;
            self.tally.first.get_or_insert(format!("{case}: {what}"));
        }
    }

    /// Opens a damaged store: read-only, with a check, and for writing. It must hold the model's
    /// pages and take another commit. If it does not open read-only, it may not open for writing.
    fn open(&mut self, left: &Recorded, case: Case) -> Result<(), String> {
        let reading = self.options.clone().reading().uncached();
        let opened = PageStore::on(Box::new(case.on(left)), &reading);
        let mut store = match opened {
            Ok(_) if case.both_superblocks => return Err("it opens without a superblock".into()),
            Ok(store) => store,
            Err(_) => {
                let writing = PageStore::on(Box::new(case.on(left)), &self.options);
                if writing.is_ok() {
                    return Err("it opens for writing and not for reading".into());
                }
                self.tally.refused += 1;
                return Ok(());
            }
        };
        self.model.compare(&mut store, self.places)?;
        let report = store.check().map_err(failed("check"))?;
        if report.is_well() && case.damage != Damage::Aged {
            return Err("a check says that all is well".into());
        }
        drop(store);
        let medium = case.on(left);
        let open = || PageStore::on(Box::new(medium.clone()), &self.options);
        let mut store = open().map_err(failed("it does not open for writing"))?;
        self.model.compare(&mut store, self.places)?;
        let tx = store.begin().map_err(failed("begin"))?;
        let at = self.places.at(0);
        let written = store.write(tx, Lpn(at), &bytes_of(1 << 40));
        written.map_err(failed("write"))?;
        store.commit(tx).map_err(failed("commit"))?;
        store.close().map_err(failed("close"))?;
        let after = self.model.with(&Writes::from([(at, Some(1 << 40))]));
        let mut store = open().map_err(failed("it does not open again"))?;
        after.compare(&mut store, self.places)?;
        self.tally.opened += 1;
        Ok(())
    }

    /// Repairs a damaged store. One that lost both superblocks may stay unrepaired, or lose data if
    /// the repair reports it; its protocol is given to the repair, which cannot find it. Any other
    /// store must be repaired with all data.
    fn repair(&mut self, left: &Recorded, case: Case) -> Result<(), String> {
        let (from, to) = (self.folder.join("damaged"), self.folder.join("repaired"));
        let written = std::fs::write(&from, case.on(left).to_vec());
        written.map_err(|error| error.to_string())?;
        let hints = Hints {
            protocol: case.both_superblocks.then_some(self.task.protocol),
            ..Hints::default()
        };
        // Another repair may have written the same file before.
        let replaces = true;
        let report = match repair(&from, &to, &self.options, &hints, replaces, &mut |_, _| ()) {
            Ok(report) => report,
            Err(_) if case.both_superblocks => {
                self.tally.unrepaired += 1;
                return Ok(());
            }
            Err(error) => return Err(failed("it is not repaired")(error)),
        };
        let opened = PageStore::open(&to, &self.options.clone().reading());
        let mut store = opened.map_err(failed("what was repaired does not open"))?;
        match self.model.compare(&mut store, self.places) {
            Ok(()) => self.tally.repaired += 1,
            Err(_) if case.both_superblocks && !report.is_whole() => self.tally.unrepaired += 1,
            Err(what) => return Err(format!("repaired, {what}; it says {report:?}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn campaign(protocol: Kind, aged: bool, damages: u64) -> HeadTally {
        let task = HeadCampaign {
            protocol,
            encrypted: false,
            aged,
            damages,
            seed: 11,
        };
        task.run(&|_| ()).expect("a folder")
    }

    #[test]
    fn a_lost_superblock_loses_nothing_in_silence() {
        let mut all = HeadTally::default();
        for &protocol in Kind::ALL.iter().filter(|&&kind| super::super::suits(kind)) {
            let tally = campaign(protocol, false, 120);
            assert_eq!((tally.violations, &tally.first), (0, &None), "{protocol}");
            all += tally;
        }
        let seen = [all.opened, all.refused, all.repaired, all.grown];
        assert!(seen.iter().all(|&count| count > 10), "{all:?}");
    }

    #[test]
    #[cfg(feature = "encryption")]
    fn a_lost_superblock_of_an_encrypted_store_loses_nothing_in_silence() {
        let task = HeadCampaign {
            protocol: Kind::Seal,
            encrypted: true,
            aged: false,
            damages: 120,
            seed: 12,
        };
        let tally = task.run(&|_| ()).expect("a folder");
        assert_eq!((tally.violations, tally.first), (0, None));
    }

    #[test]
    fn a_newest_superblock_that_knows_what_an_older_one_knew_is_found_out() {
        for protocol in [Kind::Seal, Kind::Scc] {
            assert!(campaign(protocol, true, 400).violations > 0, "{protocol}");
        }
    }
}
