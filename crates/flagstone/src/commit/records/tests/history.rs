//! Random histories of clients that share pages, with power cuts, against the rule that a reader
//! finds the newest copy of each record that is not pending or whose transaction has committed.

use super::*;
use std::collections::BTreeMap;

/// Pages that the clients share, and records of each.
const SHARED: u32 = 7;
const SLOTS: u16 = 5;

type Value = Option<Vec<u8>>;

/// Value and LSN of each record of a page, and what is pending there.
type Contents = (Vec<(Value, u64)>, Vec<Pending>);

/// A version that was written.
#[derive(Debug, Clone)]
struct Written {
    lsn: u64,
    values: Vec<Value>,
    pending: BTreeMap<SlotNo, TxId>,
    /// When it is durable.
    done: Nanos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Live,
    Aborted,
    /// At that instant.
    Committed(Nanos),
}

/// A page in the host's buffer.
#[derive(Debug, Clone, Default)]
struct Buffered {
    values: Vec<Value>,
    pending: BTreeMap<SlotNo, TxId>,
    /// Records of transactions whose commit is not durable yet.
    locked: BTreeMap<SlotNo, TxId>,
    /// When all that is committed in it is durable.
    not_before: Nanos,
    dirty: bool,
}

/// A client: one transaction after the other.
#[derive(Debug, Default)]
struct Client {
    now: Nanos,
    tx: Option<TxId>,
    /// It has asked to commit.
    ending: bool,
}

struct World {
    bench: Bench,
    dice: Dice,
    clients: [Client; 4],
    versions: Vec<Vec<Written>>,
    memory: Vec<Buffered>,
    status: BTreeMap<TxId, Status>,
    /// Transactions whose commit the host's log has.
    logged: BTreeSet<TxId>,
    lsn: u64,
}

/// A transaction is not what it has to be.
type Wrong = String;

impl World {
    fn new(
        kind: RecordKind,
        (max_c, planes): (u8, u32),
        mistake: Option<Mistake>,
        seed: u64,
    ) -> World {
        let mut bench = Bench::on(Bench::chip_of(max_c, planes), kind, max_c, mistake);
        bench.resolve(&[]);
        for page in 0..PAGES {
            bench.write(page, 0, &[], &[]);
        }
        let empty = Written {
            lsn: 0,
            values: vec![None; SLOTS.into()],
            pending: BTreeMap::new(),
            done: Nanos::ZERO,
        };
        let memory = Buffered {
            values: empty.values.clone(),
            ..Buffered::default()
        };
        World {
            bench,
            dice: Dice(seed),
            clients: Default::default(),
            versions: vec![vec![empty]; SHARED as usize],
            memory: vec![memory; SHARED as usize],
            status: BTreeMap::new(),
            logged: BTreeSet::new(),
            lsn: 0,
        }
    }

    fn committed(&self, tx: TxId) -> bool {
        matches!(self.status.get(&tx), None | Some(Status::Committed(_)))
    }

    /// Value and LSN of each record of a page, among the versions that are `there`.
    fn right(
        &self,
        page: usize,
        there: &dyn Fn(usize) -> bool,
        committed: &dyn Fn(TxId) -> bool,
    ) -> Vec<(Value, u64)> {
        let of = |slot: SlotNo| {
            let versions = self.versions[page].iter().enumerate().rev();
            let mut versions = versions.filter(|(index, _)| there(*index));
            let holds =
                |version: &Written| version.pending.get(&slot).is_none_or(|&tx| committed(tx));
            let found = versions.find(|(_, version)| holds(version));
            found.map_or((None, 0), |(_, version)| {
                (version.values[usize::from(slot)].clone(), version.lsn)
            })
        };
        (0..SLOTS).map(of).collect()
    }

    /// What the device says of the records of a page.
    fn found(&mut self, page: usize) -> Result<Contents, DeviceError> {
        let (now, mut merged) = (self.bench.now, MergedPage::default());
        let at = Lpn(page as u32);
        self.bench.device().read(now, at, &mut merged)?;
        let records = Page::parse(&merged.image).expect("it is a page of records");
        let of = |slot: SlotNo| {
            let older = merged.restored.iter().find(|(other, _)| *other == slot);
            let lsn = older.map_or(records.lsn(), |&(_, lsn)| lsn);
            (records.get(slot).map(<[u8]>::to_vec), lsn)
        };
        Ok(((0..SLOTS).map(of).collect(), merged.pending))
    }

