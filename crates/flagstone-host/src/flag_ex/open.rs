//! Opens the device and the log. Transactions are in doubt until the log was read; after that the
//! log's master is written.

use super::super::HostError;
use super::super::config::{HostConfig, ManagerInfo, Mistake};
use super::super::log::{
    BUFFER_BYTES, CHECKPOINT_EVERY, LOG_PADDED, Log, LogPages, LogPlace, LogSettings,
};
use super::super::machine::{Machine, Opened};
use super::super::tools::Tools;
use super::{FlagEx, MergedPage, checkpoint};
use flagstone::commit::{Options, RecordDevice, RecordKind, RecordOptions};
use flagstone::ftl::{Cause, Config};
use flagstone::nand::Flash;
use flagstone::settings::{BadSetting, Setting, Settings};
use flagstone::units::{Lpn, Nanos};

pub(crate) const CFC_EX: ManagerInfo = ManagerInfo {
    name: "cfc-ex",
    settings: SETTINGS,
    check: |settings| Chosen::of(RecordKind::CfcEx, settings).map(|_| ()),
};

pub(crate) const AFC_EX: ManagerInfo = ManagerInfo {
    name: "afc-ex",
    settings: SETTINGS,
    check: |settings| Chosen::of(RecordKind::AfcEx, settings).map(|_| ()),
};

const SETTINGS: &[Setting] = &[BUFFER_BYTES, CHECKPOINT_EVERY, LOG_PADDED, MAX_C, FLAGS_ALL];

const MAX_C: Setting = Setting {
    name: "max_c",
    default: "3",
    what: "maximum number of transactions with pending records in one page, 2 to 8",
};

const FLAGS_ALL: Setting = Setting {
    name: "flags_all",
    default: "false",
    what: "whether cfc-ex flags the page before each reclaimed one, as printed; by default only \
           where a live page needs the flag",
};

/// The parsed settings.
struct Chosen {
    log: LogSettings,
    max_c: u8,
    flags_all: bool,
}

impl Chosen {
    fn of(kind: RecordKind, settings: &Settings) -> Result<Chosen, BadSetting> {
        let mut infos = [&CFC_EX, &AFC_EX].into_iter();
        let info = infos.find(|info| info.name == kind.info().name);
        let info = info.expect("a manager for each kind of record device");
        Ok(Chosen {
            log: LogSettings::of(info, settings)?,
            max_c: settings.number(info, MAX_C.name, 2, 8)?,
            flags_all: settings.flag(info, FLAGS_ALL.name)?,
        })
    }
}

/// Minimum number of log pages.
pub(crate) fn log_pages_min(
    kind: RecordKind,
    settings: &Settings,
    page_bytes: usize,
) -> Result<u32, BadSetting> {
    let buffer = Chosen::of(kind, settings)?.log.buffer_bytes;
    Ok(checkpoint::pages_min(buffer as u64, page_bytes))
}

/// Options of the record device.
pub(crate) fn record_options(
    kind: RecordKind,
    settings: &Settings,
) -> Result<RecordOptions, BadSetting> {
    let mut options = RecordOptions::default();
    let chosen = Chosen::of(kind, settings)?;
    (options.max_c, options.flags_all) = (chosen.max_c, chosen.flags_all);
    Ok(options)
}

/// Starts the device, reads the log and recovers.
pub(crate) fn open(
    flash: Box<dyn Flash>,
    kind: RecordKind,
    device: Config,
    options: &Options,
    config: &HostConfig,
    now: Nanos,
) -> Result<Opened, HostError> {
    let page_bytes = flash.geometry().page_bytes as usize;
    let settings = Chosen::of(kind, &config.settings)?.log;
    let mut records = record_options(kind, &config.settings)?;
    records.as_published = options.as_published;
    records.tells = options.tells;
    let mistake = config.mistake.and_then(Mistake::of_device);
    let mut device = RecordDevice::open_mistaken(flash, kind, device, &records, mistake, now)?;
    let (last_tx, opened) = (device.last_tx(), device.recovered_at());
    let buffer = settings.buffer_bytes;
    let place = LogPlace::of(
        config.log_pages,
        settings,
        device.pages(),
        page_bytes,
        checkpoint::pages_min(buffer as u64, page_bytes),
        &format!("with a buffer of {buffer} bytes"),
    )?;
    let (log, tape) = Log::open(&mut device, opened, place)?;
    let mut tools = Tools::new(config, page_bytes, tape.highest_tx().max(last_tx))?;
    let mut flag_ex = FlagEx::new(device, log, buffer);
    flag_ex.device.lend_reserve(true);
    let recovered_at = flag_ex.restart(&mut tools, tape.done, &tape)?;
    flag_ex.device.lend_reserve(false);
    Ok(Opened {
        machine: Machine::FlagEx(flag_ex),
        tools,
        pages: place.first.0,
        recovered_at,
    })
}

impl LogPages for RecordDevice {
    fn get(&mut self, now: Nanos, at: Lpn, into: &mut Vec<u8>) -> Result<Nanos, HostError> {
        let mut page = MergedPage::default();
        let done = self.read_as(Cause::Log, now, at, &mut page)?;
        *into = page.image;
        Ok(done)
    }

    fn put(&mut self, now: Nanos, at: Lpn, bytes: &[u8]) -> Result<Nanos, HostError> {
        Ok(self.write_as(Cause::Log, now, at, bytes, &[])?)
    }
}
