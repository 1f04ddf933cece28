//! The subject: a protocol for logical pages, or one for records, on the smallest device that suits
//! it.

use crate::payload::write_of;
use flagstone::commit::{
    Device, DeviceError, Field, Kind, MergedPage, Options, Pending, RecordDevice, RecordKind,
    RecordOptions, Row, Ruling, Table,
};
use flagstone::ftl::{BlockState, Cause, Config, Ftl, Operation};
use flagstone::nand::{Cell, Chip, Flash, Geometry, Pairing, Timing};
use flagstone::page::Page;
use flagstone::units::{Lpn, Nanos, Pbn, TxId};
use std::collections::{BTreeMap, BTreeSet};

/// A form of a protocol: repaired or as published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// With the project's repairs.
    Default,
    /// As published in the paper.
    Published,
}

/// What the printed forms of record protocols lose: see the header of `flagstone::commit::records`.
const PUBLISHED_RECORDS: [&str; 2] = [
    "The printed form sets flags before the pages that they commit are durable. The repaired form \
     waits: all pages of a transaction are durable before the first flag that commits it.",
    "The printed form reclaims a version whose pending records are all aborted, and with it what \
     others had committed there. In the repaired form, records that are not pending count as \
     committed when a version is to be reclaimed.",
];

/// A protocol, for pages or for records.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Pages(Kind),
    Records(RecordKind),
}

impl What {
    pub(crate) fn by_name(name: &str) -> Option<What> {
        let records = || {
            RecordKind::ALL
                .into_iter()
                .find(|kind| kind.info().name == name)
        };
        Kind::by_name(name)
            .map(What::Pages)
            .or_else(|| records().map(What::Records))
    }

    pub(crate) fn names() -> Vec<&'static str> {
        let pages = Kind::ALL.iter().map(|kind| kind.info().name);
        pages
            .chain(RecordKind::ALL.iter().map(|kind| kind.info().name))
            .collect()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            What::Pages(kind) => kind.info().name,
            What::Records(kind) => kind.info().name,
        }
    }

    /// What the printed form leaves out, and what is lost with it; empty if nothing is.
    pub(crate) fn published(self) -> Vec<String> {
        match self {
            What::Pages(kind) => kind.info().published.map_or(Vec::new(), |printed| {
                vec![format!(
                    "The printed form leaves out {} (docs/protocols.md#departures). {}",
                    printed.without, printed.loses
                )]
            }),
            What::Records(_) => PUBLISHED_RECORDS.map(String::from).to_vec(),
        }
    }

    pub(crate) fn idea(self) -> &'static str {
        match self {
            What::Pages(kind) => kind.info().idea,
            What::Records(kind) => kind.info().idea,
        }
    }

    pub(crate) fn recovery(self) -> &'static [Row] {
        match self {
            What::Pages(kind) => kind.info().recovery,
            What::Records(kind) => kind.info().recovery(),
        }
    }

    pub(crate) fn tail_fields(self, spare: &[u8]) -> Vec<Field> {
        match self {
            What::Pages(kind) => kind.info().tail_fields(spare),
            What::Records(kind) => kind.info().tail_fields(spare),
        }
    }

    pub(crate) fn root_fields(self, data: &[u8]) -> Vec<Vec<Field>> {
        match self {
            What::Pages(kind) => kind.info().root_fields(data),
            What::Records(kind) => kind.info().root_fields(data),
        }
    }

    pub(crate) fn flag(self, flag: u8) -> Option<&'static str> {
        match self {
            What::Pages(kind) => kind.info().flag.map(|says| says(flag)),
            What::Records(kind) => Some((kind.info().flag)(flag)),
        }
    }
}

/// The protocol, and the device.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) what: What,
    pub(super) geometry: Geometry,
    config: Config,
}

