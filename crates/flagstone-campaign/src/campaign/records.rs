//! Clients of a database: they begin, read, write and delete records, commit and abort. A place is
//! a slot of a page.

use super::value;
use super::work::Work;
use super::world::{self, Done, Intent, Known, Stop, World, show_bytes};
use crate::payload::{Contents, Place, payload, show};
use flagstone::commit::DeviceError;
use flagstone::ftl::FtlError;
use flagstone::units::{Lpn, Nanos, TxId};
use flagstone_host::{Host, HostError, Rid, Step};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

/// Probability that a long transaction ends once it has made all its writes.
const LEAVES: f64 = 0.2;

/// A request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Read(Place),
    /// A page access for a write that does not follow.
    Touch(Place),
    Write(Place, Contents),
    Commit,
}

/// A live transaction.
struct LiveTx {
    name: u64,
    tx: TxId,
    writes: BTreeMap<Place, Contents>,
    nth: u16,
    intent: Intent,
    /// The record that the last request accessed.
    last: Option<Place>,
    /// The request that the transaction waits for, or must repeat.
    wish: Option<Wish>,
    /// Whether it waits until the host wakes it.
    parked: bool,
}

/// A database and its clients.
pub(super) struct Records {
    host: Host,
    live: Vec<LiveTx>,
    /// Transactions with a requested commit that will be acknowledged later.
    committing: BTreeMap<TxId, u64>,
    /// Buffer for building a record.
    bytes: Vec<u8>,
}

/// The record identifier of a place: places count the slots of all pages.
fn rid(known: &Known, place: Place) -> Rid {
    let slots = known.habits.slots;
    Rid {
        page: Lpn(place / slots),
        slot: (place % slots) as u16,
    }
}

impl World for Records {
    fn step(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        known.pass_time(dice);
        self.hear(known, false)?;
        known.oracle.pass(known.now.0);
        let awake: Vec<usize> = (0..self.live.len())
            .filter(|&i| !self.live[i].parked)
            .collect();
        let full = self.live.len() + self.committing.len() >= known.clients;
        let action = dice.random_range(0..100);
        if !full && (awake.is_empty() || action < 12) {
            return self.begin(known, dice);
        }
        let Some(&which) = awake.get(dice.random_range(0..awake.len().max(1))) else {
            // All transactions wait: for a group commit, or for something that ends later.
            known.now = known.now.max(self.host.deadline().unwrap_or(known.now));
            return self.hear(known, true);
        };
        let live = &mut self.live[which];
        let wish = match live.wish.take() {
            Some(wish) => wish,
            None => live.wishes(known, dice, action),
        };
        // A client may give up, but not in a long transaction of dense habits, and not in a commit.
        let impatient = action >= 97 && wish != Wish::Commit && live.intent.stays == 0;
        if impatient || (wish == Wish::Commit && live.intent.aborts) {
            let tx = live.tx;
            return self.abort(known, tx, "aborts");
        }
        self.ask(known, which, wish)
    }

    /// Fills each page with records, one transaction per page, if pages may lack room for a record:
    /// clients then meet full pages from the start. Otherwise they start with empty pages.
    fn fill(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        if !known.habits.may_overflow {
            return Ok(());
        }
        // The index of the only live transaction, and whether to complete its group commit.
        let (only, flush) = (0, true);
        for page in 0..known.pages {
            self.begin(known, dice)?;
            for slot in 0..known.habits.slots {
                let place = page * known.habits.slots + slot;
                let contents = payload(self.live[only].name, place, slot as u16);
                self.ask(known, only, Wish::Write(place, Some(contents)))?;
                if self.live.is_empty() {
                    // The transaction was rolled back because the log is full.
                    return Ok(());
                }
            }
            self.ask(known, only, Wish::Commit)?;
            known.now += Nanos::from_micros(100_000);
            self.hear(known, flush)?;
        }
        Ok(())
    }

