//! Clients of an index: transactions that insert, change and delete keys, over a device with a
//! commit protocol or over a database. A place is a key.

use super::work::Work;
use super::world::{self, Done, Intent, Known, Stop, World};
use crate::payload::{Contents, Payload, Place, payload, show};
use flagstone::commit::DeviceError;
use flagstone::units::{Lpn, Nanos};
use flagstone_host::HostError;
use flagstone_index::{BackingError, BackingStore, Index, IndexError, Recoverable, Value};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

/// Keys per page that a run uses.
const KEYS: u32 = 4;

/// A live transaction.
struct LiveTx {
    name: u64,
    writes: BTreeMap<Place, Contents>,
    nth: u16,
    intent: Intent,
}

/// An index and its client. There is one transaction at a time.
pub(super) struct Keys {
    index: Recoverable,
    /// Whether the store below continues to work after a page was lost; a database has stopped.
    goes_on: bool,
    recovered_at: Nanos,
    live: Option<LiveTx>,
}

/// The index value of a payload: its writer, and the sequence number of the write.
fn value(payload: &Payload) -> Value {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(&payload[..6]);
    bytes[6..].copy_from_slice(&payload[10..]);
    u64::from_le_bytes(bytes)
}

/// The contents of a key with an index value: the inverse of [`value`].
fn contents(key: Place, value: Option<Value>) -> Contents {
    value.map(|value| payload(value & 0xffff_ffff_ffff, key, (value >> 48) as u16))
}

impl World for Keys {
    fn step(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        known.pass_time(dice);
        known.oracle.pass(known.now.0);
        let key = known.some_page(dice) * KEYS + dice.random_range(0..KEYS);
        let roll = dice.random_range(0..100);
        let Some(live) = &self.live else {
            return match roll {
                ..8 => self.read(known, key),
                _ => self.begin(known, dice),
            };
        };
        let Intent { writes, aborts, .. } = live.intent;
        match roll {
            ..20 => self.read(known, key),
            97.. => self.abort(known, "aborts"),
            _ if writes == 0 && aborts => self.abort(known, "aborts"),
            _ if writes == 0 => self.commit(known),
            20..75 => self.change(known, key, false),
            _ => self.change(known, key, true),
        }
    }

    fn read_all(
        &mut self,
        known: &mut Known,
        damaged: &mut BTreeSet<Place>,
    ) -> Done<BTreeMap<Place, Contents>> {
        if self.live.is_some() {
            self.abort(known, "leaves")?;
        }
        let mut found = BTreeMap::new();
        for key in 0..known.pages * KEYS {
            let (value, done) = match self.index.get(known.now, key.into()) {
                Err(error) if known.damage_allowed && is_damage(&error) => {
                    damaged.insert(key);
                    continue;
                }
                outcome => outcome.map_err(|error| stop(known, error))?,
            };
            known.now = done;
            found.insert(key, contents(key, value));
        }
        if known.damage_allowed {
            // A check that hits a lost page adds nothing.
            return Ok(found);
        }
        match self.index().map_or(Ok(()), |index| index.check()) {
            Ok(()) => Ok(found),
            // A check reads, which may write pages out to make room.
            Err(_) if self.power_is_gone(known) => Err(Stop::PowerLost),
            Err(what) => Err(Stop::Violation(format!("the index: {what}"))),
        }
    }

    fn prove(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        known.may_fill = false;
        self.begin(known, dice)?;
        self.change(known, dice.random_range(0..known.pages * KEYS), false)?;
        if self.live.is_some() {
            self.commit(known)?;
        }
        known.may_fill = true;
        Ok(())
    }

    fn recovered_at(&self) -> Nanos {
        self.recovered_at
    }

    fn check(&mut self) -> Result<(), String> {
        self.store().map_or(Ok(()), |store| store.verify())
    }

    fn count(&mut self, work: &mut Work) {
        if let Some(ftl) = self.store().and_then(|store| store.ftl()) {
            work.add(ftl.stats());
        }
    }
}

impl Keys {
    pub(super) fn new(index: Recoverable, goes_on: bool, recovered_at: Nanos) -> Keys {
        Keys {
            index,
            goes_on,
            recovered_at,
            live: None,
        }
    }

    /// The index; `None` after a failed rollback.
    fn index(&mut self) -> Option<&mut dyn Index> {
        self.index.is_open().then(|| self.index.index())
    }

    fn store(&mut self) -> Option<&mut dyn BackingStore> {
        self.index().map(|index| index.store())
    }

    /// Whether writes fail because the power is off. Called only when the run is over anyway.
    fn power_is_gone(&mut self, known: &Known) -> bool {
        let Some(store) = self.store() else {
            return false;
        };
        let mut any = vec![0; store.page_bytes()];
        let outcome = store
            .read(known.now, Lpn(0), &mut any)
            .and_then(|now| store.write(now, &[(Lpn(0), &any)]));
        matches!(outcome, Err(error) if error.is_power_loss())
    }

    fn begin(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        let name = known.name();
        known.note(|| format!("#{name} begins"));
        let begun = self.index.begin(known.now);
        known.now = begun.map_err(|error| stop(known, error))?;
        self.live = Some(LiveTx {
            name,
            writes: BTreeMap::new(),
            nth: 0,
            intent: known.intent(dice),
        });
        Ok(())
    }

