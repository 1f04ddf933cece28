//! The recovery table of CFC_ex and AFC_ex above the device: every combination of log and flags of
//! a transaction, and of what is known about a changed record.

use super::*;
use crate::flag_ex::restart::changes;
use crate::log::{LogRecord, Lsn, Tape, What};
use flagstone::cases::{Case, cases, prove, rows_that_differ};
use flagstone::commit::{MergedPage, Pending};
use flagstone::nand::{PowerCut, Shared};
use flagstone::page::SlotNo;

/// The page and the record of the tests.
const AT: Lpn = Lpn(3);
const SLOT: SlotNo = 2;

/// Facts that a restart finds about transaction 1, which has a pending record on flash.
#[derive(Debug)]
struct Facts {
    kind: RecordKind,
    /// Whether its flags on flash show a commit.
    flags: bool,
    /// Whether the log has a change by it, and its commit.
    changes: bool,
    commits: bool,
    /// Whether the commit of another transaction follows in the log.
    another: bool,
}

/// Whether the transaction counts as committed at the restart, and at the next one, whose log no
/// longer mentions it.
type Counts = [bool; 2];

/// The first two rows of the table in the header of the folder.
const TRANSACTIONS: [Case<Facts, Counts>; 2] = cases! { |facts|
    "@A": facts.commits || facts.flags => [true; 2];
    "@B": !facts.commits && !facts.flags => [false; 2];
};

/// A log with these records after a checkpoint.
fn tape(records: &[(bool, LogRecord<'_>)]) -> Tape {
    let mark = |what| LogRecord::mark(what, TxId(0), 0, &[]);
    let own = records.iter().filter(|(is_there, _)| *is_there);
    let begin = [mark(What::CheckpointBegin), mark(What::CheckpointEnd)];
    let all: Vec<LogRecord<'_>> = begin
        .into_iter()
        .chain(own.map(|&(_, record)| record))
        .collect();
    Tape::of(&all)
}

/// A change of the record by a transaction.
fn change(tx: TxId) -> LogRecord<'static> {
    LogRecord {
        page: AT,
        slot: SLOT,
        ..LogRecord::mark(What::Insert, tx, 0, b"new")
    }
}

fn commit(tx: TxId) -> LogRecord<'static> {
    LogRecord::mark(What::Commit, tx, 0, &[])
}

fn image(value: &[u8]) -> Vec<u8> {
    let (mut page, mut image) = (Page::default(), Vec::new());
    page.put(SLOT, value, PAGE_BYTES).expect("it fits");
    page.emit(PAGE_BYTES, &mut image).expect("it fits");
    image
}

impl Facts {
    fn all() -> Vec<Facts> {
        let bits = |n: u32| [0, 1, 2, 3].map(|bit| n >> bit & 1 == 1);
        let kinds = RecordKind::ALL.into_iter();
        let all = kinds.flat_map(|kind| (0..16).map(move |n| (kind, bits(n))));
        all.map(|(kind, [flags, changes, commits, another])| Facts {
            kind,
            flags,
            changes,
            commits,
            another,
        })
        .collect()
    }

    fn start(&self, flash: &Shared<PowerCut>) -> RecordDevice {
        let options = record_options(self.kind, &config().settings).expect("settings of both");
        let flash = Box::new(flash.clone());
        RecordDevice::open(flash, self.kind, device(), &options, Nanos::ZERO)
            .expect("the power is on")
    }

    fn counts(&self) -> Counts {
        let mut stacks = Stack::all().into_iter();
        let stack = stacks.find(|stack| stack.record_kind() == Some(self.kind));
        let stack = stack.expect("a stack for each kind");
        let mut flash = Shared::new(PowerCut::new(chip(stack)));
        let mut device = self.start(&flash);
        let mut lay = || {
            let mut now = device.resolve(device.recovered_at(), &BTreeSet::new())?;
            now = device.write(now, AT, &image(b"old"), &[])?;
            let tx = device.begin(now)?;
            let slots = vec![SLOT];
            now = device.write(now, AT, &image(b"new"), &[Pending { tx, slots }])?;
            if self.flags {
                device.commit(now, tx)?;
            }
            Ok::<_, flagstone::commit::DeviceError>(tx)
        };
        let tx = lay().expect("the power is on");
        drop(device);
        let log = tape(&[
            (self.changes, change(tx)),
            (self.commits, commit(tx)),
            (self.another, commit(TxId(tx.0 + 1))),
        ]);
        [log, tape(&[])].map(|log| {
            small::restart(&mut flash, 1, false, None);
            let mut device = self.start(&flash);
            let (now, mut merged) = (device.recovered_at(), MergedPage::default());
            let resolved = device.resolve(now, &log.committed());
            let read = device.read(resolved.expect("the power is on"), AT, &mut merged);
            read.expect("the power is on");
            let page = Page::parse(&merged.image).expect("a page of records");
            page.get(SLOT) == Some(b"new")
        })
    }
}

