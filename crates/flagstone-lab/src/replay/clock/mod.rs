//! Compares the clock with a second model. Runs of every protocol on devices of several shapes are
//! recorded, operation by operation, and replayed by an event simulation.
//!
//! What an operation waits for is inferred from the recorded instants: it was ready when another
//! one ended. Latencies are such that two operations hardly ever end in the same nanosecond.

mod apart;
mod model;
mod mqsim;

use super::{Played, Setup, Terms, script_of};
use crate::device::DeviceSpec;
use crate::driver::{Admission, Backend, Driver, PageDevice, Span};
use crate::workload::{Pattern, Workload};
use flagstone::commit::{Device, Kind, Options};
use flagstone::nand::{Busy, Chip, Flash, FlashError, Geometry, Read, Timing};
use flagstone::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use flagstone_host::{HostError, Rid, Step};
use model::{Ready, Simulated, Task};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Program,
    Reprogram,
    Erase,
}

/// A recorded operation, and when it was done.
#[derive(Debug, Clone, Copy)]
struct Called {
    operation: Operation,
    now: u64,
    done: u64,
    block: u32,
    page: u32,
    transfer: u64,
}

/// A chip that records its requests.
struct Watched {
    chip: Chip,
    log: Arc<Mutex<Vec<Called>>>,
}

impl Watched {
    fn note(&self, operation: Operation, now: Nanos, done: Nanos, at: Ppn, bytes: u32) {
        let geometry = self.chip.geometry();
        self.log.lock().unwrap().push(Called {
            operation,
            now: now.0,
            done: done.0,
            block: geometry.block_of(at).0,
            page: at.0,
            transfer: self.chip.timing().transfer(bytes).0,
        });
    }

    fn page_bytes(&self) -> u32 {
        let geometry = self.chip.geometry();
        geometry.page_bytes + geometry.spare_bytes
    }
}

impl Flash for Watched {
    flagstone::forward_flash!([chip] but read program reprogram erase);

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        let read = self.chip.read(now, at, data, spare)?;
        let bytes = if data.is_empty() {
            self.chip.geometry().spare_bytes
        } else {
            self.page_bytes()
        };
        self.note(Operation::Read, now, read.done, at, bytes);
        Ok(read)
    }

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        let done = self.chip.program(now, at, data, spare)?;
        self.note(Operation::Program, now, done, at, self.page_bytes());
        Ok(done)
    }

    fn reprogram(
        &mut self,
        now: Nanos,
        at: Ppn,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Nanos, FlashError> {
        let done = self.chip.reprogram(now, at, offset, bytes)?;
        self.note(Operation::Reprogram, now, done, at, 0);
        Ok(done)
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        let done = self.chip.erase(now, block)?;
        let first = self.chip.geometry().page(block, 0);
        self.note(Operation::Erase, now, done, first, 0);
        Ok(done)
    }

    fn copies_inside(&self) -> bool {
        self.chip.copies_inside()
    }

    fn read_inside(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        let read = self.chip.read_inside(now, at, data, spare)?;
        self.note(Operation::Read, now, read.done, at, 0);
        Ok(read)
    }

    fn program_inside(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        let done = self.chip.program_inside(now, at, data, spare)?;
        self.note(Operation::Program, now, done, at, 0);
        Ok(done)
    }

    fn hint(&self, at: Ppn) -> Option<&[u8]> {
        self.chip.hint(at)
    }

    fn model(&self) -> Option<&Chip> {
        Some(&self.chip)
    }
}

/// A page device that records when transactions begin and end, and to which request each operation
/// belongs.
struct Noting<'a> {
    device: PageDevice<'a>,
    begun: HashMap<TxId, u64>,
    ended: Vec<(u64, u64)>,
    log: Arc<Mutex<Vec<Called>>>,
    /// Number of operations before each request, and its transaction.
    requests: Vec<(usize, Option<TxId>)>,
    /// Requests that commit.
    commits: BTreeSet<usize>,
}

impl Noting<'_> {
    fn ends(&mut self, tx: TxId, done: Nanos) {
        self.ended.push((self.begun[&tx], done.0));
    }

    fn request(&mut self, tx: Option<TxId>) {
        let before = self.log.lock().unwrap().len();
        self.requests.push((before, tx));
    }
}

