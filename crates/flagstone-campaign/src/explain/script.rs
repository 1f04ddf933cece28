//! The example: a few transactions on a small device, a collection, a power cut and the restart.
//! Each protocol, and its published form, executes the same client requests. The cut is chosen so
//! that it shows the protocol's main property.

use super::subject::{Form, Machine, Subject};
use super::tale::{Remark, Shown, Tale, image};
use crate::payload::{name_of, payload};
use flagstone::commit::DeviceError;
use flagstone::ftl::FtlError;
use flagstone::nand::{Chip, Cut, Flash, PowerCut, Shared, Tracer};
use flagstone::units::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of logical pages of the device.
pub(super) const PAGES: u32 = 56;
/// Pages per transaction before the example begins, and maximum number of such transactions.
const EARLIER_PAGES: u32 = 7;
const EARLIER_MAX: u32 = 60;
/// Random outcomes tried per cut: which operations in flight have landed.
const DICE: u64 = 24;

/// A client's request. Transactions are numbered in the order in which they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Begin(u64),
    Write(u64, u32),
    Commit(u64),
    Abort(u64),
    /// Waits until everything is durable.
    Rest,
}

/// The parameters of an example: order and distance of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plot {
    /// Number of transactions before the example, which fill the device as far as possible.
    earlier: u32,
    /// Number of small transactions between the one that is rolled back and the last one.
    between: u32,
    /// What the last transaction writes.
    last: Last,
}

/// What the last transaction of the example writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Pages that only the last transaction writes.
    Own,
    /// Pages that the rolled-back transaction has written.
    Over,
    /// Enough pages for the collector to run meanwhile.
    Long,
    /// One page twice.
    Twice,
}

/// A write: its transaction, and that transaction's write number for the page.
type Wrote = (u64, u16);
type Writes = BTreeMap<u32, Wrote>;

/// The power cut of an example: when a given operation of a request is issued, and with which
/// outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fall {
    /// The index of the request, the number of its operation, and the outcome as in [`Cut::dice`].
    act: usize,
    nth: u64,
    dice: u64,
}

/// The contents of an example's pages after the restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Each logical page: allowed contents (two if a commit was in doubt), and actual contents.
    pub(super) pages: Vec<Place>,
    /// Why the contents are wrong, if they are.
    pub(super) wrong: Option<String>,
    /// The last transaction that wrote each page, whatever its outcome.
    written: Vec<u64>,
    /// Whether the cut left part of the last transaction, which recovery has discarded.
    is_cut_in_two: bool,
}

/// A logical page after the restart: the writes that it may hold, and the one that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) page: u32,
    /// By the last acknowledged commit, by a commit in doubt, and as found; `right` if allowed.
    pub(super) before: Option<Wrote>,
    pub(super) doubted: Option<Wrote>,
    pub(super) found: Option<Wrote>,
    pub(super) right: bool,
}

impl Place {
    /// Describes a write. Adds its number if the transaction wrote the page several times.
    pub(super) fn words(&self, wrote: Option<Wrote>) -> String {
        let all = [self.before, self.doubted, self.found];
        let numbers = |name| {
            all.into_iter()
                .flatten()
                .filter(move |other| other.0 == name)
        };
        match wrote {
            None => "nothing".into(),
            Some((name, nth)) if numbers(name).any(|other| other.1 != nth) => {
                format!("T{name}'s write {}", nth + 1)
            }
            Some((name, _)) => format!("T{name}"),
        }
    }
}

