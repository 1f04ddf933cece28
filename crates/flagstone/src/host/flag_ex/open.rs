//! Opening: the device, whose transactions are in doubt until the log was read, and the log, whose
//! master is written when they no longer are.

use super::super::HostError;
use super::super::config::{HostConfig, Sabotage};
use super::super::engine::Manager;
use super::super::log::{Log, Place, Store};
use super::{FlagEx, Held, checkpoint};
use crate::commit::{Flaws, MergedPage, Options, RecordDevice, RecordKind, RecordOptions};
use crate::ftl::{Cause, Config};
use crate::nand::Flash;
use crate::units::{Lpn, Nanos};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

impl Store for RecordDevice {
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

/// The device while transactions are in doubt: the log's master waits until they are not.
struct Opening<'a> {
    device: &'a mut RecordDevice,
    held: Held,
}

impl Store for Opening<'_> {
    fn get(&mut self, now: Nanos, at: Lpn, into: &mut Vec<u8>) -> Result<Nanos, HostError> {
        self.device.get(now, at, into)
    }

    fn put(&mut self, now: Nanos, at: Lpn, bytes: &[u8]) -> Result<Nanos, HostError> {
        self.held = Some((at, bytes.to_vec()));
        Ok(now)
    }
}

/// Starts the device and looks at the log.
pub(in crate::host) fn open(
    flash: Box<dyn Flash>,
    kind: RecordKind,
    device: Config,
    options: &Options,
    config: &HostConfig,
    now: Nanos,
) -> Result<(Box<dyn Manager>, Nanos), HostError> {
    let page_bytes = flash.geometry().page_bytes as usize;
    let records = RecordOptions {
        max_c: config.max_c,
        as_published: options.as_published,
    };
    let has = |flaw| config.sabotage == Some(flaw);
    let flaws = Flaws {
        lose_flags: has(Sabotage::FlagLost),
        one_death: has(Sabotage::OneDeath),
        issued_is_safe: has(Sabotage::FlagInFlight),
        keep_torn: has(Sabotage::TornFlagStays),
        ..Flaws::of(&records)
    };
    let mut device = RecordDevice::start(flash, kind, device, &records, flaws, now)?;
    let buffer = config.log_buffer_bytes as u64;
    let needed = checkpoint::log_pages_min(buffer, page_bytes);
    if config.log_pages < needed || config.log_pages >= device.pages() {
        return Err(HostError::Config(format!(
            "log_pages is {}: a log with a buffer of {buffer} bytes needs at least {needed}, and \
             the device has {} pages in all",
            config.log_pages,
            device.pages()
        )));
    }
    let place = Place {
        first: Lpn(device.pages() - config.log_pages),
        pages: config.log_pages,
        page_bytes,
        buffer_bytes: config.log_buffer_bytes,
    };
    let opened = device.recovered_at();
    let mut opening = Opening {
        device: &mut device,
        held: None,
    };
    let (log, tape) = Log::open(&mut opening, opened, place)?;
    let held = opening.held;
    let done = tape.done;
    let flag_ex = FlagEx {
        device,
        ahead: buffer + log.payload(),
        log,
        tape: Some((tape, held)),
        txs: BTreeMap::new(),
        orphans: BTreeMap::new(),
        not_before: FxHashMap::default(),
        written: Nanos::ZERO,
        flagged: Nanos::ZERO,
        max_c: config.max_c,
        sabotage: config.sabotage,
        image: Vec::new(),
        merged: MergedPage::default(),
        bytes: Vec::new(),
    };
    Ok((Box::new(flag_ex), done))
}