#[test]
fn every_row_of_the_table_of_transactions() {
    prove(&TRANSACTIONS, &Facts::all(), Facts::counts);
}

/// Control: if flags are not set from the log, a later restart forgets the commit; if flags on
/// flash are ignored, this restart does.
#[test]
fn a_restart_that_asks_only_the_log_or_only_the_flags_differs_from_the_table() {
    let differ =
        |judge: fn(&Facts) -> Counts| rows_that_differ(&TRANSACTIONS, &Facts::all(), judge);
    assert_eq!(differ(|facts| [facts.commits; 2]), ["@A"]);
    assert_eq!(differ(|facts| [facts.flags; 2]), ["@A"]);
    let forgets: fn(&Facts) -> Counts = |facts| [facts.commits || facts.flags, facts.flags];
    assert_eq!(differ(forgets), ["@A"]);
    assert_eq!(differ(|facts| [facts.changes; 2]), ["@A", "@B"]);
}

/// What proves a commit, if there is one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Log,
    Flags,
    Nothing,
}

/// A change in the log, and the newest committed copy of its record on flash.
#[derive(Debug, Clone)]
struct Change {
    by: By,
    /// By how much the copy is newer than the change.
    newer: i64,
    /// Whether that copy is in an older version of the page: the newest version lists the record as
    /// pending.
    apart: bool,
}

/// The last two rows of the table. The verdict is whether the change is redone.
const CHANGES: [Case<Change, bool>; 2] = cases! { |change|
    "@C": change.by == By::Log && change.newer < 0 => true;
    "@D": change.by != By::Log || change.newer >= 0 => false;
};

impl Change {
    fn all() -> Vec<Change> {
        let mut all = Vec::new();
        for by in [By::Log, By::Flags, By::Nothing] {
            for (newer, apart) in [-1, 0, 1].iter().flat_map(|&n| [(n, false), (n, true)]) {
                // A transaction commits by flags alone if all its changes are on flash.
                if by != By::Flags || newer >= 0 {
                    all.push(Change { by, newer, apart });
                }
            }
        }
        all
    }

    fn is_redone(&self, mistake: Option<Mistake>) -> bool {
        let config = HostConfig {
            mistake: mistake.into(),
            ..config()
        };
        let tx = TxId(1);
        let log = tape(&[(true, change(tx)), (self.by == By::Log, commit(tx))]);
        let mut entries = log.entries(0);
        let found = entries.find(|(_, entry)| entry.what == What::Insert);
        let lsn = found.expect("it was laid").0;
        let copy = lsn.checked_add_signed(self.newer);
        let copy = copy.expect("it is one older or newer");
        let mut flag_ex = blank(&config);
        let mut page = Page::parse(&image(b"old")).expect("a page of records");
        page.set_lsn(copy);
        if self.apart {
            page.set_lsn(lsn + 100);
            flag_ex.read.restored = vec![(SLOT, copy)];
        }
        let mut tools = Tools::new(&config, PAGE_BYTES, TxId(0)).expect("a blank device");
        let frame = Frame {
            page,
            ..Frame::default()
        };
        tools.pool.insert(AT, frame, false);
        for (at, changes) in changes(&log) {
            let redone = flag_ex.redo(&mut tools, at, &changes);
            redone.expect("the page takes it");
        }
        let frame = tools.frame_mut(AT);
        let is_redone = frame.page.get(SLOT) == Some(b"new");
        assert_eq!(frame.changed != 0, is_redone, "{self:?}");
        let newest: Lsn = if self.apart { lsn + 100 } else { copy };
        assert!(frame.page.lsn() >= newest, "an LSN does not go back");
        is_redone
    }
}

#[test]
fn every_row_of_the_table_of_changes() {
    prove(&CHANGES, &Change::all(), |change| change.is_redone(None));
}

#[test]
fn a_restart_that_redoes_all_or_looks_at_the_page_alone_differs_from_the_table() {
    let all = Change::all();
    let redoes_all = |change: &Change| change.is_redone(Some(Mistake::RedoAll));
    assert_eq!(rows_that_differ(&CHANGES, &all, redoes_all), ["@D"]);
    let by_page = |change: &Change| change.by == By::Log && change.newer < 0 && !change.apart;
    assert_eq!(rows_that_differ(&CHANGES, &all, by_page), ["@C"]);
    let undecided = |change: &Change| change.newer < 0;
    assert_eq!(rows_that_differ(&CHANGES, &all, undecided), ["@D"]);
}
