//! Clients of an index: transactions that insert, change and delete keys, on a device with a commit
//! protocol, on a database, or with the index's own recovery. A place is a key.

use super::oracle::{Contents, Payload, Place, payload, show};
use super::work::Work;
use super::world::{self, Done, Intent, Known, Stop, World};
use flagstone::commit::DeviceError;
use flagstone::host::HostError;
use flagstone::index::sal::{SalTx, Transactions};
use flagstone::index::{self, BackingError, BackingStore, IndexError, Key, Recoverable, Value};
use flagstone::units::{Lpn, Nanos};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

/// An index with transactions.
pub(super) enum Index {
    /// Those of what is below, one at a time; and whether it goes on without a page that was lost.
    Store(Recoverable, bool),
    /// Its own, several side by side.
    Own(Box<Transactions>),
}

/// Which transaction of an index, where there are several.
type Tx = Option<SalTx>;

impl Index {
    /// Keys for each page that a run uses: more where it has to flush and to grow without being
    /// settled at each commit.
    fn keys(&self) -> u32 {
        match self {
            Index::Store(..) => 4,
            Index::Own(_) => 12,
        }
    }

    /// Transactions that there can be at a time.
    fn clients(&self, wanted: usize) -> usize {
        match self {
            Index::Store(..) => 1,
            Index::Own(_) => wanted,
        }
    }

    fn begin(&mut self, now: Nanos) -> Result<(Tx, Nanos), IndexError> {
        match self {
            Index::Store(index, _) => Ok((None, index.begin(now)?)),
            Index::Own(index) => Ok((Some(index.begin()), now)),
        }
    }

    fn get(&mut self, now: Nanos, tx: Tx, key: Key) -> Result<(Option<Value>, Nanos), IndexError> {
        match self {
            Index::Store(index, _) => index.get(now, key),
            Index::Own(index) => index.get(now, tx, key),
        }
    }

    fn change(
        &mut self,
        now: Nanos,
        tx: Tx,
        key: Key,
        value: Option<Value>,
    ) -> Result<Nanos, IndexError> {
        match (self, value) {
            (Index::Store(index, _), Some(value)) => index.insert(now, key, value),
            (Index::Store(index, _), None) => index.delete(now, key),
            (Index::Own(index), value) => index.change(now, tx.expect("it began"), key, value),
        }
    }

    fn commit(&mut self, now: Nanos, tx: Tx) -> Result<Nanos, IndexError> {
        match self {
            Index::Store(index, _) => index.commit(now),
            Index::Own(index) => index.commit(now, tx.expect("it began")),
        }
    }

    fn abort(&mut self, now: Nanos, tx: Tx) -> Result<Nanos, IndexError> {
        match self {
            Index::Store(index, _) => index.abort(now),
            Index::Own(index) => index.abort(now, tx.expect("it began")),
        }
    }

    /// Nothing after a rollback that failed.
    fn index(&mut self) -> Option<&mut dyn index::Index> {
        match self {
            Index::Store(index, _) => index.is_open().then(|| index.index()),
            Index::Own(index) => Some(index.index()),
        }
    }

    fn with_store<T>(&mut self, look: impl FnOnce(&mut dyn BackingStore) -> T) -> Option<T> {
        match self {
            Index::Store(index, _) => index.is_open().then(|| look(index.index().store())),
            Index::Own(index) => Some(index.with_store(look)),
        }
    }
}

/// A live transaction.
struct LiveTx {
    name: u64,
    tx: Tx,
    writes: BTreeMap<Place, Contents>,
    nth: u16,
    intent: Intent,
}

/// An index and its clients.
pub(super) struct Keys {
    index: Index,
    recovered_at: Nanos,
    live: Vec<LiveTx>,
}

/// The value of a payload in an index: its writer's name and which of its writes it is.
fn value(payload: &Payload) -> Value {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(&payload[..6]);
    bytes[6..].copy_from_slice(&payload[10..]);
    u64::from_le_bytes(bytes)
}

