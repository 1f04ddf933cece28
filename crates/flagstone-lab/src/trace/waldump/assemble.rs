//! Converts records in log order to a trace: owners of changes, times and dense numbers.
//!
//! Nothing is final before the end of the log: a commit record names its subtransactions after they
//! wrote, and the pages of an unfinished transaction may be dropped.

use rustc_hash::FxHashMap as HashMap;

use super::record::{BlockReference, File, Fork};
use super::{Forks, WalOptions, WalReport};
use crate::trace::check::MAX_COUNT;
use crate::trace::input::ImportError;
use crate::trace::{Event, Op, Relation, Trace};

/// Page number of events that end a transaction.
const NO_PAGE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Raw {
    /// The record of the event, counted from 1.
    record: u64,
    slot: u32,
    /// Page number in order of first appearance, or [`NO_PAGE`].
    page: u32,
    op: Op,
}

/// A transaction or subtransaction, from its first record to its end.
struct Slot {
    /// Its own slot, or the slot of its parent.
    part_of: u32,
    ended: bool,
    /// Its number in the trace, once assigned.
    number: Option<u32>,
}

/// Collects records and turns them into a trace.
pub(super) struct Assembler<'a> {
    options: &'a WalOptions,
    records: u64,
    /// The transaction of the current record.
    current: Option<u32>,
    slots: Vec<Slot>,
    /// Slots of open transactions, by id.
    open: HashMap<u32, u32>,
    /// Announced parents of running subtransactions, by slot.
    assigned: Vec<(u32, u32)>,
    files: HashMap<File, u32>,
    file_list: Vec<File>,
    pages: HashMap<(u32, u32), u32>,
    page_list: Vec<(u32, u32)>,
    events: Vec<Raw>,
    /// Records with a time, and the largest time so far in microseconds.
    times: Vec<(u64, i64)>,
}

