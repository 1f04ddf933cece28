//! A second model of device time, sharing no code with the first: events instead of timelines. It
//! knows all operations of a run and their dependencies. Each plane and each channel has a FIFO
//! queue, ordered by the instant at which operations are ready.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Occupancy of an operation in nanoseconds, in this order: plane, plane and channel, plane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub(super) plane: usize,
    pub(super) before: u64,
    pub(super) transfer: u64,
    pub(super) behind: u64,
}

/// When an operation is ready: a delay after the end of another operation, but not before the ends
/// of the listed ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Ready {
    /// The operation after whose end `wait` begins; `None` to begin at time zero.
    pub(super) after: Option<usize>,
    pub(super) wait: u64,
    pub(super) others: Vec<usize>,
    /// The last operation of the collection to which it belongs, on the plane of its victim.
    pub(super) collection: Option<usize>,
}

/// The results.
pub(super) struct Simulated {
    /// The end of each operation.
    pub(super) ends: Vec<u64>,
    /// Total busy time of all planes.
    pub(super) busy: u64,
}

/// A wrong clock, as a control: planes and channels run operations in the order of `tasks` and stay
/// idle until the next one is ready.
pub(super) fn in_order(tasks: &[Task], ready: &[Ready], planes: usize, shared: usize) -> Simulated {
    let mut plane_free = vec![0; planes];
    let mut channel_free = vec![0; planes.div_ceil(shared)];
    let (mut ends, mut busy) = (Vec::with_capacity(tasks.len()), 0);
    for (task, ready) in tasks.iter().zip(ready) {
        let due = ready.after.map_or(0, |after| ends[after]) + ready.wait;
        let others = ready.others.iter().map(|&other| ends[other]);
        let mut start = others.fold(due, u64::max).max(plane_free[task.plane]);
        let channel = &mut channel_free[task.plane / shared];
        let mut end = start + task.before + task.behind;
        if task.transfer > 0 {
            let from = (start + task.before).max(*channel);
            if task.before == 0 {
                start = from;
            }
            *channel = from + task.transfer;
            end = *channel + task.behind;
        }
        plane_free[task.plane] = end;
        busy += end - start;
        ends.push(end);
    }
    Simulated { ends, busy }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An operation is ready, and joins the queue of its plane.
    Joins,
    /// An operation leaves the cells, and joins the queue of its channel.
    Asks,
    /// A transfer is complete.
    Transferred,
    Ends,
    /// After all that happens at the instant at which an operation ends: its plane is free.
    Frees,
}

struct Simulation<'a> {
    tasks: &'a [Task],
    ready: &'a [Ready],
    /// Whether a plane that collects prefers the operations of the collection until its end.
    holds: bool,
    /// Number of planes per channel.
    shared: usize,
    /// Instant, whether it comes after the others of the instant, operation.
    events: BinaryHeap<Reverse<(u64, bool, usize, Event)>>,
    planes: Vec<Line>,
    channels: Vec<Line>,
    /// Since when each operation has held its plane.
    held: Vec<u64>,
    /// Whether each operation has ended.
    over: Vec<bool>,
    busy: u64,
}

#[derive(Default, Clone)]
struct Line {
    queue: VecDeque<usize>,
    taken: bool,
    /// The collection whose operations come first, until its end.
    held_for: Option<usize>,
}

/// Simulates all `tasks`, each from when it is `ready`, on `planes` planes.
pub(super) fn simulate(tasks: &[Task], ready: &[Ready], planes: usize, shared: usize) -> Simulated {
    events(tasks, ready, planes, shared, false)
}

/// Like [`simulate`], but a plane that collects prefers the operations of the collection until its
/// end. The SSD extension of DiskSim takes nothing else in between.
pub(super) fn holding(tasks: &[Task], ready: &[Ready], planes: usize, shared: usize) -> Simulated {
    events(tasks, ready, planes, shared, true)
}

fn events(tasks: &[Task], ready: &[Ready], planes: usize, shared: usize, holds: bool) -> Simulated {
    let mut waits: Vec<usize> = vec![0; tasks.len()];
    let mut awaited: Vec<Vec<usize>> = vec![Vec::new(); tasks.len()];
    let mut simulation = Simulation {
        tasks,
        ready,
        holds,
        shared,
        events: BinaryHeap::new(),
        planes: vec![Line::default(); planes],
        channels: vec![Line::default(); planes.div_ceil(shared)],
        held: vec![0; tasks.len()],
        over: vec![false; tasks.len()],
        busy: 0,
    };
    for (nth, ready) in ready.iter().enumerate() {
        let all = ready.after.iter().chain(&ready.others);
        for &other in all {
            awaited[other].push(nth);
            waits[nth] += 1;
        }
        if waits[nth] == 0 {
            simulation.at(ready.wait, nth, Event::Joins);
        }
    }
    let mut ends = vec![0; tasks.len()];
    while let Some(Reverse((now, _, nth, event))) = simulation.events.pop() {
        simulation.happens(now, nth, event);
        if event != Event::Ends {
            continue;
        }
        ends[nth] = now;
        for &next in &awaited[nth] {
            waits[next] -= 1;
            if waits[next] == 0 {
                let ready = &ready[next];
                let due = ready.after.map_or(0, |after| ends[after]) + ready.wait;
                simulation.at(due.max(now), next, Event::Joins);
            }
        }
    }
    assert!(
        waits.iter().all(|&left| left == 0),
        "nothing waits for itself"
    );
    Simulated {
        ends,
        busy: simulation.busy,
    }
}

