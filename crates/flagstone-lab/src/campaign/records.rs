//! Clients of a database: they begin, read, write and delete records, commit and abort. A place is
//! a slot of a page.

use super::oracle::{Contents, Place, payload, show};
use super::work::Work;
use super::world::{self, Done, Known, Stop, World, show_bytes};
use flagstone::commit::DeviceError;
use flagstone::ftl::FtlError;
use flagstone::host::{Host, HostError, Rid, Step};
use flagstone::units::{Lpn, Nanos, TxId};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

/// Records of a page.
const SLOTS: u32 = 4;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Read(Place),
    Write(Place, Contents),
    Commit,
}

/// A transaction.
struct Client {
    name: u64,
    tx: TxId,
    writes: BTreeMap<Place, Contents>,
    nth: u16,
    /// What it waits for, if it does, or has to ask for again.
    wish: Option<Wish>,
    parked: bool,
}

/// A database and its clients.
pub(super) struct Records {
    host: Host,
    clients: Vec<Client>,
    /// Transactions that have asked to commit and are told later.
    committing: BTreeMap<TxId, u64>,
}

fn rid(place: Place) -> Rid {
    Rid {
        page: Lpn(place / SLOTS),
        slot: (place % SLOTS) as u16,
    }
}

impl World for Records {
    fn step(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        known.pass_time(dice);
        self.hear(known, false)?;
        known.oracle.settle(known.now.0);
        let awake: Vec<usize> = (0..self.clients.len())
            .filter(|&i| !self.clients[i].parked)
            .collect();
        let full = self.clients.len() + self.committing.len() >= known.clients;
        let action = dice.random_range(0..100);
        if !full && (awake.is_empty() || action < 12) {
            return self.begin(known);
        }
        let Some(&which) = awake.get(dice.random_range(0..awake.len().max(1))) else {
            // All wait: for a group, or for what ends at a later instant.
            known.now = known.now.max(self.host.deadline().unwrap_or(known.now));
            return self.hear(known, true);
        };
        let client = &mut self.clients[which];
        let wish = client.wish.take().unwrap_or_else(|| {
            let place = known.some_page(dice) * SLOTS + dice.random_range(0..SLOTS);
            match action {
                ..65 => {
                    client.nth += 1;
                    let deletes = dice.random_bool(0.1);
                    let contents = (!deletes).then(|| payload(client.name, place, client.nth));
                    Wish::Write(place, contents)
                }
                65..80 => Wish::Read(place),
                _ => Wish::Commit,
            }
        });
        if action >= 96 && wish != Wish::Commit {
            let tx = self.clients[which].tx;
            return self.abort(known, tx, "aborts");
        }
        self.ask(known, which, wish)
    }

    fn read_all(
        &mut self,
        known: &mut Known,
        damaged: &mut BTreeSet<Place>,
    ) -> Done<BTreeMap<Place, Contents>> {
        self.leave(known)?;
        let tx = self.host.begin(known.now).map_err(|e| stop(known, e))?;
        let (mut found, mut bytes) = (BTreeMap::new(), Vec::new());
        for place in 0..known.pages * SLOTS {
            let step = match self.host.read(known.now, tx, rid(place), &mut bytes) {
                Err(error) if known.damage_allowed && is_damage(&error) => {
                    damaged.insert(place);
                    continue;
                }
                step => step.map_err(|e| stop(known, e))?,
            };
            let Step::Done(is_there, ready) = step else {
                return Err(Stop::Violation("a reader that is alone has to wait".into()));
            };
            known.now = ready;
            let contents = match is_there {
                false => None,
                true => match bytes.as_slice().try_into() {
                    Ok(payload) => Some(payload),
                    Err(_) => {
                        let what = format!("record {place} is {}", show_bytes(Some(&bytes)));
                        return Err(Stop::Violation(what));
                    }
                },
            };
            found.insert(place, contents);
        }
        known.now = self.host.abort(known.now, tx).map_err(|e| stop(known, e))?;
        Ok(found)
    }

    fn recovered_at(&self) -> Nanos {
        self.host.recovered_at()
    }

    fn check(&mut self) -> Result<(), String> {
        self.host.verify()
    }

    fn count(&mut self, work: &mut Work) {
        work.add(self.host.ftl().stats());
    }
}

impl Records {
    pub(super) fn new(host: Host) -> Records {
        Records {
            host,
            clients: Vec::new(),
            committing: BTreeMap::new(),
        }
    }

    /// Lets all clients end: those that have asked to commit do, the others roll back. After a
    /// restart there are none.
    fn leave(&mut self, known: &mut Known) -> Done<()> {
        if self.clients.is_empty() && !known.damage_allowed {
            return Ok(());
        }
        self.hear(known, true)?;
        while let Some(client) = self.clients.first() {
            let tx = client.tx;
            self.abort(known, tx, "leaves")?;
        }
        // All locks are free when the last of them has ended.
        known.now += Nanos::from_micros(1_000_000);
        self.hear(known, false)?;
        known.oracle.settle(known.now.0);
        Ok(())
    }