impl Subject {
    /// The smallest device of two planes with `pages` logical pages that suits the protocol.
    pub(super) fn new(what: What, pages: u32) -> Subject {
        let mut config = Config::default();
        config.over_provision = 0.0;
        config.logical_pages = Some(pages);
        config.gc_threshold = 0.0;
        let mut geometry = Geometry {
            channels: 1,
            packages_per_channel: 1,
            planes_per_package: 2,
            blocks_per_plane: 3,
            pages_per_block: 6,
            page_bytes: 512,
            spare_bytes: 64,
            cell: Cell::Slc {
                partial_programs: 3,
            },
            strict_order: false,
            pairing: Pairing::None,
        };
        let suits = |geometry: &Geometry| match what {
            What::Pages(kind) => kind.suits(geometry, &config),
            What::Records(kind) => {
                RecordDevice::suits(kind, geometry, &config, &RecordOptions::default())
            }
        };
        while suits(&geometry).is_err() && geometry.blocks_per_plane < 64 {
            geometry.blocks_per_plane += 1;
        }
        // Space for pages of live transactions, and for zones.
        let zoned = matches!(what, What::Pages(kind) if kind.info().format.zoned);
        geometry.blocks_per_plane += if zoned { 5 } else { 1 };
        Subject {
            what,
            geometry,
            config,
        }
    }

    pub(super) fn blank(&self) -> Chip {
        Chip::new(self.geometry, Timing::default(), 64)
    }

    pub(super) fn has_published(&self) -> bool {
        !self.what.published().is_empty()
    }

    pub(super) fn is_atomic(&self) -> bool {
        match self.what {
            What::Pages(kind) => kind.info().atomic,
            What::Records(_) => true,
        }
    }
}

enum Running {
    Pages(Device),
    Records(Records),
}

/// A record device and its host's memory: the newest image of each page, and the transaction whose
/// record in it is pending.
struct Records {
    device: RecordDevice,
    images: BTreeMap<u32, (Page, Option<u64>)>,
    page_bytes: usize,
}

/// A running device, and its transactions by name.
pub(super) struct Machine {
    running: Running,
    transactions: BTreeMap<u64, TxId>,
}

/// The record of a page that transactions write.
const SLOT: u16 = 0;

impl Machine {
    /// Starts a device from its flash alone.
    pub(super) fn start(
        subject: &Subject,
        form: Form,
        flash: Box<dyn Flash>,
    ) -> Result<Machine, DeviceError> {
        let published = form == Form::Published;
        let running = match subject.what {
            What::Pages(kind) => {
                let mut options = Options::default();
                options.as_published = published;
                options.tells = true;
                let device = Device::open(flash, kind, subject.config, &options, Nanos::ZERO)?;
                Running::Pages(device)
            }
            What::Records(kind) => {
                let mut options = RecordOptions::default();
                options.as_published = published;
                options.tells = true;
                let config = subject.config;
                let mut device = RecordDevice::open(flash, kind, config, &options, Nanos::ZERO)?;
                // The host's log is not part of the example: it has no commits.
                device.resolve(device.recovered_at(), &BTreeSet::new())?;
                Running::Records(Records {
                    device,
                    images: BTreeMap::new(),
                    page_bytes: subject.geometry.page_bytes as usize / 2,
                })
            }
        };
        Ok(Machine {
            running,
            transactions: BTreeMap::new(),
        })
    }

    pub(super) fn recovered_at(&self) -> Nanos {
        match &self.running {
            Running::Pages(device) => device.recovered_at(),
            Running::Records(records) => records.device.recovered_at(),
        }
    }

    pub(super) fn rulings(&self) -> Vec<Ruling> {
        match &self.running {
            Running::Pages(device) => device.rulings().to_vec(),
            Running::Records(records) => records.device.rulings().to_vec(),
        }
    }

    pub(super) fn tables(&self) -> Vec<Table> {
        match &self.running {
            Running::Pages(device) => device.tables(),
            Running::Records(records) => records.device.tables(),
        }
    }