impl Simulation<'_> {
    fn at(&mut self, when: u64, nth: usize, event: Event) {
        let is_last = event == Event::Frees;
        self.events.push(Reverse((when, is_last, nth, event)));
    }

    fn happens(&mut self, now: u64, nth: usize, event: Event) {
        let task = self.tasks[nth];
        match event {
            Event::Joins => {
                self.planes[task.plane].queue.push_back(nth);
                self.next_of_plane(now, task.plane);
            }
            Event::Asks => self.ask(now, nth),
            Event::Transferred => {
                let channel = task.plane / self.shared;
                self.channels[channel].taken = false;
                self.at(now + task.behind, nth, Event::Ends);
                self.next_of_channel(now, channel);
            }
            Event::Ends => {
                self.busy += now - self.held[nth];
                self.at(now, nth, Event::Frees);
            }
            Event::Frees => {
                let plane = &mut self.planes[task.plane];
                plane.taken = false;
                plane.held_for = plane.held_for.filter(|&last| last != nth);
                self.over[nth] = true;
                self.next_of_plane(now, task.plane);
            }
        }
    }

    fn next_of_plane(&mut self, now: u64, plane: usize) {
        if self.planes[plane].taken {
            return;
        }
        let line = &mut self.planes[plane];
        let (held, ready) = (line.held_for, self.ready);
        let is_of_it = |&nth: &usize| held.is_some() && ready[nth].collection == held;
        let at = line.queue.iter().position(is_of_it).unwrap_or(0);
        let Some(nth) = line.queue.remove(at) else {
            return;
        };
        line.taken = true;
        if self.holds && held.is_none() {
            // Some copies of a collection may come after its erase.
            let over = |last: &usize| self.over[*last];
            line.held_for = ready[nth].collection.filter(|last| !over(last));
        }
        self.held[nth] = now;
        self.at(now + self.tasks[nth].before, nth, Event::Asks);
    }

    fn ask(&mut self, now: u64, nth: usize) {
        let task = self.tasks[nth];
        if task.transfer == 0 {
            self.at(now + task.behind, nth, Event::Ends);
            return;
        }
        let channel = task.plane / self.shared;
        self.channels[channel].queue.push_back(nth);
        self.next_of_channel(now, channel);
    }

    fn next_of_channel(&mut self, now: u64, channel: usize) {
        if self.channels[channel].taken {
            return;
        }
        let Some(nth) = self.channels[channel].queue.pop_front() else {
            return;
        };
        self.channels[channel].taken = true;
        let task = self.tasks[nth];
        if task.before == 0 {
            // A program holds its plane from the first byte on.
            self.held[nth] = now;
        }
        self.at(now + task.transfer, nth, Event::Transferred);
    }
}

#[test]
fn operations_wait_for_planes_for_channels_and_for_each_other() {
    let task = |plane, before, transfer, behind| Task {
        plane,
        before,
        transfer,
        behind,
    };
    // Two planes of one channel: reads, then a program of the first plane that waits for one.
    let tasks = [
        task(0, 1, 10, 0),
        task(1, 1, 10, 0),
        task(0, 0, 10, 2),
        task(1, 0, 0, 4),
    ];
    let mut ready = vec![Ready::default(); 4];
    ready[2].after = Some(0);
    ready[3].others = vec![1];
    let simulated = simulate(&tasks, &ready, 2, 2);
    assert_eq!(simulated.ends, [11, 21, 33, 25]);
    assert_eq!(simulated.busy, 11 + 21 + 12 + 4);
    let simulated = in_order(&tasks, &ready, 2, 2);
    assert_eq!(simulated.ends, [11, 21, 33, 25]);
    assert_eq!(simulated.busy, 11 + 21 + 12 + 4);
    // An operation on the first plane that is ready at 100; a later one in the order is ready at 0.
    ready[0].wait = 100;
    ready[2].after = None;
    assert_eq!(simulate(&tasks, &ready, 2, 2).ends, [111, 20, 12, 24]);
    assert_eq!(in_order(&tasks, &ready, 2, 2).ends, [111, 121, 133, 125]);
}

#[test]
fn a_plane_that_collects_may_be_held_until_its_end() {
    let task = |behind| Task {
        plane: 0,
        before: 0,
        transfer: 0,
        behind,
    };
    // A collection of two operations, and one that is ready in between.
    let tasks = [task(10), task(20), task(5)];
    let mut ready = vec![Ready::default(); 3];
    ready[1].after = Some(0);
    ready[2].wait = 3;
    (ready[0].collection, ready[1].collection) = (Some(1), Some(1));
    assert_eq!(simulate(&tasks, &ready, 1, 1).ends, [10, 35, 15]);
    assert_eq!(holding(&tasks, &ready, 1, 1).ends, [10, 30, 35]);
}
