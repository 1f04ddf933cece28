//! A client of an index: transactions that insert, change and delete keys, on a device with a
//! commit protocol or on a database. A place is a key.

use super::oracle::{Contents, Payload, Place, payload, show};
use super::run::Work;
use super::world::{Done, Known, Stop, World};
use flagstone::index::{IndexError, Recoverable, Store, Value};
use flagstone::units::{Lpn, Nanos};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

/// Keys for each page that a run uses.
const KEYS: u32 = 4;

/// A transaction.
struct Client {
    name: u64,
    writes: BTreeMap<Place, Contents>,
    nth: u16,
}

/// An index and its client.
pub(super) struct Keys {
    index: Recoverable,
    recovered_at: Nanos,
    client: Option<Client>,
}

/// What stands for a payload in an index: its writer's name and which of its writes it is.
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
        known.oracle.settle(known.now.0);
        let key = known.some_page(dice) * KEYS + dice.random_range(0..KEYS);
        match (dice.random_range(0..100), self.client.is_some()) {
            (..8, _) | (8..20, true) => self.read(known, key),
            (_, false) => self.begin(known),
            (..60, true) => self.change(known, key, false),
            (60..75, true) => self.change(known, key, true),
            (75..93, true) => self.commit(known),
            (_, true) => self.abort(known, "aborts"),
        }
    }

    fn read_all(
        &mut self,
        known: &mut Known,
        _: &mut BTreeSet<Place>,
    ) -> Done<BTreeMap<Place, Contents>> {
        let mut found = BTreeMap::new();
        for key in 0..known.pages * KEYS {
            let (value, done) = self.index.get(known.now, key.into()).map_err(stop)?;
            known.now = done;
            found.insert(key, contents(key, value));
        }
        match self.index.index().check() {
            Ok(()) => Ok(found),
            // A check reads, and reading may write pages out to make room.
            Err(_) if self.power_is_gone(known) => Err(Stop::PowerLost),
            Err(what) => Err(Stop::Violation(format!("the index: {what}"))),
        }
    }

    fn recovered_at(&self) -> Nanos {
        self.recovered_at
    }

    fn check(&mut self) -> Result<(), String> {
        self.store().verify()
    }

    fn count(&mut self, work: &mut Work) {
        if !self.index.is_open() {
            return;
        }
        if let Some(ftl) = self.store().ftl() {
            work.add(ftl.stats());
        }
    }
}

impl Keys {
    pub(super) fn new(index: Recoverable, recovered_at: Nanos) -> Keys {
        Keys {
            index,
            recovered_at,
            client: None,
        }
    }

    fn store(&mut self) -> &mut dyn Store {
        self.index.index().store()
    }

    /// Whether a write fails for want of power. Only asked where the run is over anyway.
    fn power_is_gone(&mut self, known: &Known) -> bool {
        let store = self.store();
        let mut any = vec![0; store.page_bytes()];
        let outcome = store
            .read(known.now, Lpn(0), &mut any)
            .and_then(|now| store.write(now, &[(Lpn(0), &any)]));
        outcome.is_err_and(|error| error.is_power_loss())
    }

    fn begin(&mut self, known: &mut Known) -> Done<()> {
        let name = known.name();
        known.note(|| format!("#{name} begins"));
        known.now = self.index.begin(known.now).map_err(stop)?;
        self.client = Some(Client {
            name,
            writes: BTreeMap::new(),
            nth: 0,
        });
        Ok(())
    }

    fn read(&mut self, known: &mut Known, key: Place) -> Done<()> {
        let (value, done) = match self.index.get(known.now, key.into()) {
            Err(IndexError::Store(error)) if error.is_restart() => return self.restart(known),
            other => other.map_err(stop)?,
        };
        known.now = done;
        let own = self.client.as_ref().and_then(|c| c.writes.get(&key));
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

    fn change(&mut self, known: &mut Known, key: Place, delete: bool) -> Done<()> {
        let client = self.client.as_mut().expect("a transaction is live");
        let written = payload(client.name, key, client.nth);
        let contents = (!delete).then_some(written);
        let name = client.name;
        known.note(|| format!("#{name} changes key {key}: {}", show(&contents)));
        let outcome = match delete {
            true => self.index.delete(known.now, key.into()),
            false => self.index.insert(known.now, key.into(), value(&written)),
        };
        match outcome {
            Ok(done) => {
                known.now = done;
                client.writes.insert(key, contents);
                client.nth += 1;
                Ok(())
            }
            Err(IndexError::Store(error)) if error.is_restart() => self.restart(known),
            Err(error) => Err(stop(error)),
        }
    }

    fn commit(&mut self, known: &mut Known) -> Done<()> {
        let client = self.client.take().expect("a transaction is live");
        known.note(|| format!("#{} asks to commit", client.name));
        known.oracle.ask(client.name, client.writes.clone());
        match self.index.commit(known.now) {
            Ok(done) => {
                known.note(|| format!("#{} is acknowledged at {done}", client.name));
                known.oracle.acknowledge(client.name, done.0);
                // The next request may come before this one is answered, but does not.
                known.now = done;
                Ok(())
            }
            Err(IndexError::Store(error)) if error.is_restart() => {
                known.oracle.withdraw(client.name);
                self.client = Some(client);
                self.restart(known)
            }
            Err(error) => Err(stop(error)),
        }
    }

    /// What is below wants the transaction rolled back.
    fn restart(&mut self, known: &mut Known) -> Done<()> {
        self.abort(known, "has to be rolled back")
    }

    fn abort(&mut self, known: &mut Known, how: &str) -> Done<()> {
        if let Some(client) = self.client.take() {
            known.note(|| format!("#{} {how}", client.name));
            known.now = self.index.abort(known.now).map_err(stop)?;
        }
        Ok(())
    }
}

fn stop(error: IndexError) -> Stop {
    match error {
        IndexError::Store(error) if error.is_power_loss() => Stop::PowerLost,
        other => Stop::Violation(format!("the index refuses: {other}")),
    }
}