    /// Looks up a key, and compares it with the transaction's own change or with the oracle.
    fn read(&mut self, known: &mut Known, key: Place) -> Done<()> {
        let (value, done) = match self.index.get(known.now, key.into()) {
            Ok(found) => found,
            Err(error) => return self.refused(known, error),
        };
        known.now = done;
        let own = self.live.as_ref().and_then(|live| live.writes.get(&key));
        let right = own.copied().unwrap_or_else(|| known.oracle.read(key));
        let found = contents(key, value);
        if found == right {
            return Ok(());
        }
        let (found, right) = (show(&found), show(&right));
        Err(Stop::Violation(format!(
            "key {key} reads as {found}, not {right}"
        )))
    }

    /// Inserts or deletes a key in the live transaction, which is rolled back if the store refuses.
    fn change(&mut self, known: &mut Known, key: Place, delete: bool) -> Done<()> {
        let live = self.live.as_mut().expect("it began");
        live.intent.writes = live.intent.writes.saturating_sub(1);
        let written = payload(live.name, key, live.nth);
        let contents = (!delete).then_some(written);
        let name = live.name;
        known.note(|| format!("#{name} changes key {key}: {}", show(&contents)));
        let changed = match &contents {
            Some(new) => self.index.insert(known.now, key.into(), value(new)),
            None => self.index.delete(known.now, key.into()),
        };
        match changed {
            Ok(done) => {
                known.now = done;
                live.writes.insert(key, contents);
                live.nth += 1;
                Ok(())
            }
            Err(error) => self.refused(known, error),
        }
    }

    /// Commits the live transaction. Unlike over a device or database, the client waits until it is
    /// durable.
    fn commit(&mut self, known: &mut Known) -> Done<()> {
        let live = self.live.as_ref().expect("it began");
        known.note(|| format!("#{} asks to commit", live.name));
        known.oracle.ask(live.name, live.writes.clone());
        match self.index.commit(known.now) {
            Ok(done) => {
                known.note_done(live.name, done);
                known.oracle.acknowledge(live.name, done.0);
                // The next request could be issued before this one completes, but is not.
                known.now = done;
                self.live = None;
                Ok(())
            }
            Err(error) => {
                let Some(how) = rolled_back(known, &error) else {
                    return Err(stop(known, error));
                };
                known.oracle.withdraw(live.name);
                self.abort(known, how)
            }
        }
    }

    /// Rolls back after a refused call: the database below requested that, its log is full, or a
    /// page was lost where that is allowed.
    fn refused(&mut self, known: &mut Known, error: IndexError) -> Done<()> {
        let goes_on = self.goes_on && known.damage_allowed;
        let damaged = (goes_on && is_damage(&error)).then_some("has to be rolled back");
        match rolled_back(known, &error).or(damaged) {
            None => Err(stop(known, error)),
            Some(how) if self.live.is_some() => self.abort(known, how),
            Some(_) => Ok(()),
        }
    }

    /// Rolls back the live transaction; `how` says why, in the report.
    fn abort(&mut self, known: &mut Known, how: &str) -> Done<()> {
        let live = self.live.take().expect("it began");
        known.note(|| format!("#{} {how}", live.name));
        let done = self.index.abort(known.now);
        known.now = done.map_err(|error| stop(known, error))?;
        Ok(())
    }
}

/// The reason for an allowed rollback requested by the layers below.
fn rolled_back(known: &mut Known, error: &IndexError) -> Option<&'static str> {
    if matches!(error, IndexError::Store(error) if error.is_restart()) {
        return Some("has to be rolled back");
    }
    // The keys of small pages fill a small store. Leaked pages would fill it as well; therefore
    // every restart compares the pages in use with the contents.
    if matches!(error, IndexError::Full { .. }) {
        known.full += 1;
        return Some("does not fit the store");
    }
    let too_long = known.may_fill && is_too_long(error);
    known.full += u64::from(too_long);
    too_long.then_some("is too long for the log")
}

fn stop(known: &Known, error: IndexError) -> Stop {
    match error {
        IndexError::Store(error) if error.is_power_loss() => Stop::PowerLost,
        error if known.damage_allowed && is_damage(&error) => Stop::Damaged,
        error if known.may_fill && is_full(&error) => Stop::Full,
        other => Stop::Violation(format!("the index refuses: {other}")),
    }
}

/// Whether the error reports a page lost to bit errors.
fn is_damage(error: &IndexError) -> bool {
    of_device(error).is_some_and(world::is_damage)
}

fn is_full(error: &IndexError) -> bool {
    of_device(error).is_some_and(world::is_full)
}

/// Whether the log of the database below is too short for the transaction.
fn is_too_long(error: &IndexError) -> bool {
    let log = |error: &BackingError| matches!(error, BackingError::Host(HostError::LogFull { .. }));
    matches!(error, IndexError::Store(error) if log(error))
}

/// The device error, if it is one.
fn of_device(error: &IndexError) -> Option<&DeviceError> {
    match error {
        IndexError::Store(
            BackingError::Device(error) | BackingError::Host(HostError::Device(error)),
        ) => Some(error),
        _ => None,
    }
}
