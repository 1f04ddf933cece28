//! Clients of a transactional device: they begin, write, read, trim, commit and abort. A place is a
//! logical page.

use super::cells::LONGEST_OPEN;
use super::work::Work;
use super::world::{Done, Intent, Known, Stop, World, is_full, show_bytes};
use crate::explain::Shown;
use crate::payload::{Contents, Place, payload, show};
use flagstone::commit::{Device, DeviceError, Isolation};
use flagstone::ftl::FtlError;
use flagstone::units::{Lpn, Nanos, Pbn, TxId};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

/// A live transaction.
struct LiveTx {
    name: u64,
    tx: TxId,
    writes: BTreeMap<Place, Contents>,
    /// Number of writes so far, which is part of their bytes.
    nth: u16,
    intent: Intent,
    begun: Nanos,
}

/// A device and its clients. Functions name a live transaction by its index in `live` (`which`).
pub(super) struct Pages {
    device: Device,
    live: Vec<LiveTx>,
    /// Transactions waiting for their group, by device identifier.
    waiting: BTreeMap<TxId, u64>,
}

impl World for Pages {
    fn step(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        let done = self.act(known, dice);
        known.show(|| Shown::of(self.device.ftl(), self.device.tables()));
        done
    }

    fn read_all(
        &mut self,
        known: &mut Known,
        damaged: &mut BTreeSet<Place>,
    ) -> Done<BTreeMap<Place, Contents>> {
        let mut found = BTreeMap::new();
        for page in 0..known.pages {
            let contents = match self.device.read(known.now, None, Lpn(page)) {
                Ok((_, None)) => None,
                Ok((_, Some(bytes))) => match bytes.try_into() {
                    Ok(bytes) => Some(bytes),
                    Err(_) => {
                        let what = format!("page {page} holds {}", show_bytes(Some(bytes)));
                        return Err(Stop::Violation(what));
                    }
                },
                Err(DeviceError::Unreadable(_)) if known.damage_allowed => {
                    damaged.insert(page);
                    continue;
                }
                Err(DeviceError::Ftl(FtlError::PowerLost)) => return Err(Stop::PowerLost),
                Err(error) => return Err(Stop::Violation(format!("page {page}: {error}"))),
            };
            found.insert(page, contents);
        }
        Ok(found)
    }

    fn prove(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        known.may_fill = false;
        self.begin(known, dice)?;
        self.write(known, 0, dice.random_range(0..known.pages), false)?;
        self.commit(known, 0)?;
        // Longer than a commit waits for its group.
        known.now += Nanos::from_micros(10_000);
        self.collect_groups(known)?;
        known.may_fill = true;
        Ok(())
    }

    fn recovered_at(&self) -> Nanos {
        self.device.recovered_at()
    }

    fn introduce(&self, known: &Known) {
        known.note_rulings(self.device.rulings());
        known.show(|| Shown::of(self.device.ftl(), self.device.tables()));
    }

    fn check(&mut self) -> Result<(), String> {
        self.device.check()
    }

    fn count(&mut self, work: &mut Work) {
        work.add(self.device.stats());
    }
}

