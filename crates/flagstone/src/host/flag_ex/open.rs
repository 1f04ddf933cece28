//! Opening: the device, whose transactions are in doubt until the log was read, and the log, whose
//! master is written when they no longer are.

use super::super::HostError;
use super::super::below::Below;
use super::super::config::{HostConfig, Sabotage};
use super::super::log::{Log, Place};
use super::super::manager::Opened;
use super::{FlagEx, checkpoint};
use crate::commit::{Flaws, Options, RecordDevice, RecordKind, RecordOptions};
use crate::ftl::Config;
use crate::nand::Flash;
use crate::units::Nanos;

/// Starts the device and looks at the log.
pub(in crate::host) fn open(
    flash: Box<dyn Flash>,
    kind: RecordKind,
    device: Config,
    options: &Options,
    config: &HostConfig,
    now: Nanos,
) -> Result<Opened, HostError> {
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
    let device = RecordDevice::start(flash, kind, device, &records, flaws, now)?;
    let (last_tx, opened) = (device.last_tx(), device.recovered_at());
    let buffer = config.log_buffer_bytes as u64;
    let needed = checkpoint::log_pages_min(buffer, page_bytes);
    let what = format!("with a buffer of {buffer} bytes");
    let place = Place::of(config, device.pages(), page_bytes, (needed, what))?;
    let mut device = Below::records(device);
    let (log, tape) = Log::open(&mut device, opened, place)?;
    let flag_ex = FlagEx::new(log, config, page_bytes);
    Ok(Opened {
        device,
        manager: Box::new(flag_ex),
        pages: place.first.0,
        last_tx: tape.highest_tx().max(last_tx),
        done: tape.done,
        tape: Some(tape),
    })
}