impl Backend for Noting<'_> {
    fn begin(&mut self, now: Nanos) -> Result<Option<TxId>, HostError> {
        self.request(None);
        let tx = self.device.begin(now)?;
        self.begun.extend(tx.map(|tx| (tx, now.0)));
        Ok(tx)
    }

    fn touch(&mut self, now: Nanos, tx: TxId, page: Lpn) -> Result<Step<()>, HostError> {
        self.request(Some(tx));
        self.device.touch(now, tx, page)
    }

    fn read(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        into: &mut Vec<u8>,
    ) -> Result<Step<bool>, HostError> {
        self.request(Some(tx));
        self.device.read(now, tx, rid, into)
    }

    fn write(
        &mut self,
        now: Nanos,
        tx: TxId,
        rid: Rid,
        bytes: Option<&[u8]>,
    ) -> Result<Step<()>, HostError> {
        self.request(Some(tx));
        self.device.write(now, tx, rid, bytes)
    }

    fn commit(&mut self, now: Nanos, tx: TxId) -> Result<Step<()>, HostError> {
        self.request(Some(tx));
        self.commits.insert(self.requests.len() - 1);
        let step = self.device.commit(now, tx)?;
        if let Step::Done((), done) = step {
            self.ends(tx, done);
        }
        Ok(step)
    }

    fn abort(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, HostError> {
        self.request(Some(tx));
        self.device.abort(now, tx)
    }

    fn woken(&mut self) -> Vec<TxId> {
        self.device.woken()
    }

    fn acknowledged(&mut self, now: Nanos, flush: bool) -> Result<Vec<(TxId, Nanos)>, HostError> {
        self.request(None);
        let all = self.device.acknowledged(now, flush)?;
        for &(tx, done) in &all {
            self.ends(tx, done);
        }
        Ok(all)
    }

    fn deadline(&self) -> Option<Nanos> {
        self.device.deadline()
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        self.device.memory()
    }

    fn reached(&mut self, now: Nanos) {
        self.device.reached(now);
    }
}

/// A recorded run.
struct Recorded {
    start: u64,
    called: Vec<Called>,
    /// Number of calls before the start.
    filling: usize,
    /// Begin and end of each transaction.
    ended: Vec<(u64, u64)>,
    /// Number of operations before each request, and its transaction.
    requests: Vec<(usize, Option<TxId>)>,
    commits: BTreeSet<usize>,
    busy: Busy,
}

impl Recorded {
    /// The request of an operation of the run: the number of operations of the run before it, and
    /// its transaction.
    fn request_of(&self, nth: usize) -> (usize, Option<TxId>, bool) {
        let at = self.filling + nth;
        let behind = self.requests.partition_point(|&(before, _)| before <= at);
        let (before, tx) = self.requests[behind - 1];
        (
            before - self.filling,
            tx,
            self.commits.contains(&(behind - 1)),
        )
    }
}

/// The collection of each operation of a run, as the number of its erase: what a request has called
/// on the plane of the victim from the first access of the victim on.
fn collections(recorded: &Recorded, geometry: &Geometry) -> Vec<Option<usize>> {
    let run = &recorded.called[recorded.filling..];
    let mut of = vec![None; run.len()];
    let plane_of = |call: &Called| geometry.plane_of(Pbn(call.block));
    let erases = run.iter().enumerate();
    for (erase, victim) in erases.filter(|(_, call)| call.operation == Operation::Erase) {
        let first = recorded.request_of(erase).0;
        let accessed = (first..erase).find(|&nth| run[nth].block == victim.block);
        for nth in accessed.unwrap_or(erase)..=erase {
            if plane_of(&run[nth]) == plane_of(victim) && of[nth].is_none() {
                of[nth] = Some(erase);
            }
        }
    }
    of
}

/// Records a run.
fn record(setup: &Setup, transactions: u32) -> Recorded {
    let chip = setup.fill().blank();
    let log: Arc<Mutex<Vec<Called>>> = Arc::default();
    let watched = Watched {
        chip,
        log: Arc::clone(&log),
    };
    let (config, options) = (setup.device.config, &setup.options);
    let opened = Device::open(Box::new(watched), setup.kind, config, options, Nanos::ZERO);
    let mut device = opened.expect("the device suits the protocol");
    let start = setup.fill().write(&mut device).expect("it can be filled");
    let busy = |device: &Device| device.ftl().flash().model().unwrap().busy();
    let before = busy(&device);
    let filling = log.lock().unwrap().len();
    let workload = Workload {
        pattern: Pattern::Uniform,
        pages: (f64::from(device.pages()) * setup.terms.fill) as u32,
        requests: u64::from(transactions) * 8,
        read_share: 0.25,
        pages_per_transaction: 8,
        seed: 7,
    };
    let script = script_of(&workload).unwrap();
    let noting = Noting {
        device: PageDevice::new(&mut device, false),
        begun: HashMap::new(),
        ended: Vec::new(),
        log: Arc::clone(&log),
        requests: Vec::new(),
        commits: BTreeSet::new(),
    };
    let isolation = Admission::isolated(setup.isolation().unwrap());
    let mut driver = Driver::new(setup.plan(), isolation, noting, Played::new(&script), start);
    driver.run(Span::Transactions(u64::MAX)).unwrap();
    let (noting, _) = driver.into_parts();
    let Noting {
        ended,
        requests,
        commits,
        ..
    } = noting;
    let after = busy(&device);
    let called = log.lock().unwrap().clone();
    Recorded {
        start: start.0,
        called,
        filling,
        ended,
        requests,
        commits,
        busy: Busy {
            planes: Nanos(after.planes.0 - before.planes.0),
            channels: Nanos(after.channels.0 - before.channels.0),
        },
    }
}