fn contents(key: Place, value: Option<Value>) -> Contents {
    value.map(|value| payload(value & 0xffff_ffff_ffff, key, (value >> 48) as u16))
}

impl World for Keys {
    fn step(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        known.pass_time(dice);
        known.oracle.pass(known.now.0);
        let keys = self.index.keys();
        let key = known.some_page(dice) * keys + dice.random_range(0..keys);
        let roll = dice.random_range(0..100);
        let most = self.index.clients(known.clients);
        let which = match self.live.len() {
            0 => None,
            1 if most == 1 => Some(0),
            live => Some(dice.random_range(0..live)),
        };
        let Some(which) = which else {
            return match roll {
                ..8 => self.read(known, None, key),
                _ => self.begin(known, dice),
            };
        };
        let Intent { writes, aborts, .. } = self.live[which].intent;
        match roll {
            ..4 if most > 1 => self.read(known, None, key),
            ..20 => self.read(known, Some(which), key),
            20..30 if self.live.len() < most => self.begin(known, dice),
            97.. => self.abort(known, which, "aborts"),
            _ if writes == 0 && aborts => self.abort(known, which, "aborts"),
            _ if writes == 0 => self.commit(known, which),
            20..75 => self.change(known, which, key, false),
            _ => self.change(known, which, key, true),
        }
    }

    fn read_all(
        &mut self,
        known: &mut Known,
        damaged: &mut BTreeSet<Place>,
    ) -> Done<BTreeMap<Place, Contents>> {
        while !self.live.is_empty() {
            self.abort(known, 0, "leaves")?;
        }
        let mut found = BTreeMap::new();
        for key in 0..known.pages * self.index.keys() {
            let (value, done) = match self.index.get(known.now, None, key.into()) {
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
            // A check that meets a lost page says nothing new.
            return Ok(found);
        }
        match self.index.index().map_or(Ok(()), |index| index.check()) {
            Ok(()) => Ok(found),
            // A check reads, and reading may write pages out to make room.
            Err(_) if self.power_is_gone(known) => Err(Stop::PowerLost),
            Err(what) => Err(Stop::Violation(format!("the index: {what}"))),
        }
    }

    fn prove(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        known.may_fill = false;
        self.begin(known, dice)?;
        let keys = known.pages * self.index.keys();
        self.change(known, 0, dice.random_range(0..keys), false)?;
        if !self.live.is_empty() {
            self.commit(known, 0)?;
        }
        known.may_fill = true;
        Ok(())
    }

    fn recovered_at(&self) -> Nanos {
        self.recovered_at
    }

    fn check(&mut self) -> Result<(), String> {
        let outcome = self.index.with_store(|store| store.verify());
        outcome.unwrap_or(Ok(()))
    }

    fn count(&mut self, work: &mut Work) {
        self.index.with_store(|store| {
            if let Some(ftl) = store.ftl() {
                work.add(ftl.stats());
            }
        });
    }
}

impl Keys {
    pub(super) fn new(index: Index, recovered_at: Nanos) -> Keys {
        Keys {
            index,
            recovered_at,
            live: Vec::new(),
        }
    }

    /// Whether a write fails for want of power. Only asked where the run is over anyway.
    fn power_is_gone(&mut self, known: &Known) -> bool {
        let outcome = self.index.with_store(|store| {
            let mut any = vec![0; store.page_bytes()];
            store
                .read(known.now, Lpn(0), &mut any)
                .and_then(|now| store.write(now, &[(Lpn(0), &any)]))
        });
        matches!(outcome, Some(Err(error)) if error.is_power_loss())
    }

    fn begin(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        let name = known.name();
        known.note(|| format!("#{name} begins"));
        let begun = self.index.begin(known.now);
        let (tx, done) = begun.map_err(|error| stop(known, error))?;
        known.now = done;
        self.live.push(LiveTx {
            name,
            tx,
            writes: BTreeMap::new(),
            nth: 0,
            intent: known.intent(dice),
        });
        Ok(())
    }