    /// Writes a page as it is in memory.
    fn flush(&mut self, now: Nanos, page: usize) -> Result<Nanos, DeviceError> {
        self.lsn += 1;
        let buffered = &mut self.memory[page];
        buffered.dirty = false;
        let now = now.max(buffered.not_before);
        let (values, holders) = (&buffered.values, &buffered.pending);
        let mut records = Page::default();
        records.set_lsn(self.lsn);
        let mut pending: BTreeMap<TxId, Vec<SlotNo>> = BTreeMap::new();
        for (slot, value) in values.iter().enumerate() {
            if let Some(value) = value {
                records.put(slot as SlotNo, value, 200).expect("it fits");
            }
            if let Some(&tx) = holders.get(&(slot as SlotNo)) {
                pending.entry(tx).or_default().push(slot as SlotNo);
            }
        }
        let mut image = Vec::new();
        records.emit(200, &mut image).expect("it fits");
        let pending = pending.into_iter().map(|(tx, slots)| Pending { tx, slots });
        let pending: Vec<Pending> = pending.collect();
        self.versions[page].push(Written {
            lsn: self.lsn,
            values: values.clone(),
            pending: holders.clone(),
            done: Nanos(u64::MAX),
        });
        let device = self.bench.device();
        let done = device.write(now, Lpn(page as u32), &image, &pending)?;
        self.versions[page].last_mut().expect("pushed above").done = done;
        Ok(done)
    }

    /// One step of the client whose turn it is.
    fn step(&mut self) -> Result<(), DeviceError> {
        let turn = (0..self.clients.len())
            .min_by_key(|&i| self.clients[i].now)
            .expect("there are clients");
        let now = self.clients[turn].now;
        self.bench.now = now;
        let client = &mut self.clients[turn];
        client.now = now + Nanos::from_micros(1);
        if std::mem::take(&mut client.ending) {
            let tx = client.tx.take().expect("it was ending");
            self.logged.remove(&tx);
            for buffered in &mut self.memory {
                buffered.locked.retain(|_, holder| *holder != tx);
            }
        }
        let Some(tx) = client.tx else {
            let tx = self.bench.device().begin(now)?;
            self.clients[turn].tx = Some(tx);
            self.status.insert(tx, Status::Live);
            return Ok(());
        };
        let page = self.dice.below(SHARED.into()) as usize;
        match self.dice.below(16) {
            0..8 => {
                let slot = self.dice.below(SLOTS.into()) as SlotNo;
                let number = self.dice.next();
                let max_c = usize::from(self.bench.options.max_c);
                let page = &mut self.memory[page];
                let others: BTreeSet<TxId> = page.pending.values().copied().collect();
                let holder = page.pending.get(&slot).or(page.locked.get(&slot));
                let may = holder.is_none_or(|holder| *holder == tx)
                    && (others.contains(&tx) || others.len() < max_c);
                if may {
                    let bytes = number.to_le_bytes()[..1 + number as usize % 8].to_vec();
                    page.values[usize::from(slot)] = (!number.is_multiple_of(7)).then_some(bytes);
                    page.pending.insert(slot, tx);
                    page.dirty = true;
                }
            }
            8..11 => self.clients[turn].now = self.flush(now, page)?,
            11 => {
                // Another page without transactions, so that blocks are collected.
                let at = SHARED + self.dice.below(u64::from(PAGES - SHARED)) as u32;
                let device = self.bench.device();
                self.clients[turn].now = device.write(now, Lpn(at), &[], &[])?;
            }
            12 => {
                let (found, pending) = self.found(page)?;
                let status = &self.status;
                let undecided = |tx| status.get(&tx) == Some(&Status::Live);
                let right = self.right(page, &|_| true, &|tx| self.committed(tx) || undecided(tx));
                assert_eq!(found, right, "page {page}");
                let newest = self.versions[page].last().expect("there is one");
                let mut listed: BTreeMap<SlotNo, TxId> = BTreeMap::new();
                for Pending { tx, slots } in pending {
                    listed.extend(slots.into_iter().map(|slot| (slot, tx)));
                }
                let mut right = newest.pending.clone();
                right.retain(|_, tx| undecided(*tx));
                assert_eq!(listed, right, "pending in page {page}");
            }
            13 => {
                self.bench.device().abort(now, tx)?;
                self.status.insert(tx, Status::Aborted);
                self.clients[turn].tx = None;
                self.forget(tx);
            }
            _ => {
                let mut at = now;
                for page in 0..SHARED as usize {
                    let buffered = &self.memory[page];
                    if buffered.dirty && buffered.pending.values().any(|holder| *holder == tx) {
                        at = at.max(self.flush(now, page)?);
                    }
                }
                if self.dice.below(2) == 0 {
                    let written = self.versions.iter().flatten();
                    let own = written.filter(|v| v.pending.values().any(|of| *of == tx));
                    at = own.map(|version| version.done).fold(at, Nanos::max);
                    self.logged.insert(tx);
                } else {
                    at = now;
                }
                self.status.insert(tx, Status::Committed(Nanos(u64::MAX)));
                let done = self.bench.device().commit(at, tx)?;
                self.status.insert(tx, Status::Committed(done));
                for page in &mut self.memory {
                    page.pending.retain(|&slot, holder| {
                        let is_own = *holder == tx;
                        if is_own {
                            page.locked.insert(slot, tx);
                            page.not_before = page.not_before.max(done);
                        }
                        !is_own
                    });
                }
                let client = &mut self.clients[turn];
                (client.now, client.ending) = (done, true);
            }
        }
        Ok(())
    }