/// Results of a model for one run.
#[derive(Debug, Clone, Copy)]
struct Measured {
    total: f64,
    mean: f64,
    p99: f64,
    busy: f64,
}

fn measured(start: u64, spans: &[(u64, u64)], busy: u64, planes: u32) -> Measured {
    let total = (spans.iter().map(|span| span.1).max().unwrap() - start) as f64;
    let mut times: Vec<u64> = spans.iter().map(|(from, to)| to - from).collect();
    times.sort_unstable();
    Measured {
        total,
        mean: times.iter().sum::<u64>() as f64 / times.len() as f64,
        p99: times[times.len() * 99 / 100] as f64,
        busy: busy as f64 / total / f64::from(planes),
    }
}

/// A model of a device's time. Its arguments: operations, when each is ready, planes, planes per
/// channel.
type Model = fn(&[Task], &[Ready], usize, usize) -> Simulated;

/// Replays a recorded run by another model.
fn replay(recorded: &Recorded, geometry: &Geometry, timing: &Timing, model: Model) -> Measured {
    let mut ends: BTreeMap<u64, usize> = BTreeMap::new();
    let mut ready: Vec<Ready> = Vec::new();
    let mut tasks = Vec::new();
    // Per block: its last change, and everything since its last erase. Per page: its program.
    let mut changed: HashMap<u32, usize> = HashMap::new();
    let mut used: HashMap<u32, Vec<usize>> = HashMap::new();
    let mut programmed: HashMap<u32, usize> = HashMap::new();
    let waits = |ends: &BTreeMap<u64, usize>, instant: u64| match ends.range(..=instant).next_back()
    {
        Some((&end, &nth)) if end > recorded.start => (Some(nth), instant - end),
        _ => (None, instant.saturating_sub(recorded.start)),
    };
    let run = &recorded.called[recorded.filling..];
    let collections = collections(recorded, geometry);
    // Per transaction: its operations.
    let mut own: HashMap<TxId, Vec<usize>> = HashMap::new();
    for (nth, call) in run.iter().enumerate() {
        let (_, tx, commits) = recorded.request_of(nth);
        let (after, wait) = waits(&ends, call.now);
        let mut others: Vec<usize> = match call.operation {
            Operation::Read => programmed.get(&call.page).copied().into_iter().collect(),
            Operation::Program | Operation::Reprogram => {
                changed.get(&call.block).copied().into_iter().collect()
            }
            Operation::Erase => used.remove(&call.block).unwrap_or_default(),
        };
        if let (Some(tx), None) = (tx, collections[nth]) {
            let own = own.entry(tx).or_default();
            if commits {
                // A commit waits for what its transaction has written.
                others.extend(own.iter().filter(|&&one| run[one].done <= call.now));
            }
            own.push(nth);
        }
        ready.push(Ready {
            after,
            wait,
            others,
            collection: collections[nth],
        });
        if call.operation != Operation::Read {
            changed.insert(call.block, nth);
            programmed.insert(call.page, nth);
        }
        used.entry(call.block).or_default().push(nth);
        let (before, behind) = match call.operation {
            Operation::Read => (timing.read.0, 0),
            Operation::Program => (0, timing.program.0),
            Operation::Reprogram => (0, timing.reprogram.0),
            Operation::Erase => (0, timing.erase.0),
        };
        tasks.push(Task {
            plane: geometry.plane_of(Pbn(call.block)) as usize,
            before,
            transfer: call.transfer,
            behind,
        });
        ends.insert(call.done, nth);
    }
    let shared = geometry.planes() / geometry.channels;
    let simulated = model(&tasks, &ready, geometry.planes() as usize, shared as usize);
    let moved = |instant: u64| {
        let (after, wait) = waits(&ends, instant);
        after.map_or(0, |nth| simulated.ends[nth]) + wait
    };
    let spans = recorded.ended.iter();
    let spans: Vec<(u64, u64)> = spans
        .map(|&(from, to)| (moved(from), moved(to).max(moved(from))))
        .collect();
    measured(0, &spans, simulated.busy, geometry.planes())
}