impl Plot {
    /// The client requests, and the index of the first request of the example. Before that, a
    /// transaction writes all pages, and others rewrite some.
    fn acts(self) -> (Vec<Act>, usize) {
        let mut acts = Vec::new();
        let mut next = 0;
        // Adds a transaction from its begin to its end, and a rest.
        let mut whole = |acts: &mut Vec<Act>, pages: &[u32], aborts: bool| {
            next += 1;
            acts.push(Act::Begin(next));
            acts.extend(pages.iter().map(|&page| Act::Write(next, page)));
            acts.push(if aborts {
                Act::Abort(next)
            } else {
                Act::Commit(next)
            });
            acts.push(Act::Rest);
        };
        let all: Vec<u32> = (0..PAGES).collect();
        whole(&mut acts, &all, false);
        // Writes every page in turn, in an order that leaves old and new versions in all blocks.
        let mut at = 0;
        for _ in 0..self.earlier {
            let pages = (0..EARLIER_PAGES).map(|i| (at + i) * 23 % PAGES);
            whole(&mut acts, &pages.collect::<Vec<_>>(), false);
            at += EARLIER_PAGES;
        }
        let begins = acts.len();
        whole(&mut acts, &[0, 1], false);
        whole(&mut acts, &[0, 2], true);
        whole(&mut acts, &[2], false);
        for round in 0..self.between {
            whole(&mut acts, &[6 + round % 3, 3 + round % 2], false);
        }
        let last: &[u32] = match self.last {
            Last::Own => &[1, 4, 5],
            Last::Over => &[2, 0, 4],
            Last::Twice => &[1, 1, 4],
            Last::Long => &[1, 4, 5, 11, 12, 13, 14, 15, 16, 17, 18, 19],
        };
        whole(&mut acts, last, false);
        // Another client works while the last commit is in flight.
        acts.pop();
        whole(&mut acts, &[9, 10], false);
        acts.pop();
        (acts, begins)
    }
}

/// The state at the end of an execution.
pub(super) struct Played {
    pub(super) chip: Chip,
    /// For each transaction: its writes, and when its commit was durable, if requested.
    asked: Vec<(u64, Writes, Option<Nanos>)>,
    /// The last transaction that wrote each page.
    written: Vec<u64>,
    /// When the power failed, if it did.
    failed_at: Option<Nanos>,
    /// Number of operations issued before each act.
    issued: Vec<u64>,
    /// Whether the collector copied a page during the example, and whether it erased a block.
    collected: [bool; 2],
}

/// Executes the requests on a blank device, and records them if `tale` is given.
fn play(
    subject: &Subject,
    form: Form,
    (acts, begins): (&[Act], usize),
    cut: Option<Cut>,
    tale: Option<&Tale>,
) -> Result<Played, String> {
    let mut power = PowerCut::new(subject.blank()).telling();
    if let Some(cut) = cut {
        power = power.arm(cut);
    }
    let flash = Shared::new(power);
    let below: Box<dyn Flash> = match tale {
        Some(tale) => Box::new(Tracer::new(flash.clone(), Arc::clone(&tale.operations))),
        None => Box::new(flash.clone()),
    };
    let mut machine = Machine::start(subject, form, below).map_err(|error| error.to_string())?;
    let mut now = machine.recovered_at();
    let mut live: BTreeMap<u64, Writes> = BTreeMap::new();
    let mut asked: Vec<(u64, Writes, Option<Nanos>)> = Vec::new();
    let mut issued = Vec::new();
    let mut written = vec![0; PAGES as usize];
    let (mut failed_at, mut latest, mut before, mut after) = (None, now, None, [0; 2]);
    // The collection must be complete before the last but one transaction, which is cut, begins.
    let begun = acts.iter().enumerate().rev();
    let mut begun = begun.filter(|(_, act)| matches!(act, Act::Begin(_)));
    let last = begun.nth(1).map(|(place, _)| place);
    let say = |now, who, text: String| {
        if let Some(tale) = tale {
            tale.say(now, Some(who), text);
        }
    };
    for (place, &act) in acts.iter().enumerate() {
        if Some(place) == last {
            after = collections(&machine, &flash);
        }
        if place == begins {
            before = Some(collections(&machine, &flash));
            if let Some(tale) = tale {
                tale.remark(Remark::Begins);
                tale.remark(Remark::Shows(Box::new(machine.shown())));
            }
        }
        issued.push(flash.look(PowerCut::issued));
        let outcome = match act {
            Act::Rest => {
                now = latest + Nanos::from_micros(2_000);
                continue;
            }
            Act::Begin(name) => {
                live.insert(name, BTreeMap::new());
                say(now, name, format!("T{name} begins"));
                machine.begin(now, name)
            }
            Act::Write(name, page) => {
                let writes = live.get_mut(&name).expect("it has begun");
                let nth = writes.get(&page).map_or(0, |&(_, nth)| nth + 1);
                writes.insert(page, (name, nth));
                written[page as usize] = name;
                let again = if nth > 0 { " again" } else { "" };
                say(now, name, format!("T{name} writes page {page}{again}"));
                let bytes = payload(name, page, nth);
                machine.write(now, name, page, &bytes)
            }
            Act::Commit(name) => {
                let writes = live.remove(&name).expect("it has begun");
                asked.push((name, writes, None));
                say(now, name, format!("T{name} asks to commit"));
                let done = machine.commit(now, name);
                if let Ok(done) = done {
                    asked.last_mut().expect("just pushed").2 = Some(done);
                    if let Some(tale) = tale {
                        tale.remark(Remark::Said {
                            now: done,
                            who: Some(name),
                            text: format!("T{name} is committed: its commit is acknowledged"),
                            done: Some(done),
                        });
                    }
                }
                done
            }
            Act::Abort(name) => {
                live.remove(&name);
                say(now, name, format!("T{name} is rolled back"));
                machine.abort(now, name)
            }
        };
        match outcome {
            Ok(done) => latest = latest.max(done),
            Err(DeviceError::Ftl(FtlError::PowerLost)) => {
                failed_at = Some(now);
                break;
            }
            Err(error) => return Err(error.to_string()),
        }
        if let Some(tale) = tale {
            tale.remark(Remark::Shows(Box::new(machine.shown())));
        }
    }
    let collected = before.map_or([false; 2], |before| [0, 1].map(|i| after[i] > before[i]));
    drop(machine);
    let power = flash.take();
    if let (Some(tale), Some(now)) = (tale, failed_at) {
        let fates = power.fates().to_vec();
        tale.remark(Remark::Cut { now, fates });
        tale.remark(Remark::Image(image(power.chip())));
    }
    Ok(Played {
        chip: power.into_chip(),
        asked,
        written,
        failed_at,
        issued,
        collected,
    })
}