impl Pages {
    pub(super) fn new(device: Device) -> Pages {
        Pages {
            device,
            live: Vec::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// One step of a random client.
    fn act(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        known.pass_time(dice);
        if known.pass_days(dice) {
            self.collect_groups(known)?;
            self.end_old(known)?;
            let tended = self.device.tend(known.now);
            tended.map_err(|error| stop(known, error))?;
        }
        self.collect_groups(known)?;
        known.oracle.pass(known.now.0);
        let collects = known.habits.collects;
        if collects > 0 && dice.random_range(0..100) < collects {
            return self.collect_one(known, dice);
        }
        let outside = known.habits.outside;
        if outside > 0 && dice.random_range(0..100) < outside {
            return self.write_outside(known, dice);
        }
        let action = dice.random_range(0..100);
        if self.live.is_empty() || (action < 12 && self.live.len() < known.clients) {
            return self.begin(known, dice);
        }
        let which = dice.random_range(0..self.live.len());
        let Intent { writes, aborts, .. } = self.live[which].intent;
        let page = known.some_page(dice);
        match action {
            97.. => self.abort(known, which),
            _ if writes == 0 && aborts => self.abort(known, which),
            _ if writes == 0 => self.commit(known, which),
            ..74 => self.write(known, which, page, false),
            74..80 => self.trim(known, which, page, dice),
            80..93 => self.read(known, Some(which), page),
            _ => self.read(known, None, page),
        }
    }

    /// Has any block collected, if that is possible.
    fn collect_one(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        let block = Pbn(dice.random_range(0..self.device.geometry().blocks()));
        match self.device.collect(known.now, block) {
            Ok(Some(_)) => {
                known.note(|| format!("block {block} is collected by request"));
                Ok(())
            }
            Ok(None) => Ok(()),
            // There is no place for its live pages.
            Err(error) if known.may_fill && is_full(&error) => Ok(()),
            Err(error) => Err(stop(known, error)),
        }
    }

    /// Writes a page outside of transactions: like a transaction of one page that commits at once.
    /// The page stays as it was if the device has no room, or no place for another transaction.
    fn write_outside(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        let (page, name) = (known.some_page(dice), known.name());
        let contents = payload(name, page, 0);
        let shown = show(&Some(contents));
        known.note(|| format!("#{name} writes page {page} outside of transactions: {shown}"));
        (known.oracle).ask(name, BTreeMap::from([(page, Some(contents))]));
        match self.device.write_outside(known.now, Lpn(page), &contents) {
            Ok(done) => {
                known.note_done(name, done);
                known.oracle.acknowledge(name, done.0);
            }
            Err(DeviceError::TooManyLive { .. }) if self.device.live().count() > 0 => {
                known.oracle.withdraw(name);
            }
            Err(error) if known.may_fill && is_full(&error) => {
                known.oracle.withdraw(name);
                known.note_full();
            }
            Err(error) => return Err(stop(known, error)),
        }
        Ok(())
    }

    /// Rolls back transactions that have been open for longer than cells allow.
    fn end_old(&mut self, known: &mut Known) -> Done<()> {
        let now = known.now;
        let is_old = |live: &LiveTx| now.since(live.begun) > LONGEST_OPEN;
        while let Some(which) = self.live.iter().position(is_old) {
            self.abort(known, which)?;
        }
        Ok(())
    }

    /// Begins a transaction, unless the device already has as many as it can.
    fn begin(&mut self, known: &mut Known, dice: &mut Pcg64Mcg) -> Done<()> {
        match self.device.begin(known.now) {
            Ok(tx) => {
                let name = known.name();
                known.note_begin(name, tx);
                self.live.push(LiveTx {
                    name,
                    tx,
                    writes: BTreeMap::new(),
                    nth: 0,
                    intent: known.intent(dice),
                    begun: known.now,
                });
                Ok(())
            }
            Err(DeviceError::TooManyLive { .. }) if self.device.live().count() > 0 => Ok(()),
            Err(error) => Err(stop(known, error)),
        }
    }

    /// Writes a page, or trims it. A conflict with a live or waiting transaction has no effect; any
    /// other conflict is a violation.
    fn write(&mut self, known: &mut Known, which: usize, page: Place, trim: bool) -> Done<()> {
        let intent = &mut self.live[which].intent;
        intent.writes = intent.writes.saturating_sub(1);
        let (name, tx, nth) = {
            let live = &self.live[which];
            (live.name, live.tx, live.nth)
        };
        let contents = (!trim).then(|| payload(name, page, nth));
        known.note(|| format!("#{name} writes page {page}: {}", show(&contents)));
        let outcome = match &contents {
            Some(bytes) => self.device.write(known.now, tx, Lpn(page), bytes),
            None => self.device.trim(known.now, tx, Lpn(page)),
        };
        match outcome {
            Ok(_) => {
                let taken = self.is_written_by_another(which, page);
                if taken && self.device.info().isolation == Isolation::NoPageConflict {
                    return Err(Stop::Violation(format!(
                        "two transactions write page {page}"
                    )));
                }
                let live = &mut self.live[which];
                live.writes.insert(page, contents);
                live.nth += 1;
                Ok(())
            }
            Err(DeviceError::Conflict { holder, .. }) => {
                let held =
                    self.is_written_by_another(which, page) || self.waiting.contains_key(&holder);
                if held {
                    Ok(())
                } else {
                    Err(Stop::Violation("a conflict that is none".into()))
                }
            }
            Err(error) if known.may_fill && is_full(&error) => self.refused(known, which),
            Err(error) => Err(stop(known, error)),
        }
    }

    /// Trims one or several pages.
    fn trim(
        &mut self,
        known: &mut Known,
        which: usize,
        page: Place,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        let name = self.live[which].name;
        self.write(known, which, page, true)?;
        let sweeps = known.habits.sweeps;
        if sweeps == 0 || dice.random_range(0..100) >= sweeps {
            return Ok(());
        }
        for _ in 0..dice.random_range(1..12) {
            let page = known.some_page(dice);
            // The transaction was rolled back because the device is full.
            if self.live.get(which).is_none_or(|live| live.name != name) {
                break;
            }
            self.write(known, which, page, true)?;
        }
        Ok(())
    }

    /// Whether a live transaction other than `which` has written a page.
    fn is_written_by_another(&self, which: usize, page: Place) -> bool {
        self.live
            .iter()
            .enumerate()
            .any(|(i, c)| i != which && c.writes.contains_key(&page))
    }

    /// Reads a page within a transaction, or outside of any (`None`), and compares it with the
    /// transaction's own write or with the oracle.
    fn read(&mut self, known: &mut Known, which: Option<usize>, page: Place) -> Done<()> {
        let own = which.and_then(|i| self.live[i].writes.get(&page).copied());
        let right = own.unwrap_or_else(|| known.oracle.read(page));
        let tx = which.map(|i| self.live[i].tx);
        let found = match self.device.read(known.now, tx, Lpn(page)) {
            Ok((_, bytes)) => bytes.map(<[u8]>::to_vec),
            Err(DeviceError::Unreadable(_)) if known.damage_allowed => return Ok(()),
            Err(error) => return Err(stop(known, error)),
        };
        if found.as_deref() == right.as_ref().map(|bytes| bytes.as_slice()) {
            return Ok(());
        }
        Err(Stop::Violation(format!(
            "{} reads {} in page {page}, not {}",
            tx.map_or_else(|| "a reader".into(), |tx| format!("{tx}")),
            show_bytes(found.as_deref()),
            show(&right)
        )))
    }

    /// Notes that a full device has refused a request. A persistent transaction continues, with or
    /// without what it has asked for; any other is rolled back.
    fn refused(&mut self, known: &mut Known, which: usize) -> Done<()> {
        if known.habits.persists {
            known.note_full();
            return Ok(());
        }
        self.give_up(known, which)
    }

    /// Rolls back a transaction that does not fit on a full device, which frees space.
    fn give_up(&mut self, known: &mut Known, which: usize) -> Done<()> {
        known.note_full();
        self.abort(known, which)
    }

    /// Commits a transaction. It then waits for its group if the device does not acknowledge at
    /// once.
    fn commit(&mut self, known: &mut Known, which: usize) -> Done<()> {
        let LiveTx { name, tx, .. } = self.live[which];
        known.note(|| format!("#{name} asks to commit"));
        known.oracle.ask(name, self.live[which].writes.clone());
        match self.device.commit(known.now, tx) {
            Ok(Some(done)) => {
                known.note_done(name, done);
                known.oracle.acknowledge(name, done.0);
            }
            Ok(None) => {
                self.waiting.insert(tx, name);
            }
            Err(error) if known.may_fill && is_full(&error) => {
                known.oracle.withdraw(name);
                return self.refused(known, which);
            }
            Err(error) => return Err(stop(known, error)),
        }
        self.live.swap_remove(which);
        Ok(())
    }

    fn abort(&mut self, known: &mut Known, which: usize) -> Done<()> {
        let live = self.live.swap_remove(which);
        known.note(|| format!("#{} aborts", live.name));
        match self.device.abort(known.now, live.tx) {
            Ok(_) => Ok(()),
            Err(error) => Err(stop(known, error)),
        }
    }

    /// Collects acknowledgements of groups that are complete or whose time is up.
    fn collect_groups(&mut self, known: &mut Known) -> Done<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // If every client waits for its group, nobody else can complete it: flush.
        let stuck = self.live.len() + self.waiting.len() >= known.clients;
        let flush = stuck && self.live.is_empty();
        let done = match self.device.acknowledged(known.now, flush) {
            Ok(done) => done,
            // The group repeats its request once there is space.
            Err(error) if known.may_fill && is_full(&error) && !self.live.is_empty() => {
                return self.give_up(known, 0);
            }
            Err(error) => return Err(stop(known, error)),
        };
        for (tx, at) in done {
            let name = self
                .waiting
                .remove(&tx)
                .ok_or_else(|| Stop::Violation(format!("{tx} is acknowledged, did not wait")))?;
            known.note_done(name, at);
            known.oracle.acknowledge(name, at.0);
        }
        Ok(())
    }
}

fn stop(known: &Known, error: DeviceError) -> Stop {
    match error {
        DeviceError::Ftl(FtlError::PowerLost) => Stop::PowerLost,
        DeviceError::Ftl(FtlError::Unreadable { .. }) | DeviceError::Unreadable(_)
            if known.damage_allowed =>
        {
            Stop::Damaged
        }
        other => Stop::Violation(format!("the device refuses: {other}")),
    }
}
