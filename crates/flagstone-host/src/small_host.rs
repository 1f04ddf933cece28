//! A small host with restarts: the fixture of all host tests. Interleaved clients, random cuts and
//! an oracle are in the lab's campaigns.

use super::{Host, HostConfig, HostError, Rid, Stack, Step};
use flagstone::commit::{DeviceError, Options};
use flagstone::ftl::{Config, FtlError};
use flagstone::nand::{Cell, Chip, Cut, Geometry, PowerCut, Shared, small};
use flagstone::units::{Lpn, Nanos, TxId};
use std::collections::BTreeMap;

/// The contents of a slot; `None` if it has no record.
pub(super) type Value = Option<Vec<u8>>;

pub(super) const PAGES: u32 = 20;
pub(super) const SLOTS: u16 = 6;
/// Number of logical pages of the device.
const LOGICAL: u32 = 60;

pub(super) fn config() -> HostConfig {
    let config = HostConfig {
        frames: 6,
        log_pages: 20,
        ..HostConfig::default()
    };
    config
        .with("log_buffer_bytes", 600)
        .with("checkpoint_every", 4)
}

pub(super) fn chip(stack: Stack) -> Chip {
    let flags_records = stack.record_kind().is_some();
    small::chip(Geometry {
        blocks_per_plane: 36,
        pages_per_block: 6,
        cell: Cell::Slc {
            partial_programs: if flags_records { 4 } else { 3 },
        },
        strict_order: !flags_records,
        ..small::GEOMETRY
    })
}

pub(super) fn device() -> Config {
    Config::small(LOGICAL, Some(3))
}

/// A host whose flash survives it.
pub(super) struct SmallHost {
    pub(super) stack: Stack,
    pub(super) config: HostConfig,
    flash: Shared<PowerCut>,
    pub(super) host: Option<Host>,
    pub(super) now: Nanos,
    /// Number of cuts during a restart.
    pub(super) cut_restarts: u32,
}

pub(super) fn is_power_loss(error: &HostError) -> bool {
    matches!(
        error,
        HostError::Device(DeviceError::Ftl(FtlError::PowerLost))
    )
}

impl SmallHost {
    pub(super) fn new(stack: Stack, config: HostConfig) -> SmallHost {
        let power = PowerCut::new(chip(stack));
        let mut small = SmallHost {
            stack,
            config: config.keep_those_of(stack),
            flash: Shared::new(power),
            host: None,
            now: Nanos::ZERO,
            cut_restarts: 0,
        };
        small.open().expect("a blank device");
        small
    }

    pub(super) fn open(&mut self) -> Result<(), HostError> {
        let flash = Box::new(self.flash.clone());
        let (stack, config) = (self.stack, &self.config);
        let host = Host::open(
            flash,
            stack,
            device(),
            &Options::default(),
            config,
            Nanos::ZERO,
        )?;
        self.now = host.recovered_at();
        host.verify().expect("the books agree after recovery");
        self.host = Some(host);
        Ok(())
    }

    /// Arms `cut`, counted from now; operations in flight now have landed. The cut may hit this
    /// restart, which writes.
    pub(super) fn arm(&mut self, cut: Cut) {
        self.switch_on(1, Some(cut));
    }

    /// Restarts after a power cut, or cuts the power now. If `cut` hits the restart, another
    /// restart without a cut follows.
    pub(super) fn restart(&mut self, cut: Option<Cut>) {
        self.switch_on(6, cut);
    }

    fn switch_on(&mut self, dice: u64, cut: Option<Cut>) {
        self.host = None;
        small::restart(&mut self.flash, dice, false, cut);
        if let Err(error) = self.open() {
            assert!(is_power_loss(&error), "{error}");
            self.cut_restarts += 1;
            self.switch_on(6, None);
        }
    }

    /// Programs, reprograms and erases since the last start.
    pub(super) fn issued(&self) -> u64 {
        self.flash.look(PowerCut::issued)
    }

    pub(super) fn host(&mut self) -> &mut Host {
        self.host.as_mut().expect("the power is on")
    }

    pub(super) fn begin(&mut self) -> TxId {
        let now = self.now;
        self.host().begin(now).expect("a transaction can begin")
    }

    /// Writes a record without contention.
    pub(super) fn write(&mut self, tx: TxId, rid: Rid, value: Option<&[u8]>) {
        let now = self.now;
        match self.host().write(now, tx, rid, value).expect("it writes") {
            Step::Done((), done) => self.now = done,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn value(&mut self, tx: TxId, rid: Rid) -> Value {
        let (now, mut bytes) = (self.now, Vec::new());
        match self
            .host()
            .read(now, tx, rid, &mut bytes)
            .expect("it reads")
        {
            Step::Done(there, done) => {
                self.now = done;
                there.then_some(bytes)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn commit(&mut self, tx: TxId) {
        let now = self.now;
        match self.host().commit(now, tx).expect("it commits") {
            Step::Done((), done) => self.now = done,
            Step::Waits => {
                let all = self.host().acknowledged(now, true).expect("a group");
                self.now = all.iter().find(|(done, _)| *done == tx).expect("it").1;
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn abort(&mut self, tx: TxId) {
        let now = self.now;
        self.now = self.host().abort(now, tx).expect("it rolls back");
    }

    /// Returns all records, read in a transaction. Repeats the reads after a restart if the power
    /// fails meanwhile.
    pub(super) fn contents(&mut self) -> BTreeMap<Rid, Vec<u8>> {
        loop {
            match self.try_contents() {
                Ok(all) => return all,
                Err(error) => assert!(is_power_loss(&error), "{error}"),
            }
            self.restart(None);
        }
    }

    /// Returns all records, or the error if the power fails meanwhile.
    fn try_contents(&mut self) -> Result<BTreeMap<Rid, Vec<u8>>, HostError> {
        let tx = self.begin();
        let (mut all, mut bytes) = (BTreeMap::new(), Vec::new());
        for rid in rids() {
            let now = self.now;
            match self.host().read(now, tx, rid, &mut bytes)? {
                Step::Done(there, done) => {
                    self.now = done;
                    if there {
                        all.insert(rid, bytes.clone());
                    }
                }
                other => panic!("{other:?}: nobody is in the way"),
            }
        }
        let now = self.now;
        self.host().commit(now, tx)?;
        Ok(all)
    }
}

pub(super) fn rid(page: u32, slot: u16) -> Rid {
    let page = Lpn(page);
    Rid { page, slot }
}

pub(super) fn rids() -> impl Iterator<Item = Rid> {
    (0..PAGES).flat_map(|page| (0..SLOTS).map(move |slot| rid(page, slot)))
}
