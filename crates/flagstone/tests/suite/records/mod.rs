//! Scenarios on record-level devices. Campaigns with random clients and power cuts are in the lab.
//!
//! Codes       D5, D7, D8, D9, D12, D13 of [`commit::records`]

mod flags;
mod losses;
mod scenarios;
mod shown;
mod table;

use flagstone::commit::{
    DeviceError, MergedPage, Pending, RecordDevice, RecordKind, RecordMistake as Mistake,
    RecordOptions,
};
use flagstone::dice::Dice;
use flagstone::ftl::Config;
use flagstone::nand::{Cell, Chip, Cut, Geometry, PowerCut, Shared, small};
use flagstone::page::{Page, SlotNo};
use flagstone::units::{Lpn, Nanos, Ppn, TxId};
use std::collections::BTreeSet;

/// Logical pages of the small device.
const PAGES: u32 = 60;

/// A small device whose power can fail. All tests of record-level devices use it.
struct Bench {
    kind: RecordKind,
    config: Config,
    options: RecordOptions,
    mistake: Option<Mistake>,
    flash: Shared<PowerCut>,
    device: Option<RecordDevice>,
    now: Nanos,
}

/// A page with records of one byte. A value of 0 stands for no record.
fn image(lsn: u64, records: &[u8]) -> Vec<u8> {
    let (mut page, mut image) = (Page::default(), Vec::new());
    page.set_lsn(lsn);
    for (slot, &value) in (0..).zip(records).filter(|(_, value)| **value > 0) {
        page.put(slot, &[value], 200).expect("it fits");
    }
    page.emit(200, &mut image).expect("it fits");
    image
}

/// Default options for at most `max_c` updaters of a page.
fn options_of(max_c: u8) -> RecordOptions {
    let mut options = RecordOptions::default();
    options.max_c = max_c;
    options
}

impl Bench {
    fn chip(max_c: u8) -> Chip {
        Bench::chip_of(max_c, 2)
    }

    /// A chip. Each plane adds four blocks, since more planes have more open blocks.
    fn chip_of(max_c: u8, planes: u32) -> Chip {
        small::chip(Geometry {
            channels: planes,
            blocks_per_plane: 4 + 36 / planes,
            pages_per_block: 5,
            spare_bytes: 40,
            cell: Cell::Slc {
                partial_programs: max_c + 1,
            },
            strict_order: false,
            ..small::GEOMETRY
        })
    }

    /// A formatted device that is ready for transactions.
    fn new(kind: RecordKind, max_c: u8, mistake: Option<Mistake>) -> Bench {
        Bench::on(Bench::chip(max_c), kind, max_c, mistake)
    }

    fn on(chip: Chip, kind: RecordKind, max_c: u8, mistake: Option<Mistake>) -> Bench {
        Bench::with(chip, kind, options_of(max_c), mistake)
    }

    fn with(
        chip: Chip,
        kind: RecordKind,
        options: RecordOptions,
        mistake: Option<Mistake>,
    ) -> Bench {
        let power = PowerCut::new(chip);
        let mut bench = Bench {
            kind,
            config: Bench::config(),
            options,
            mistake,
            flash: Shared::new(power),
            device: None,
            now: Nanos::ZERO,
        };
        bench.open().expect("there is no cut");
        bench.resolve(&[]);
        bench
    }

    fn config() -> Config {
        Config::small(PAGES, Some(3))
    }

    /// Opens the device without resolving transactions in doubt.
    fn open(&mut self) -> Result<(), DeviceError> {
        let (flash, config) = (Box::new(self.flash.clone()), self.config);
        let device = RecordDevice::open_mistaken(
            flash,
            self.kind,
            config,
            &self.options,
            self.mistake.into(),
            Nanos::ZERO,
        )?;
        self.now = device.recovered_at();
        self.device = Some(device);
        Ok(())
    }

    /// Restarts after a power failure, or with one now. The next failure will be `cut`.
    fn restart(&mut self, dice: u64, cut: Option<Cut>) -> Result<(), DeviceError> {
        self.device = None;
        small::restart(&mut self.flash, dice, dice & 8 != 0, cut);
        self.open()
    }

    /// Cuts the power and restores it. The next failure will be `cut`.
    fn arm(&mut self, cut: Option<Cut>) {
        self.restart(2, cut).expect("it opens");
        self.resolve(&[]);
    }

    fn device(&mut self) -> &mut RecordDevice {
        self.device.as_mut().expect("the power is on")
    }

    fn resolve(&mut self, committed: &[TxId]) {
        let (now, committed) = (self.now, committed.iter().copied().collect::<BTreeSet<_>>());
        self.now = self
            .device()
            .resolve(now, &committed)
            .expect("the power is on");
        self.check();
    }

    fn check(&mut self) {
        self.device().check().expect("the books agree");
    }

    fn begin(&mut self) -> TxId {
        let now = self.now;
        self.device().begin(now).expect("it begins")
    }

    /// Writes a page with records of one byte, where 0 stands for no record. Its LSN is `lsn`.
    fn write(&mut self, at: u32, lsn: u64, records: &[u8], pending: &[(TxId, &[SlotNo])]) {
        let image = image(lsn, records);
        let pending: Vec<Pending> = pending
            .iter()
            .map(|&(tx, slots)| Pending {
                tx,
                slots: slots.to_vec(),
            })
            .collect();
        let now = self.now;
        let done = self.device().write(now, Lpn(at), &image, &pending);
        self.now = done.expect("it can be written");
    }

    fn commit(&mut self, tx: TxId) {
        let now = self.now;
        self.now = self.device().commit(now, tx).expect("it commits");
    }

    fn abort(&mut self, tx: TxId) {
        let now = self.now;
        self.now = self.device().abort(now, tx).expect("it aborts");
    }

    fn read(&mut self, at: u32) -> (Page, MergedPage) {
        let (now, mut merged) = (self.now, MergedPage::default());
        let read = self.device().read(now, Lpn(at), &mut merged);
        self.now = read.expect("it reads");
        let page = Page::parse(&merged.image).expect("it is a page of records");
        (page, merged)
    }

    /// The values of the first `records` records of a page, 0 for a missing one.
    fn values(&mut self, at: u32, records: u16) -> Vec<u8> {
        let (page, _) = self.read(at);
        let value = |slot| page.get(slot).map_or(0, |bytes| bytes[0]);
        (0..records).map(value).collect()
    }

    /// Writes other pages until `collections` blocks have been collected.
    fn churn(&mut self, collections: u64) {
        let until = self.device().stats().collections + collections;
        self.churn_until(|device| device.stats().collections >= until);
    }

    /// Writes other pages until `done` returns `true`.
    fn churn_until(&mut self, done: impl Fn(&RecordDevice) -> bool) {
        let mut dice = Dice(1);
        for _ in 0..20_000 {
            if done(self.device()) {
                return self.check();
            }
            let at = 20 + dice.below(u64::from(PAGES) - 20) as u32;
            self.write(at, 1, &[99], &[]);
        }
        panic!("it never comes to that");
    }
}