    /// Rolls a transaction back in memory.
    fn forget(&mut self, tx: TxId) {
        for page in 0..SHARED as usize {
            let right = self.right(page, &|_| true, &|tx| self.committed(tx));
            let buffered = &mut self.memory[page];
            buffered.pending.retain(|slot, holder| {
                let slot = usize::from(*slot);
                if *holder == tx {
                    buffered.values[slot] = right[slot].0.clone();
                }
                *holder != tx
            });
        }
    }

    /// Starts again until the power holds, and finds out what became of what was in flight.
    fn restart(&mut self, lives: u64) -> Result<(), Wrong> {
        let cut = self.bench.now;
        let mut again = 0;
        loop {
            let next = Cut {
                at: self.dice.below(1 + lives) >> (2 * again),
                dice: self.dice.next(),
                torn: self.dice.below(2) == 0,
            };
            again += 1;
            let dice = self.dice.next();
            match self.bench.restart(dice, (again < 8).then_some(next)) {
                Err(DeviceError::Ftl(FtlError::PowerLost)) => continue,
                other => other.expect("it opens"),
            }
            let in_doubt: BTreeSet<TxId> = self.bench.device().in_doubt().collect();
            let (now, logged) = (self.bench.now, self.logged.clone());
            match self.bench.device().resolve(now, &logged) {
                Err(DeviceError::Ftl(FtlError::PowerLost)) => continue,
                other => self.bench.now = other.expect("it resolves"),
            }
            self.bench.check();
            if let Some((&seen, _)) = self.status.last_key_value() {
                self.bench.device().raise_tx(seen);
            }
            self.agree(cut, &in_doubt)?;
            return Ok(());
        }
    }

    fn agree(&mut self, cut: Nanos, in_doubt: &BTreeSet<TxId>) -> Result<(), Wrong> {
        // Transactions whose commit was in flight and that the log does not decide.
        let mut maybe: Vec<TxId> = Vec::new();
        for (tx, status) in &mut self.status {
            match *status {
                Status::Live => *status = Status::Aborted,
                Status::Committed(done) if done > cut && !self.logged.contains(tx) => {
                    if in_doubt.contains(tx) {
                        *status = Status::Aborted;
                    } else {
                        maybe.push(*tx);
                    }
                }
                _ => {}
            }
        }
        let mut found = Vec::new();
        for page in 0..SHARED as usize {
            let read = self.found(page).expect("it reads");
            assert_eq!(read.1, [], "nothing is pending after a restart");
            found.push(read.0);
        }
        let mut wrong = String::new();
        for choice in 0..1u32 << maybe.len() {
            let aborted = |tx: TxId| {
                let place = maybe.iter().position(|other| *other == tx);
                place.is_some_and(|place| choice >> place & 1 == 1)
            };
            let mut kept = Vec::new();
            for (page, found) in found.iter().enumerate() {
                match self.subset(page, cut, found, &maybe, &aborted) {
                    Some(subset) => kept.push(subset),
                    None => {
                        let right = self.right(page, &|_| true, &|tx| self.committed(tx));
                        wrong = format!("page {page} has {found:?}, not {right:?}");
                        break;
                    }
                }
            }
            if kept.len() < found.len() {
                continue;
            }
            for &tx in maybe.iter().filter(|tx| aborted(**tx)) {
                self.status.insert(tx, Status::Aborted);
            }
            for status in self.status.values_mut() {
                if let Status::Committed(done) = status {
                    *done = Nanos::ZERO;
                }
            }
            for (page, kept) in kept.into_iter().enumerate() {
                let mut index = 0;
                self.versions[page].retain_mut(|version| {
                    index += 1;
                    version.done = Nanos::ZERO;
                    kept[index - 1]
                });
            }
            self.begin_again(found);
            return Ok(());
        }
        Err(wrong)
    }