    fn read_all(
        &mut self,
        known: &mut Known,
        damaged: &mut BTreeSet<Place>,
    ) -> Done<BTreeMap<Place, Contents>> {
        self.leave(known)?;
        let tx = self.host.begin(known.now).map_err(|e| stop(known, e))?;
        let (mut found, mut bytes) = (BTreeMap::new(), Vec::new());
        for place in 0..known.pages * known.habits.slots {
            let step = match self.host.read(known.now, tx, rid(known, place), &mut bytes) {
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
            let contents = is_there.then(|| value::parse(&bytes, place, known.habits.bytes));
            if contents == Some(None) {
                let what = format!("record {place} is {}", show_bytes(Some(&bytes)));
                return Err(Stop::Violation(what));
            }
            found.insert(place, contents.flatten());
        }
        known.now = self.host.abort(known.now, tx).map_err(|e| stop(known, e))?;
        Ok(found)
    }

    fn prove(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        known.may_fill = false;
        self.begin(known, dice)?;
        // Deleting a record always fits, even if the record is missing.
        let places = known.pages * known.habits.slots;
        let first = dice.random_range(0..places);
        let mut from = (0..places).map(|step| (first + step) % places);
        let wish = match from.find(|&place| known.oracle.read(place).is_some()) {
            Some(place) => Wish::Write(place, None),
            None => Wish::Write(first, Some(payload(self.live[0].name, first, 0))),
        };
        self.ask(known, 0, wish)?;
        if !self.live.is_empty() {
            self.ask(known, 0, Wish::Commit)?;
        }
        self.hear(known, true)?;
        known.may_fill = true;
        Ok(())
    }

    fn recovered_at(&self) -> Nanos {
        self.host.recovered_at()
    }

    fn check(&mut self) -> Result<(), String> {
        self.host.verify()
    }

    fn count(&mut self, work: &mut Work) {
        work.add(self.host.ftl().stats());
        work.waits += self.host.stats().locks.waits;
    }
}

impl LiveTx {
    /// Draws the next request of a client. `action` is a number below 100: low ones write, high
    /// ones read. Beside brief transactions, a long one lingers after its last write, still
    /// reading.
    fn wishes(&mut self, known: &Known, dice: &mut Pcg64Mcg, action: u32) -> Wish {
        let habits = known.habits;
        let Intent { stays, brief, .. } = self.intent;
        let lingers = habits.brief > 0 && !brief && !dice.random_bool(LEAVES);
        if self.intent.writes == 0 && !lingers {
            return Wish::Commit;
        }
        // Long transactions avoid the records that brief ones change; otherwise brief ones would
        // only wait.
        let slots = match (habits.brief, brief) {
            (0, _) => 0..habits.slots,
            (_, true) => habits.slots * 3 / 4..habits.slots,
            (_, false) => 0..habits.slots * 3 / 4,
        };
        // A transaction that stays on its page proceeds from record to record.
        let place = match self.last.filter(|_| dice.random_range(0..100) < stays) {
            Some(last) => {
                let (page, slot) = (last / habits.slots, last % habits.slots + 1);
                page * habits.slots
                    + if slots.contains(&slot) {
                        slot
                    } else {
                        slots.start
                    }
            }
            None => known.some_page(dice) * habits.slots + dice.random_range(slots),
        };
        self.last = Some(place);
        if action >= 82 || self.intent.writes == 0 {
            return if habits.touches && action.is_multiple_of(4) {
                Wish::Touch(place)
            } else {
                Wish::Read(place)
            };
        }
        self.intent.writes -= 1;
        self.nth += 1;
        let deletes = dice.random_bool(0.1);
        let contents = (!deletes).then(|| payload(self.name, place, self.nth));
        Wish::Write(place, contents)
    }
}

impl Records {
    pub(super) fn new(host: Host) -> Records {
        Records {
            host,
            live: Vec::new(),
            committing: BTreeMap::new(),
            bytes: Vec::new(),
        }
    }

    /// Ends all transactions: those with a requested commit complete it, others roll back. After a
    /// restart there are none.
    fn leave(&mut self, known: &mut Known) -> Done<()> {
        if self.live.is_empty() && !known.damage_allowed {
            return Ok(());
        }
        self.hear(known, true)?;
        while let Some(live) = self.live.first() {
            let tx = live.tx;
            self.abort(known, tx, "leaves")?;
        }
        // All locks are free once the last of them has ended.
        known.now += Nanos::from_micros(1_000_000);
        self.hear(known, false)?;
        known.oracle.pass(known.now.0);
        Ok(())
    }

    fn begin(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        let tx = self
            .host
            .begin(known.now)
            .map_err(|error| stop(known, error))?;
        let name = known.name();
        known.note_begin(name, tx);
        self.live.push(LiveTx {
            name,
            tx,
            writes: BTreeMap::new(),
            nth: 0,
            intent: known.intent(dice),
            last: None,
            wish: None,
            parked: false,
        });
        Ok(())
    }