    fn read(&mut self, known: &mut Known, which: Option<usize>, key: Place) -> Done<()> {
        let live = which.map(|which| &self.live[which]);
        let tx = live.and_then(|live| live.tx);
        let (value, done) = match self.index.get(known.now, tx, key.into()) {
            Ok(found) => found,
            Err(error) => return self.refused(known, which, error),
        };
        known.now = done;
        let own = live.and_then(|live| live.writes.get(&key));
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

    fn change(&mut self, known: &mut Known, which: usize, key: Place, delete: bool) -> Done<()> {
        let live = &mut self.live[which];
        live.intent.writes = live.intent.writes.saturating_sub(1);
        let written = payload(live.name, key, live.nth);
        let contents = (!delete).then_some(written);
        let name = live.name;
        known.note(|| format!("#{name} changes key {key}: {}", show(&contents)));
        let new = contents.as_ref().map(value);
        match self.index.change(known.now, live.tx, key.into(), new) {
            Ok(done) => {
                known.now = done;
                live.writes.insert(key, contents);
                live.nth += 1;
                Ok(())
            }
            Err(error) => self.refused(known, Some(which), error),
        }
    }

    fn commit(&mut self, known: &mut Known, which: usize) -> Done<()> {
        let live = &self.live[which];
        known.note(|| format!("#{} asks to commit", live.name));
        known.oracle.ask(live.name, live.writes.clone());
        match self.index.commit(known.now, live.tx) {
            Ok(done) => {
                known.note_done(live.name, done);
                known.oracle.acknowledge(live.name, done.0);
                // The next request may come before this one is answered, but does not.
                known.now = done;
                self.live.swap_remove(which);
                Ok(())
            }
            Err(error) => {
                let Some(how) = rolled_back(known, &error) else {
                    return Err(stop(known, error));
                };
                known.oracle.withdraw(live.name);
                self.abort(known, which, how)
            }
        }
    }

    /// A call was refused, and its transaction is rolled back: the database below asks for that,
    /// its log takes no more, or a page was lost, where that is allowed.
    fn refused(&mut self, known: &mut Known, which: Option<usize>, error: IndexError) -> Done<()> {
        let goes_on = matches!(self.index, Index::Store(_, true)) && known.damage_allowed;
        let damaged = (goes_on && is_damage(&error)).then_some("has to be rolled back");
        match (rolled_back(known, &error).or(damaged), which) {
            (None, _) => Err(stop(known, error)),
            (Some(how), Some(which)) => self.abort(known, which, how),
            (Some(_), None) => Ok(()),
        }
    }

    fn abort(&mut self, known: &mut Known, which: usize, how: &str) -> Done<()> {
        let live = self.live.swap_remove(which);
        known.note(|| format!("#{} {how}", live.name));
        let done = self.index.abort(known.now, live.tx);
        known.now = done.map_err(|error| stop(known, error))?;
        Ok(())
    }
}

/// Why a transaction that the database below refuses is rolled back, where that may be.
fn rolled_back(known: &mut Known, error: &IndexError) -> Option<&'static str> {
    if matches!(error, IndexError::Store(error) if error.is_restart()) {
        return Some("has to be rolled back");
    }
    // The keys of small pages fill a small store. Pages that were lost would do so, too: for them
    // every restart compares what the index uses with what it holds.
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

/// Whether a page was lost to bit errors, and the index says so.
fn is_damage(error: &IndexError) -> bool {
    of_device(error).is_some_and(world::is_damage)
}

fn is_full(error: &IndexError) -> bool {
    of_device(error).is_some_and(world::is_full)
}

/// Whether the log of the database below does not take the transaction.
fn is_too_long(error: &IndexError) -> bool {
    let log = |error: &BackingError| matches!(error, BackingError::Host(HostError::LogFull { .. }));
    matches!(error, IndexError::Store(error) if log(error))
}

/// The error of the device, if it is one.
fn of_device(error: &IndexError) -> Option<&DeviceError> {
    match error {
        IndexError::Store(
            BackingError::Device(error) | BackingError::Host(HostError::Device(error)),
        ) => Some(error),
        _ => None,
    }
}