    /// Which versions of a page there are, if some choice explains what was found.
    fn subset(
        &self,
        page: usize,
        cut: Nanos,
        found: &[(Value, u64)],
        maybe: &[TxId],
        aborted: &dyn Fn(TxId) -> bool,
    ) -> Option<Vec<bool>> {
        let versions = &self.versions[page];
        let in_flight: Vec<usize> = (0..versions.len())
            .filter(|&index| versions[index].done > cut)
            .collect();
        (0..1u32 << in_flight.len()).rev().find_map(|bits| {
            let there = |index: usize| {
                let place = in_flight.iter().position(|&other| other == index);
                place.is_none_or(|place| bits >> place & 1 == 1)
            };
            // Of a transaction that has committed all is there.
            let whole = (0..versions.len()).all(|index| {
                let mut owners = versions[index].pending.values();
                there(index) || !owners.any(|tx| maybe.contains(tx) && !aborted(*tx))
            });
            let right = self.right(page, &there, &|tx| self.committed(tx) && !aborted(tx));
            let all = (0..versions.len()).map(there);
            (whole && right == found).then(|| all.collect())
        })
    }

    fn begin_again(&mut self, found: Vec<Vec<(Value, u64)>>) {
        for (page, found) in found.into_iter().enumerate() {
            self.memory[page] = Buffered {
                values: found.into_iter().map(|(value, _)| value).collect(),
                ..Buffered::default()
            };
            // Versions before one without pending records are never needed again.
            let open = |version: &Written| {
                let mut owners = version.pending.values();
                owners.any(|&tx| !self.committed(tx))
            };
            let plain = self.versions[page].iter().rposition(|v| !open(v));
            self.versions[page].drain(..plain.unwrap_or(0));
        }
        self.logged.clear();
        let now = self.bench.now;
        self.clients = Default::default();
        self.clients.iter_mut().for_each(|client| client.now = now);
    }

    /// Runs until the power fails.
    fn live(&mut self, steps: u64) -> Result<(), Wrong> {
        for step in 0..steps {
            match self.step() {
                Ok(()) => {}
                Err(DeviceError::Ftl(FtlError::PowerLost)) => return Ok(()),
                Err(other) => panic!("step {step}: {other}"),
            }
            if step % 16 == 0 {
                self.bench.check();
            }
        }
        Ok(())
    }
}

struct Run {
    merged: u64,
    collections: u64,
    outcome: Result<(), Wrong>,
}

/// Lives of a device, each ended by a cut.
fn run(
    kind: RecordKind,
    (max_c, planes): (u8, u32),
    mistake: Option<Mistake>,
    seed: u64,
    lives: u64,
) -> Run {
    let mut world = World::new(kind, (max_c, planes), mistake, seed);
    let (mut merged, mut collections) = (0, 0);
    let mut outcome = Ok(());
    for _ in 0..lives {
        outcome = world.restart(400).and_then(|()| world.live(600));
        if outcome.is_err() {
            break;
        }
        let device = world.bench.device();
        merged += device.merged();
        collections += device.stats().collections;
    }
    Run {
        merged,
        collections,
        outcome,
    }
}

#[test]
fn histories_under_cuts_keep_what_has_committed() {
    for kind in RecordKind::ALL {
        let (mut merged, mut collections) = (0, 0);
        for seed in 0..SEEDS {
            let max_c = 1 + seed as u8 % 4;
            let planes = 2 << (seed % 3);
            let run = run(kind, (max_c, planes), None, seed, 60);
            if let Err(wrong) = run.outcome {
                panic!("{kind}, max_c {max_c}, {planes} planes, seed {seed}: {wrong}");
            }
            merged += run.merged;
            collections += run.collections;
        }
        assert!(merged > 500, "{kind}: {merged} merged");
        assert!(collections > 5_000, "{kind}: {collections} collections");
    }
}

/// Enough for a few seconds.
const SEEDS: u64 = 40;

/// How many of some seeds end in a loss.
fn losses(kind: RecordKind, mistake: Option<Mistake>) -> usize {
    let lost = |&seed: &u64| {
        let run = || run(kind, (2, 2 << (seed % 3)), mistake, seed, 60).outcome;
        let caught = std::panic::catch_unwind(run);
        !matches!(caught, Ok(Ok(())))
    };
    (0..6).filter(lost).count()
}

#[test]
fn steps_that_are_left_out_are_noticed() {
    for mistake in [Mistake::PendingOnly, Mistake::NoBarrier, Mistake::FlagsLost] {
        for kind in RecordKind::ALL {
            assert!(losses(kind, Some(mistake)) > 0, "{kind}, {mistake:?}");
        }
    }
    assert!(losses(RecordKind::CfcEx, Some(Mistake::OneDeath)) > 0);
}