/// Pages copied by the collector, and erases of data blocks that had been written.
fn collections(machine: &Machine, flash: &Shared<PowerCut>) -> [u64; 2] {
    let again = flash.look(|power| {
        let counts = (0..).zip(power.chip().erase_counts());
        let of_data = counts.filter(|(block, _)| machine.has_data(*block));
        of_data
            .map(|(_, &erases)| u64::from(erases.saturating_sub(1)))
            .sum()
    });
    [machine.copies(), again]
}

/// Restarts the device, reads every page, and describes errors.
fn restart(
    subject: &Subject,
    form: Form,
    played: Played,
    tale: Option<&Tale>,
) -> Result<Seen, String> {
    let Played {
        chip,
        asked,
        written,
        failed_at,
        ..
    } = played;
    let on_flash: Vec<u64> = image(&chip)
        .into_iter()
        .filter_map(|kept| name_of(&kept?.data))
        .collect();
    let flash: Box<dyn Flash> = match tale {
        Some(tale) => {
            tale.say(
                Nanos::ZERO,
                None,
                "The power is back. The device starts from its flash alone",
            );
            Box::new(Tracer::new(chip, Arc::clone(&tale.operations)))
        }
        None => Box::new(chip),
    };
    let committed = |done: &Option<Nanos>| match (done, failed_at) {
        (Some(done), Some(failed)) => *done <= failed,
        // Without a cut every commit counts that has ended.
        (done, None) => done.is_some(),
        (None, Some(_)) => false,
    };
    let mut machine = Machine::start(subject, form, flash).map_err(|error| error.to_string())?;
    if let Some(tale) = tale {
        tale.remark(Remark::Ruled(machine.rulings()));
        tale.remark(Remark::Shows(Box::new(machine.shown())));
    }
    let mut before = Writes::new();
    let mut doubted: Vec<(u64, Writes)> = Vec::new();
    for (name, writes, done) in asked {
        if committed(&done) {
            before.extend(writes);
        } else {
            doubted.push((name, writes));
        }
    }
    let mut found = Writes::new();
    for page in 0..PAGES {
        let read = machine.read(page).map_err(|error| error.to_string())?;
        found.extend(read.map(|write| (page, write)));
    }
    // An in-doubt transaction counts if any of its pages shows it; then all of them must.
    let shows = |writes: &Writes| {
        let mut of_any = writes.iter();
        of_any.any(|(at, (name, _))| found.get(at).is_some_and(|found| found.0 == *name))
    };
    let mut right = before.clone();
    let mut is_cut_in_two = false;
    for (name, writes) in &doubted {
        if shows(writes) {
            right.extend(writes.clone());
        } else if writes.len() > 2 {
            // It is discarded, although some of its writes, but not all, are on flash.
            let there = on_flash.iter().filter(|there| *there == name).count();
            is_cut_in_two |= (1..writes.len()).contains(&there);
        }
    }
    let doubt = |page: u32| {
        let mut of_page = doubted
            .iter()
            .rev()
            .filter_map(|(_, writes)| writes.get(&page));
        of_page.next().copied()
    };
    let pages: Vec<Place> = (0..PAGES)
        .map(|page| Place {
            page,
            before: before.get(&page).copied(),
            doubted: doubt(page),
            found: found.get(&page).copied(),
            right: right.get(&page) == found.get(&page),
        })
        .collect();
    let wrong: Vec<String> = pages
        .iter()
        .filter(|place| !place.right)
        .map(|place| {
            let right = place.words(right.get(&place.page).copied());
            let found = place.words(place.found);
            if found.contains("write") {
                format!("page {} is {found}, not {right}", place.page)
            } else {
                format!(
                    "page {} is what {found} wrote, not what {right} wrote",
                    place.page
                )
            }
        })
        .collect();
    Ok(Seen {
        wrong: (!wrong.is_empty()).then(|| wrong.join("; ")),
        pages,
        written,
        is_cut_in_two,
    })
}