    pub(super) fn ftl(&self) -> &Ftl {
        match &self.running {
            Running::Pages(device) => device.ftl(),
            Running::Records(records) => records.device.ftl(),
        }
    }

    /// Number of pages copied by the collector.
    pub(super) fn copies(&self) -> u64 {
        self.ftl().stats().count(Operation::Program, Cause::Gc)
    }

    /// Whether a block is for data pages.
    pub(super) fn has_data(&self, block: u32) -> bool {
        self.ftl().blocks().state(Pbn(block)) != BlockState::Meta
    }

    pub(super) fn begin(&mut self, now: Nanos, name: u64) -> Result<Nanos, DeviceError> {
        let tx = match &mut self.running {
            Running::Pages(device) => device.begin(now)?,
            Running::Records(records) => records.device.begin(now)?,
        };
        self.transactions.insert(name, tx);
        Ok(now)
    }

    fn tx(&self, name: u64) -> TxId {
        self.transactions[&name]
    }

    /// Writes a page in transaction `name`. A record device gets the page's newest image with
    /// `bytes` as its record. Returns when the program is done.
    pub(super) fn write(
        &mut self,
        now: Nanos,
        name: u64,
        page: u32,
        bytes: &[u8],
    ) -> Result<Nanos, DeviceError> {
        let tx = self.tx(name);
        match &mut self.running {
            Running::Pages(device) => Ok(device.write(now, tx, Lpn(page), bytes)?.done),
            Running::Records(records) => {
                let (image, pending) = records.images.entry(page).or_default();
                image.put(SLOT, bytes, records.page_bytes).expect("it fits");
                *pending = Some(name);
                let mut flat = Vec::new();
                image.emit(records.page_bytes, &mut flat).expect("it fits");
                let slots = vec![SLOT];
                let pending = [Pending { tx, slots }];
                Ok(records.device.write(now, Lpn(page), &flat, &pending)?)
            }
        }
    }

    /// Commits transaction `name`. Returns when that is durable.
    pub(super) fn commit(&mut self, now: Nanos, name: u64) -> Result<Nanos, DeviceError> {
        let tx = self.tx(name);
        match &mut self.running {
            Running::Pages(device) => match device.commit(now, tx)? {
                Some(done) => Ok(done),
                // The commit waits for its group. Tell the group that no other client comes.
                None => {
                    let done = device.acknowledged(now, true)?;
                    let own = done.iter().find(|(ended, _)| *ended == tx);
                    Ok(own.map_or(now, |&(_, at)| at))
                }
            },
            Running::Records(records) => {
                let done = records.device.commit(now, tx)?;
                for (_, pending) in records.images.values_mut() {
                    *pending = pending.filter(|&other| other != name);
                }
                Ok(done)
            }
        }
    }

    pub(super) fn abort(&mut self, now: Nanos, name: u64) -> Result<Nanos, DeviceError> {
        let tx = self.tx(name);
        match &mut self.running {
            Running::Pages(device) => Ok(device.abort(now, tx)?),
            Running::Records(records) => {
                let done = records.device.abort(now, tx)?;
                // The host rereads the pages, now without the rolled-back records.
                records
                    .images
                    .retain(|_, (_, pending)| *pending != Some(name));
                Ok(done)
            }
        }
    }

    /// The write that a page holds: name of the transaction, and number of the write.
    pub(super) fn read(&mut self, page: u32) -> Result<Option<(u64, u16)>, DeviceError> {
        let now = self.recovered_at();
        match &mut self.running {
            Running::Pages(device) => {
                let (_, bytes) = device.read(now, None, Lpn(page))?;
                Ok(bytes.and_then(write_of))
            }
            Running::Records(records) => {
                let mut found = MergedPage::default();
                records.device.read(now, Lpn(page), &mut found)?;
                let image = Page::parse(&found.image).ok();
                let name = |page: &Page| page.get(SLOT).and_then(write_of);
                Ok(image.as_ref().and_then(name))
            }
        }
    }
}