    /// Makes a request of the live transaction with index `which`. A read that is granted must
    /// return the transaction's own write or that of the oracle.
    fn ask(&mut self, known: &mut Known, which: usize, wish: Wish) -> Done<()> {
        let (name, tx) = (self.live[which].name, self.live[which].tx);
        match wish {
            Wish::Read(place) => {
                let mut bytes = std::mem::take(&mut self.bytes);
                let step = self.host.read(known.now, tx, rid(known, place), &mut bytes);
                if let Some(is_there) = self.heed(known, which, wish, step)? {
                    let own = self.live[which].writes.get(&place).copied();
                    let right = own.unwrap_or_else(|| known.oracle.read(place));
                    let found = is_there.then(|| value::parse(&bytes, place, known.habits.bytes));
                    if found != right.map(Some) {
                        let found = match found {
                            Some(Some(payload)) => show(&Some(payload)),
                            _ => show_bytes(is_there.then_some(&bytes)),
                        };
                        let right = show(&right);
                        return Err(Stop::Violation(format!(
                            "#{name} reads {found} as record {place}, not {right}"
                        )));
                    }
                }
                self.bytes = bytes;
            }
            Wish::Touch(place) => {
                let step = self.host.touch(known.now, tx, rid(known, place).page);
                self.heed(known, which, wish, step)?;
            }
            Wish::Write(place, contents) => {
                known.note(|| format!("#{name} writes record {place}: {}", show(&contents)));
                let mut bytes = std::mem::take(&mut self.bytes);
                if let Some(payload) = &contents {
                    value::emit(payload, known.habits.bytes, &mut bytes);
                }
                let record = contents.is_some().then_some(bytes.as_slice());
                let step = self.host.write(known.now, tx, rid(known, place), record);
                self.bytes = bytes;
                match step {
                    Err(HostError::PageFull { .. }) if known.habits.may_overflow => {}
                    Err(HostError::LogFull { .. }) if known.least_log || known.may_fill => {
                        self.abort(known, tx, "is too long for the log")?;
                    }
                    step => {
                        if self.heed(known, which, wish, step)?.is_some() {
                            self.live[which].writes.insert(place, contents);
                        }
                    }
                }
            }
            Wish::Commit => {
                known.note(|| format!("#{name} asks to commit"));
                // From here on the commit may survive a cut, acknowledged or not.
                known.oracle.ask(name, self.live[which].writes.clone());
                match self
                    .host
                    .commit(known.now, tx)
                    .map_err(|error| stop(known, error))?
                {
                    Step::Done((), done) => {
                        self.live.swap_remove(which);
                        known.note_done(name, done);
                        known.oracle.acknowledge(name, done.0);
                    }
                    Step::Waits => {
                        let live = &mut self.live[which];
                        (live.wish, live.parked) = (Some(wish), true);
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

    /// Handles the answer `step` of the host to `wish`. Returns the result of a granted request. A
    /// transaction that must wait, or whose request made the host abort another one, repeats it
    /// later.
    fn heed<T>(
        &mut self,
        known: &mut Known,
        which: usize,
        wish: Wish,
        step: Result<Step<T>, HostError>,
    ) -> Done<Option<T>> {
        let live = &mut self.live[which];
        match step.map_err(|error| stop(known, error))? {
            Step::Done(result, _) => return Ok(Some(result)),
            Step::Waits => {
                known.note(|| format!("#{} waits", live.name));
                (live.wish, live.parked) = (Some(wish), true);
            }
            Step::Abort { victim, why } => {
                live.wish = Some(wish);
                self.abort(known, victim, &format!("is aborted ({why:?})"))?;
            }
        }
        Ok(None)
    }

    /// Rolls back a transaction; `how` says why, in the report. A commit that it requested is
    /// withdrawn.
    fn abort(&mut self, known: &mut Known, tx: TxId, how: &str) -> Done<()> {
        let Some(which) = self.live.iter().position(|live| live.tx == tx) else {
            return Err(Stop::Violation(format!("{tx} is a victim and not live")));
        };
        let live = self.live.swap_remove(which);
        known.note(|| format!("#{} {how}", live.name));
        if self.committing.remove(&tx).is_some() {
            known.oracle.withdraw(live.name);
        }
        self.host
            .abort(known.now, tx)
            .map_err(|error| stop(known, error))?;
        Ok(())
    }

    /// Collects acknowledgements of group commits, and resumes the transactions that the host
    /// wakes. A transaction that is woken during its commit must request it again. `flush`
    /// completes groups.
    fn hear(&mut self, known: &mut Known, flush: bool) -> Done<()> {
        let acknowledged = self.host.acknowledged(known.now, flush);
        for (tx, at) in acknowledged.map_err(|error| stop(known, error))? {
            let name = self.committing.remove(&tx);
            let name = name.ok_or_else(|| Stop::Violation(format!("{tx} did not ask")))?;
            self.live.retain(|live| live.tx != tx);
            known.note_done(name, at);
            known.oracle.acknowledge(name, at.0);
        }
        for tx in self.host.woken() {
            if let Some(live) = self.live.iter_mut().find(|live| live.tx == tx) {
                live.parked = false;
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
        HostError::Device(error) if known.may_fill && world::is_full(&error) => Stop::Full,
        other => Stop::Violation(format!("the host refuses: {other}")),
    }
}

/// Whether the error reports a page lost to bit errors.
fn is_damage(error: &HostError) -> bool {
    matches!(error, HostError::Device(error) if world::is_damage(error))
}