fn setup(kind: Kind, planes: u32, shared: u32, clients: u32) -> Setup {
    let mut device = DeviceSpec::load("small").unwrap();
    device.geometry = Geometry {
        channels: planes / shared,
        packages_per_channel: 1,
        planes_per_package: shared,
        blocks_per_plane: 512 / planes,
        ..device.geometry
    };
    device.timing = Timing {
        read: Nanos(25_013),
        program: Nanos(200_017),
        reprogram: Nanos(200_023),
        erase: Nanos(1_500_047),
        transfer_ps_per_byte: 10_007,
    };
    // Space for the blocks that sixteen planes and a log keep free.
    device.config.over_provision = 0.3;
    let mut terms = Terms::on_filled(0.9, 1);
    terms.clients = clients;
    Setup {
        kind,
        options: Options::default(),
        device,
        isolation: None,
        terms,
    }
}

/// Device shapes: number of planes, and number of planes per channel.
const SHAPES: [(u32, u32); 9] = [
    (1, 1),
    (2, 1),
    (2, 2),
    (8, 1),
    (8, 2),
    (8, 4),
    (16, 1),
    (16, 2),
    (16, 4),
];

/// The first operation that waited although its plane was idle long enough for it.
fn passed_over(
    (called, filling): (&[Called], usize),
    geometry: &Geometry,
    timing: &Timing,
) -> Option<Called> {
    let span = |call: &Called| match call.operation {
        Operation::Read => timing.read.0,
        Operation::Program => timing.program.0,
        Operation::Reprogram => timing.reprogram.0,
        Operation::Erase => timing.erase.0,
    };
    let mut planes: Vec<Vec<(u64, u64)>> = vec![Vec::new(); geometry.planes() as usize];
    let plane_of = |call: &Called| geometry.plane_of(Pbn(call.block)) as usize;
    for call in called {
        planes[plane_of(call)].push((call.done - span(call), call.done));
    }
    for plane in &mut planes {
        plane.sort_unstable();
        let overlap = plane.windows(2).find(|two| two[1].0 < two[0].1);
        assert_eq!(overlap, None, "a plane does one operation at a time");
    }
    // Last change, read or erase of each block and program of each page, in call order.
    let (mut changed, mut used) = (HashMap::new(), HashMap::new());
    let mut programmed: HashMap<u32, u64> = HashMap::new();
    for (nth, call) in called.iter().enumerate() {
        let held = match call.operation {
            Operation::Read => programmed.get(&call.page),
            Operation::Program | Operation::Reprogram => changed.get(&call.block),
            Operation::Erase => used.get(&call.block),
        };
        let ready = call.now.max(held.copied().unwrap_or(0));
        let start = call.done - span(call);
        let plane = &planes[plane_of(call)];
        let mut free = ready;
        for &(from, to) in &plane[plane.partition_point(|&(_, to)| to <= ready)..] {
            if from >= start {
                break;
            }
            if from >= free + span(call) && nth >= filling {
                return Some(*call);
            }
            free = free.max(to);
        }
        if start >= free + span(call) && nth >= filling {
            return Some(*call);
        }
        if call.operation != Operation::Read {
            changed.insert(call.block, call.done);
            programmed.insert(call.page, call.done);
        }
        let used = used.entry(call.block).or_insert(0);
        *used = call.done.max(*used);
    }
    None
}

#[test]
fn no_plane_is_idle_for_as_long_as_an_operation_takes_that_waits_for_it() {
    for (planes, shared) in SHAPES.into_iter().filter(|&(_, shared)| shared == 1) {
        for &kind in Kind::ALL {
            let mut setup = setup(kind, planes, shared, 16);
            setup.device.timing.transfer_ps_per_byte = 0;
            let recorded = record(&setup, 60);
            let (geometry, timing) = (&setup.device.geometry, &setup.device.timing);
            let found = passed_over((&recorded.called, recorded.filling), geometry, timing);
            assert_eq!(found.map(|call| call.now), None, "{kind}, {planes} planes");
            // Control: the last operation, slightly delayed.
            let mut late = recorded.called;
            let last = late.iter_mut().max_by_key(|call| call.done).unwrap();
            last.done += 2_000_000;
            assert!(passed_over((&late, recorded.filling), geometry, timing).is_some());
        }
    }
}