impl Seen {
    /// Logical pages written by transactions from number `first` on.
    pub(super) fn touched(&self, first: u64) -> impl Iterator<Item = u32> {
        let (written, places) = (&self.written, self.pages.iter());
        let is_touched = move |place: &&Place| written[place.page as usize] >= first;
        places.filter(is_touched).map(|place| place.page)
    }
}

/// An example: its parameters and its cut.
#[derive(Debug, Clone)]
pub(super) struct Example {
    plot: Plot,
    fall: Fall,
    /// Whether the published form loses data at this cut.
    pub(super) published_loses: bool,
}

impl Example {
    /// Searches for an example. If the published form loses data, finds one where only that form
    /// does. Otherwise finds one where the last transaction is partly written and discarded.
    pub(super) fn find(subject: &Subject) -> Result<Example, String> {
        let plots = plots(subject)?;
        for published_loses in [true, false] {
            if published_loses && !subject.has_published() {
                continue;
            }
            for &plot in &plots {
                if let Some(fall) = try_falls(subject, plot, published_loses)? {
                    return Ok(Example {
                        plot,
                        fall,
                        published_loses,
                    });
                }
            }
        }
        Err("no cut of the example shows anything".into())
    }

    /// The first transaction of the example.
    pub(super) fn first(&self) -> u64 {
        u64::from(self.plot.earlier) + 2
    }

    /// The transactions that the story describes, if there are others in between: the first three,
    /// and the last ones before the cut.
    pub(super) fn about(&self) -> Option<impl Iterator<Item = u64> + use<>> {
        let (acts, _) = self.plot.acts();
        let begun = acts[..=self.fall.act.min(acts.len() - 1)].iter();
        let names = begun.filter_map(|act| match act {
            Act::Begin(name) => Some(*name),
            _ => None,
        });
        let (first, last) = (self.first(), names.max().unwrap_or(0));
        let about = (first..first + 3).chain(last.saturating_sub(2)..=last + 1);
        (self.plot.between > 3).then_some(about)
    }

