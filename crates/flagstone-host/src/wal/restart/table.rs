//! The tables of a restart: every combination of a transaction's log records, and of the facts
//! about a changed page.

use super::*;
use flagstone::cases::{Case, cases, prove, rows_that_differ};
use flagstone::layout::put;

/// What a restart does with a transaction.
#[derive(Debug, PartialEq)]
enum Verdict {
    Counts,
    Over,
    Undone,
}

/// The log records of transaction 5 from the last checkpoint on.
#[derive(Debug)]
struct Facts {
    /// Whether the checkpoint lists the transaction, before or after its own records.
    listed: Option<Listed>,
    changes: bool,
    commits: bool,
    ends: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Listed {
    Before,
    After,
}

/// The first table in the header of `restart.rs`.
const TABLE: [Case<Facts, Verdict>; 3] = cases! { |facts|
    "@A": facts.commits && !facts.ends => Verdict::Counts;
    "@B": facts.ends => Verdict::Over;
    "@C": !facts.commits && !facts.ends => Verdict::Undone;
};

impl Facts {
    /// All combinations that a log can have.
    fn all() -> Vec<Facts> {
        let mut all = Vec::new();
        for listed in [None, Some(Listed::Before), Some(Listed::After)] {
            for [changes, commits, ends] in (0..8).map(|n| [0, 1, 2].map(|bit| n >> bit & 1 == 1)) {
                let is_absent = listed.is_none() && !changes && !commits && !ends;
                // A list after the record of its end would not have the transaction.
                if is_absent || (listed == Some(Listed::After) && ends) {
                    continue;
                }
                all.push(Facts {
                    listed,
                    changes,
                    commits,
                    ends,
                });
            }
        }
        all
    }

    fn tape(&self) -> Tape {
        let tx = TxId(5);
        let mark = |what| LogRecord::mark(what, tx, 0, &[]);
        let mut item = [0; live_tx::SIZE];
        put(&mut item, live_tx::XID, tx.0);
        let list = LogRecord::mark(What::CheckpointTxs, TxId(0), 0, &item);
        let own = [
            (self.changes, mark(What::Update)),
            (self.commits, mark(What::Commit)),
            (self.ends, mark(What::End)),
        ];
        let own = own
            .into_iter()
            .filter_map(|(is_there, entry)| is_there.then_some(entry));
        let mut entries = vec![LogRecord::mark(What::CheckpointBegin, TxId(0), 0, &[])];
        entries.extend((self.listed == Some(Listed::Before)).then_some(list));
        entries.extend(own);
        entries.extend((self.listed == Some(Listed::After)).then_some(list));
        entries.push(LogRecord::mark(What::CheckpointEnd, TxId(0), 0, &[]));
        Tape::of(&entries)
    }

    fn verdict(&self) -> Verdict {
        match analyse(&self.tape()).txs.get(&TxId(5)) {
            None => Verdict::Over,
            Some((_, _, true)) => Verdict::Counts,
            Some((_, _, false)) => Verdict::Undone,
        }
    }
}

#[test]
fn every_row_of_the_table_of_transactions() {
    prove(&TABLE, &Facts::all(), Facts::verdict);
}

#[test]
fn a_restart_that_believes_the_checkpoint_alone_differs_from_the_table() {
    let listed = |facts: &Facts| match facts.listed {
        Some(_) => Verdict::Undone,
        None => Verdict::Over,
    };
    assert_eq!(
        rows_that_differ(&TABLE, &Facts::all(), listed),
        ["@A", "@B", "@C"]
    );
}

/// A change with LSN 50.
#[derive(Debug)]
struct Change {
    /// The LSN since which the checkpoint lists its page as dirty.
    dirty_since: Option<Lsn>,
    /// LSN of an earlier change of the page after the checkpoint.
    earlier: Option<Lsn>,
    /// The LSN of the page on flash.
    page: Lsn,
    /// Whether the change comes after the checkpoint.
    is_behind: bool,
}

/// The second table in the header of `restart.rs`. The verdict is whether the change is redone.
const CHANGES: [Case<Change, bool>; 3] = cases! { |change|
    "@D": !change.is_dirty() => false;
    "@E": change.is_dirty() && change.page >= 50 => false;
    "@F": change.is_dirty() && change.page < 50 => true;
};

impl Change {
    fn all() -> Vec<Change> {
        let mut all = Vec::new();
        for dirty_since in [None, Some(40), Some(50), Some(60)] {
            for earlier in [None, Some(45), Some(55)] {
                for (page, is_behind) in [49, 50, 51].iter().flat_map(|&p| [(p, false), (p, true)])
                {
                    all.push(Change {
                        dirty_since,
                        earlier,
                        page,
                        is_behind,
                    });
                }
            }
        }
        all
    }

    /// Whether the page was dirty at the checkpoint, or became dirty at the latest by the change.
    fn is_dirty(&self) -> bool {
        let since = [self.dirty_since, self.earlier, self.is_behind.then_some(50)];
        since.into_iter().flatten().any(|since| since <= 50)
    }

    fn is_redone(&self) -> bool {
        let mut found = Analysis::default();
        let behind = [self.earlier, self.is_behind.then_some(50)];
        let first = behind.into_iter().flatten().min();
        if let Some(since) = [self.dirty_since, first].into_iter().flatten().min() {
            found.pages.insert(Lpn(3), since);
        }
        found.may_lack(Lpn(3), 50) && lacks(self.page, 50)
    }
}

#[test]
fn every_row_of_the_table_of_changes() {
    prove(&CHANGES, &Change::all(), Change::is_redone);
}

#[test]
fn a_restart_that_trusts_no_page_differs_from_the_table() {
    let rows = rows_that_differ(&CHANGES, &Change::all(), Change::is_dirty);
    assert_eq!(rows, ["@E"]);
}