impl<'a> Assembler<'a> {
    /// An assembler that has seen no record.
    pub(super) fn new(options: &'a WalOptions) -> Assembler<'a> {
        Assembler {
            options,
            records: 0,
            current: None,
            slots: Vec::new(),
            open: HashMap::default(),
            assigned: Vec::new(),
            files: HashMap::default(),
            file_list: Vec::new(),
            pages: HashMap::default(),
            page_list: Vec::new(),
            events: Vec::new(),
            times: Vec::new(),
        }
    }

    pub(super) fn forks(&self) -> Forks {
        self.options.forks
    }

    /// Begins the next record, of transaction `xid`, or of none if that is 0.
    pub(super) fn record(&mut self, xid: u32) {
        self.records += 1;
        self.current = (xid != 0).then(|| self.slot(xid));
    }

    fn slot(&mut self, xid: u32) -> u32 {
        let fresh = self.slots.len() as u32;
        let slot = *self.open.entry(xid).or_insert(fresh);
        if slot == fresh {
            self.slots.push(Slot {
                part_of: fresh,
                ended: false,
                number: None,
            });
        }
        slot
    }

    /// Records that the current transaction changes a page.
    pub(super) fn write(&mut self, reference: BlockReference) {
        let Some(slot) = self.current else { return };
        let fresh = self.file_list.len() as u32;
        let file = *self.files.entry(reference.file).or_insert(fresh);
        if file == fresh {
            self.file_list.push(reference.file);
        }
        let key = (file, reference.block);
        let fresh = self.page_list.len() as u32;
        let page = *self.pages.entry(key).or_insert(fresh);
        if page == fresh {
            self.page_list.push(key);
        }
        self.events.push(Raw {
            record: self.records,
            slot,
            page,
            op: Op::Write,
        });
    }

    /// Ends transaction `xid` in the current record, with its `children`. `stamp_us` is the time of
    /// the end; one before an earlier end's counts as that.
    pub(super) fn end(
        &mut self,
        xid: u32,
        commit: bool,
        stamp_us: i64,
        children: &[u32],
        report: &mut WalReport,
    ) {
        let slot = self.slot(xid);
        for child in children {
            if let Some(child) = self.open.remove(child).filter(|child| *child != slot) {
                self.slots[child as usize].part_of = slot;
                report.folded_subtransactions += 1;
            }
        }
        self.open.remove(&xid);
        self.slots[slot as usize].ended = true;
        let op = if commit { Op::Commit } else { Op::Abort };
        self.events.push(Raw {
            record: self.records,
            slot,
            page: NO_PAGE,
            op,
        });

        let latest = self.times.last().map_or(stamp_us, |(_, latest)| *latest);
        if stamp_us < latest {
            report.times_backwards += 1;
            let back = latest.abs_diff(stamp_us);
            report.times_backwards_max_us = report.times_backwards_max_us.max(back);
        }
        self.times.push((self.records, latest.max(stamp_us)));
    }

    /// Records that running transactions `children` are parts of `top`.
    pub(super) fn assign(&mut self, top: u32, children: &[u32]) {
        let top = self.slot(top);
        for child in children {
            let child = self.slot(*child);
            self.assigned.push((child, top));
        }
    }

    /// Assigns subtransactions to their parents, drops or ends unfinished transactions, and numbers
    /// the others.
    pub(super) fn finish(mut self, report: &mut WalReport) -> Result<Trace, ImportError> {
        for (child, top) in std::mem::take(&mut self.assigned) {
            // A child that ended by itself, or whose parent ended without naming it, stays
            // separate.
            let open = |slot: u32| {
                let slot_of = &self.slots[slot as usize];
                !slot_of.ended && slot_of.part_of == slot
            };
            if child != top && open(child) && open(top) {
                self.slots[child as usize].part_of = top;
                report.folded_subtransactions += 1;
            }
        }
        self.assign_slots(report);
        if self.events.is_empty() {
            return Err(ImportError::Whole(format!(
                "no transaction ends in these {} records: let pg_waldump read more of the log, or \
                 use --keep-unfinished",
                self.records
            )));
        }
        let (numbers, relations, pages) = self.number_pages()?;
        let mut transactions = 0;
        let mut clock = Clock::new(&self.times);
        let mut events = Vec::with_capacity(self.events.len());
        for raw in &self.events {
            let slot = &mut self.slots[raw.slot as usize];
            let transaction = *slot.number.get_or_insert_with(|| {
                transactions += 1;
                transactions - 1
            });
            let page = if raw.page == NO_PAGE {
                0
            } else {
                numbers[raw.page as usize]
            };
            let time_ns = clock.at(raw.record);
            events.push(Event {
                time_ns,
                transaction,
                op: raw.op,
                page,
            });
        }
        if transactions > MAX_COUNT {
            return Err(ImportError::Whole(format!(
                "more than {MAX_COUNT} transactions"
            )));
        }
        Ok(Trace {
            page_bytes: self.options.page_bytes,
            pages,
            transactions,
            relations,
            events,
            ..Trace::default()
        })
    }

    /// Assigns every event to its transaction's slot, and drops or ends unfinished transactions.
    fn assign_slots(&mut self, report: &mut WalReport) {
        for event in &mut self.events {
            loop {
                let up = self.slots[event.slot as usize].part_of;
                if up == event.slot {
                    break;
                }
                event.slot = up;
            }
        }
        let unfinished: Vec<u32> = (0..self.slots.len() as u32)
            .filter(|slot| {
                let of = &self.slots[*slot as usize];
                !of.ended && of.part_of == *slot
            })
            .collect();
        if unfinished.is_empty() {
            return;
        }
        report.unfinished_transactions = unfinished.len() as u64;
        let slots = &self.slots;
        let lost = |event: &Raw| !slots[event.slot as usize].ended;
        report.unfinished_references =
            self.events.iter().filter(|event| lost(event)).count() as u64;
        if self.options.keep_unfinished {
            let record = self.records;
            self.events.extend(unfinished.into_iter().map(|slot| Raw {
                record,
                slot,
                page: NO_PAGE,
                op: Op::Abort,
            }));
        } else {
            self.events.retain(|event| !lost(event));
        }
    }

    /// Numbers the remaining pages densely: files in number order, each file's pages in block
    /// order.
    fn number_pages(&self) -> Result<(Vec<u32>, Vec<Relation>, u32), ImportError> {
        let mut used = vec![false; self.page_list.len()];
        for event in self.events.iter().filter(|event| event.page != NO_PAGE) {
            used[event.page as usize] = true;
        }
        let mut order: Vec<u32> = (0..used.len() as u32)
            .filter(|page| used[*page as usize])
            .collect();
        if order.len() > MAX_COUNT as usize {
            return Err(ImportError::Whole(format!(
                "more than {MAX_COUNT} distinct pages"
            )));
        }
        order.sort_unstable_by_key(|page| {
            let (file, block) = self.page_list[*page as usize];
            (self.file_list[file as usize], block)
        });
        let mut numbers = vec![NO_PAGE; used.len()];
        let mut relations: Vec<Relation> = Vec::new();
        let mut last = None;
        for (number, page) in order.iter().enumerate() {
            numbers[*page as usize] = number as u32;
            let file = self.page_list[*page as usize].0;
            if last != Some(file) {
                last = Some(file);
                relations.push(Relation {
                    name: self.name(file),
                    pages: 0,
                });
            }
            if let Some(relation) = relations.last_mut() {
                relation.pages += 1;
            }
        }
        Ok((numbers, relations, order.len() as u32))
    }

    /// The name of a file: its relation by name if that is known, and its fork.
    fn name(&self, file: u32) -> String {
        let File {
            relation: [tablespace, database, relation],
            fork,
        } = self.file_list[file as usize];
        let number = format!("{tablespace}/{database}/{relation}");
        let name = self
            .options
            .relation_names
            .get(&number)
            .cloned()
            .unwrap_or(number);
        match fork {
            Fork::Main => name,
            fork => format!("{name}_{}", super::fork_name(fork)),
        }
    }
}

/// Times of records, queried in ascending order.
struct Clock<'a> {
    /// `(record, microseconds)`, neither of them ever decreasing.
    times: &'a [(u64, i64)],
    zero_us: i64,
    /// Index of the first of `times` at or after the last queried record.
    next: usize,
}

impl Clock<'_> {
    fn new(times: &[(u64, i64)]) -> Clock<'_> {
        Clock {
            times,
            zero_us: times.first().map_or(0, |first| first.1),
            next: 0,
        }
    }

    /// Nanoseconds from the first time to `record`, in whole microseconds like the times.
    fn at(&mut self, record: u64) -> u64 {
        while self
            .times
            .get(self.next)
            .is_some_and(|time| time.0 < record)
        {
            self.next += 1;
        }
        let since = |us: i64| us.abs_diff(self.zero_us);
        let before = self.next.checked_sub(1).map(|before| self.times[before]);
        let us = match (before, self.times.get(self.next)) {
            (None, _) => 0,
            (Some((_, us)), None) => since(us),
            (Some((from, from_us)), Some(&(to, to_us))) => {
                let step = u128::from(since(to_us) - since(from_us)) * u128::from(record - from);
                since(from_us) + (step / u128::from(to - from)) as u64
            }
        };
        us * 1000
    }
}