    fn begin(&mut self, known: &mut Known) -> Done<()> {
        let tx = self
            .host
            .begin(known.now)
            .map_err(|error| stop(known, error))?;
        let name = known.name();
        known.note(|| format!("#{name} begins as {tx}"));
        self.clients.push(Client {
            name,
            tx,
            writes: BTreeMap::new(),
            nth: 0,
            wish: None,
            parked: false,
        });
        Ok(())
    }

    fn ask(&mut self, known: &mut Known, which: usize, wish: Wish) -> Done<()> {
        let (name, tx) = (self.clients[which].name, self.clients[which].tx);
        match wish {
            Wish::Read(place) => {
                let mut bytes = Vec::new();
                let step = self.host.read(known.now, tx, rid(place), &mut bytes);
                if let Some(is_there) = self.heed(known, which, wish, step)? {
                    let own = self.clients[which].writes.get(&place).copied();
                    let right = own.unwrap_or_else(|| known.oracle.read(place));
                    let found = is_there.then_some(bytes.as_slice());
                    if found != right.as_ref().map(|bytes| bytes.as_slice()) {
                        return Err(Stop::Violation(format!(
                            "#{name} reads {} as record {place}, not {}",
                            show_bytes(found),
                            show(&right)
                        )));
                    }
                }
            }
            Wish::Write(place, contents) => {
                known.note(|| format!("#{name} writes record {place}: {}", show(&contents)));
                let bytes = contents.as_ref().map(|bytes| bytes.as_slice());
                let step = self.host.write(known.now, tx, rid(place), bytes);
                if self.heed(known, which, wish, step)?.is_some() {
                    self.clients[which].writes.insert(place, contents);
                }
            }
            Wish::Commit => {
                known.note(|| format!("#{name} asks to commit"));
                // From here on it may survive a cut, acknowledged or not.
                known.oracle.ask(name, self.clients[which].writes.clone());
                match self
                    .host
                    .commit(known.now, tx)
                    .map_err(|error| stop(known, error))?
                {
                    Step::Done((), done) => {
                        self.clients.swap_remove(which);
                        known.note(|| format!("#{name} is acknowledged at {done}"));
                        known.oracle.acknowledge(name, done.0);
                    }
                    Step::Waits => {
                        let client = &mut self.clients[which];
                        (client.wish, client.parked) = (Some(wish), true);
                        self.committing.insert(tx, name);
                    }
                    step @ Step::Abort { .. } => {
                        known.oracle.withdraw(name);
                        self.heed(known, which, wish, Ok(step))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Does what the host says. Gives the result of a wish that was granted.
    fn heed<T>(
        &mut self,
        known: &mut Known,
        which: usize,
        wish: Wish,
        step: Result<Step<T>, HostError>,
    ) -> Done<Option<T>> {
        let client = &mut self.clients[which];
        match step.map_err(|error| stop(known, error))? {
            Step::Done(result, _) => return Ok(Some(result)),
            Step::Waits => {
                known.note(|| format!("#{} waits", client.name));
                (client.wish, client.parked) = (Some(wish), true);
            }
            Step::Abort { victim, why } => {
                client.wish = Some(wish);
                self.abort(known, victim, &format!("is aborted ({why:?})"))?;
            }
        }
        Ok(None)
    }

    fn abort(&mut self, known: &mut Known, tx: TxId, how: &str) -> Done<()> {
        let Some(which) = self.clients.iter().position(|client| client.tx == tx) else {
            return Err(Stop::Violation(format!("{tx} is a victim and not live")));
        };
        let client = self.clients.swap_remove(which);
        known.note(|| format!("#{} {how}", client.name));
        if self.committing.remove(&tx).is_some() {
            known.oracle.withdraw(client.name);
        }
        self.host
            .abort(known.now, tx)
            .map_err(|error| stop(known, error))?;
        Ok(())
    }

    /// Takes acknowledgements of groups, and wakes whom the host names.
    fn hear(&mut self, known: &mut Known, flush: bool) -> Done<()> {
        let acknowledged = self.host.acknowledged(known.now, flush);
        for (tx, at) in acknowledged.map_err(|error| stop(known, error))? {
            let name = self.committing.remove(&tx);
            let name = name.ok_or_else(|| Stop::Violation(format!("{tx} did not ask")))?;
            self.clients.retain(|client| client.tx != tx);
            known.note(|| format!("#{name} is acknowledged at {at}"));
            known.oracle.acknowledge(name, at.0);
        }
        for tx in self.host.woken() {
            if let Some(client) = self.clients.iter_mut().find(|client| client.tx == tx) {
                client.parked = false;
                if let Some(name) = self.committing.remove(&tx) {
                    known.oracle.withdraw(name);
                }
            }
        }
        Ok(())
    }
}

fn stop(known: &Known, error: HostError) -> Stop {
    match error {
        HostError::Device(DeviceError::Ftl(FtlError::PowerLost)) => Stop::PowerLost,
        error if known.damage_allowed && is_damage(&error) => Stop::Damaged,
        other => Stop::Violation(format!("the host refuses: {other}")),
    }
}

/// Whether a page was lost to bit errors, and the host says so.
fn is_damage(error: &HostError) -> bool {
    matches!(error, HostError::Device(error) if world::is_damage(error))
}