    /// Executes the example with a form of the protocol, and records it.
    pub(super) fn tell(&self, subject: &Subject, form: Form) -> Result<(Tale, Seen), String> {
        let (acts, begins) = self.plot.acts();
        let acts = (&acts[..], begins);
        let cut = cut_of(&play(subject, form, acts, None, None)?.issued, self.fall);
        let tale = Tale::default();
        let played = play(subject, form, acts, Some(cut), Some(&tale))?;
        let ending = restart(subject, form, played, Some(&tale))?;
        Ok((tale, ending))
    }
}

/// The example parameters to try, simpler ones first. In each example a collection copies a page,
/// or at least erases a block.
fn plots(subject: &Subject) -> Result<Vec<Plot>, String> {
    let mut plots = Vec::new();
    let orders = [
        (Last::Own, 0),
        (Last::Over, 0),
        (Last::Own, 3),
        (Last::Over, 3),
        (Last::Long, 0),
        (Last::Long, 8),
        (Last::Over, 24),
        (Last::Twice, 0),
        (Last::Twice, 3),
    ];
    for copies in [true, false] {
        for (last, between) in orders {
            for earlier in 0..EARLIER_MAX {
                let plot = Plot {
                    earlier,
                    between,
                    last,
                };
                let (acts, begins) = plot.acts();
                let played = play(subject, Form::Default, (&acts, begins), None, None)?;
                let [copied, erased] = played.collected;
                if if copies { copied } else { erased } {
                    plots.push(plot);
                    break;
                }
            }
        }
    }
    Ok(plots)
}

/// A cut of an example as a cut of the flash. `issued` has the number of operations before each
/// request.
fn cut_of(issued: &[u64], fall: Fall) -> Cut {
    Cut {
        at: issued.get(fall.act).copied().unwrap_or(u64::MAX / 2) + fall.nth,
        dice: fall.dice,
        torn: false,
    }
}

/// Searches for a cut that shows what the example is for, at late requests first. With `published`:
/// at any request, if the published form loses data and the other one does not. Otherwise: in the
/// last two transactions, if one is discarded that is partly on flash (the control loses data).
fn try_falls(subject: &Subject, plot: Plot, published: bool) -> Result<Option<Fall>, String> {
    let (acts, begins) = plot.acts();
    let last_rest = acts.iter().rposition(|act| matches!(act, Act::Rest));
    let first = if published {
        begins
    } else {
        last_rest.unwrap_or(0)
    };
    let acts = (&acts[..], begins);
    let form = if published {
        Form::Published
    } else {
        Form::Default
    };
    let issued = play(subject, form, acts, None, None)?.issued;
    for act in (first..acts.0.len()).rev() {
        let end = issued.get(act + 1).copied().unwrap_or(issued[act] + 8);
        for nth in 0..end - issued[act] {
            for dice in 0..DICE {
                let fall = Fall { act, nth, dice };
                let cut = cut_of(&issued, fall);
                let played = play(subject, form, acts, Some(cut), None)?;
                if played.failed_at.is_none() {
                    continue;
                }
                let Ok(ending) = restart(subject, form, played, None) else {
                    continue;
                };
                let shows = if published {
                    ending.wrong.is_some() && holds(subject, plot, fall)?
                } else if subject.is_atomic() {
                    ending.is_cut_in_two && ending.wrong.is_none()
                } else {
                    ending.wrong.is_some()
                };
                if shows {
                    return Ok(Some(fall));
                }
            }
        }
    }
    Ok(None)
}

/// Whether the repaired form loses nothing at a cut.
fn holds(subject: &Subject, plot: Plot, fall: Fall) -> Result<bool, String> {
    let (acts, begins) = plot.acts();
    let acts = (&acts[..], begins);
    let issued = play(subject, Form::Default, acts, None, None)?.issued;
    let cut = cut_of(&issued, fall);
    let played = play(subject, Form::Default, acts, Some(cut), None)?;
    let failed = played.failed_at.is_some();
    let ending = restart(subject, Form::Default, played, None)?;
    Ok(failed && ending.wrong.is_none())
}

/// The tables of a machine, as a story shows them.
impl Machine {
    fn shown(&self) -> Shown {
        Shown::of(self.ftl(), self.tables())
    }
}
