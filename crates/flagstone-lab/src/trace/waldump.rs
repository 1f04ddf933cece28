//! The importer for `pg_waldump`: converts the text of PostgreSQL's write-ahead log into a trace.
//!
//! ```text
//! record                       becomes
//! any, block reference, tx n   Write of that page by n, one for each reference, in the log's order
//! Transaction COMMIT           Commit of n, and of the subtransactions that it lists
//! Transaction ABORT            Abort of n, and of the subtransactions that it lists
//! … COMMIT_PREPARED n          Commit of n; a PREPARE ends nothing
//! any, tx 0                    nothing: no transaction did it (counted)
//! ```
//!
//! **Time.** Only commit and abort records have a time. It is taken before the record's position in
//! the log is determined, so it may run backwards slightly: an event's time is the largest seen so
//! far. Records between two ends are spread evenly between their times. Records before the first
//! end get its time, which is the trace's zero; those after the last end get its time.
//!
//! **Subtransactions** that were released are part of their transaction: its commit record lists
//! them. A subtransaction that was rolled back writes an abort record of its own. The text does not
//! say to which transaction it belonged, so it becomes an aborted transaction of its own.
//!
//! **Forks.** Only the main fork is imported unless [`WalOptions::forks`] says otherwise. The free
//! space map changes without log records. The visibility map is logged when a bit is set but not
//! when it is cleared. So the text shows an arbitrary part of the changes of either, and their
//! pages would distort the page counts of transactions. Skipped references are counted.
//!
//! **Reads** are not logged, so the trace has none.

mod assemble;
pub mod record;

use std::collections::BTreeMap;
use std::io::BufRead;

use super::Trace;
use super::input::{ImportError, Lines};
use assemble::Assembler;
use record::{Control, Fork};

/// Which forks of a relation are imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Forks {
    /// The main fork; references to the others are counted and skipped.
    #[default]
    Main,
    /// All forks. Each is a relation of its own, named like PostgreSQL's file: `16396_vm`.
    All,
}

/// Options of the import.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// The server's page size, its `block_size`.
    pub page_bytes: u32,
    /// Which forks to import.
    pub forks: Forks,
    /// Keep unfinished transactions, as aborted at the end of the log, instead of dropping them.
    pub keep_unfinished: bool,
    /// Names for relations: from `1663/5/16396` (tablespace, database, file) to a table's name. The
    /// server knows them (`pg_class.relfilenode`), the log does not.
    pub relation_names: BTreeMap<String, String>,
}

impl Default for WalOptions {
    fn default() -> WalOptions {
        WalOptions {
            page_bytes: 8192,
            forks: Forks::Main,
            keep_unfinished: false,
            relation_names: BTreeMap::new(),
        }
    }
}

/// Counts of an import, including what was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WalReport {
    /// Records read.
    pub records: u64,
    /// Records of no transaction (`tx: 0`) that change pages, skipped.
    pub records_without_transaction: u64,
    /// Block references of those records.
    pub references_without_transaction: u64,
    /// Skipped block references by transactions to forks other than the main one, by fork.
    pub references_to_forks: BTreeMap<&'static str, u64>,
    /// Records of resource managers that are not PostgreSQL's own, by name. Their block references
    /// are imported like others.
    pub unknown_managers: BTreeMap<String, u64>,
    /// Transactions that never end.
    pub unfinished_transactions: u64,
    /// Block references of unfinished transactions.
    pub unfinished_references: u64,
    /// Whether unfinished transactions were kept as aborted instead of dropped.
    pub unfinished_kept: bool,
    /// Subtransactions that became part of their transaction.
    pub folded_subtransactions: u64,
    /// Number of times earlier than a previous one.
    pub times_backwards: u64,
    /// The largest such difference, in microseconds.
    pub times_backwards_max_us: u64,
    /// The number of the last line if it was truncated and therefore skipped.
    pub cut_line: Option<u64>,
    /// Messages of `pg_waldump` among its records, for example about the end of the log.
    pub messages: u64,
    /// The last such message.
    pub last_message: String,
}

impl WalReport {
    /// Reasons for skipping that occurred, with counts.
    pub fn skipped(&self) -> Vec<(String, u64)> {
        let mut skipped = vec![
            (
                "records of no transaction".to_string(),
                self.records_without_transaction,
            ),
            (
                "block references of no transaction".to_string(),
                self.references_without_transaction,
            ),
        ];
        for (fork, count) in &self.references_to_forks {
            skipped.push((format!("block references to fork {fork}"), *count));
        }
        if !self.unfinished_kept {
            skipped.push((
                "transactions that never end".to_string(),
                self.unfinished_transactions,
            ));
            skipped.push((
                "block references of those".to_string(),
                self.unfinished_references,
            ));
        }
        skipped.push((
            "last line, cut short".to_string(),
            u64::from(self.cut_line.is_some()),
        ));
        skipped.retain(|(_, count)| *count > 0);
        skipped
    }

    /// The entries of a trace's provenance: how it was made, and what was left out.
    fn provenance(&self) -> BTreeMap<String, String> {
        let mut entries = BTreeMap::from([
            ("importer".to_string(), "waldump".to_string()),
            ("records".to_string(), self.records.to_string()),
        ]);
        for (what, count) in self.skipped() {
            entries.insert(format!("skipped: {what}"), count.to_string());
        }
        if self.unfinished_kept && self.unfinished_transactions > 0 {
            let kept = self.unfinished_transactions.to_string();
            entries.insert("unfinished transactions kept as aborted".to_string(), kept);
        }
        for (manager, count) in &self.unknown_managers {
            entries.insert(
                format!("unknown resource manager: {manager}"),
                count.to_string(),
            );
        }
        if self.folded_subtransactions > 0 {
            let folded = self.folded_subtransactions.to_string();
            entries.insert("subtransactions folded".to_string(), folded);
        }
        if self.messages > 0 {
            entries.insert(
                "last message of pg_waldump".to_string(),
                self.last_message.clone(),
            );
        }
        let times = "from commit and abort records, evenly spread between them";
        entries.insert("times".to_string(), times.to_string());
        entries
    }
}

/// Imports the output of `pg_waldump`, with or without `--bkp-details`.
///
/// # Errors
/// [`ImportError`], with the line: the input cannot be read, a line is not from `pg_waldump`, or no
/// transaction ends. A last line without a line end is skipped and reported, as the output may have
/// been truncated.
pub fn import(
    reader: impl BufRead,
    options: &WalOptions,
) -> Result<(Trace, WalReport), ImportError> {
    let mut report = WalReport {
        unfinished_kept: options.keep_unfinished,
        ..WalReport::default()
    };
    let mut assembler = Assembler::new(options);
    let mut lines = Lines::new(reader);
    // The transaction of the last record, for following lines of `--bkp-details`.
    let mut current = None;
    while let Some(line) = lines.next()? {
        if !line.ended {
            report.cut_line = Some(line.number);
            break;
        }
        if line.text.starts_with("rmgr: ") {
            let Some(record) = record::parse(line.text) else {
                return Err(line.wrong(
                    "not a whole record of pg_waldump: expected \
                     `rmgr: … len (rec/tot): …, tx: …, lsn: …, prev …, desc: …`",
                ));
            };
            report.records += 1;
            if !record::RESOURCE_MANAGERS.contains(&record.manager) {
                *report
                    .unknown_managers
                    .entry(record.manager.to_string())
                    .or_default() += 1;
            }
            current = None;
            assembler.record(record.xid);
            if record.manager == "Transaction" {
                match record::control(record.description) {
                    None => {
                        return Err(line.wrong(
                            "cannot read the end of a transaction: expected \
                             `COMMIT YYYY-MM-DD HH:MM:SS.ffffff ZONE`, with `; subxacts: …` or without",
                        ));
                    }
                    Some(Control::End {
                        commit,
                        prepared,
                        stamp_us,
                        children,
                    }) => {
                        let xid = prepared.unwrap_or(record.xid);
                        if xid == 0 {
                            return Err(line.wrong("the end of transaction 0, which is none"));
                        }
                        assembler.end(xid, commit, stamp_us, &children, &mut report);
                    }
                    Some(Control::Assignment { top, children }) => assembler.assign(top, &children),
                    Some(Control::Other) => {}
                }
            } else if record::may_reference_blocks(&record) {
                current = Some(record.xid);
                let counted =
                    references(record.description, record.xid, &mut assembler, &mut report);
                let counted = counted.map_err(|problem| line.wrong(problem))?;
                if record.xid == 0 && counted > 0 {
                    report.records_without_transaction += 1;
                }
            }
        } else if line.text.trim_start().starts_with("blkref #") {
            let Some(xid) = current else {
                return Err(line.wrong("a block reference without a record before it"));
            };
            references(line.text, xid, &mut assembler, &mut report)
                .map_err(|problem| line.wrong(problem))?;
        } else if let Some(message) = line.text.strip_prefix("pg_waldump: ") {
            report.messages += 1;
            report.last_message = message.to_string();
        } else if !line.text.is_empty() && !line.text.starts_with("first record is after ") {
            let hint = if line.number == 1 {
                "not the output of pg_waldump: run `pg_waldump` over the log segments and import \
                 what it prints"
            } else {
                "not a line of pg_waldump"
            };
            return Err(line.wrong(hint));
        }
    }
    if report.records == 0 {
        return Err(ImportError::Whole(format!(
            "no record of pg_waldump in {} lines of input",
            lines.number()
        )));
    }
    let mut trace = assembler.finish(&mut report)?;
    trace.provenance = report.provenance();
    Ok((trace, report))
}

/// Processes the block references of a line. Returns their number.
fn references(
    text: &str,
    xid: u32,
    assembler: &mut Assembler<'_>,
    report: &mut WalReport,
) -> Result<u64, String> {
    let mut counted = 0;
    let forks = assembler.forks();
    let seen = record::block_references(text, |reference| {
        counted += 1;
        let name = match reference.file.fork {
            Fork::Main => None,
            fork => Some(fork_name(fork)),
        };
        match name {
            _ if xid == 0 => report.references_without_transaction += 1,
            Some(name) if forks == Forks::Main => {
                *report.references_to_forks.entry(name).or_default() += 1;
            }
            _ => assembler.write(reference),
        }
    });
    seen.map(|()| counted).map_err(|_| {
        "cannot read a block reference: expected `blkref #N: rel A/B/C [fork F] blk N`".to_string()
    })
}

fn fork_name(fork: Fork) -> &'static str {
    match fork {
        Fork::Main => "main",
        Fork::Fsm => "fsm",
        Fork::Vm => "vm",
        Fork::Init => "init",
    }
}

#[cfg(test)]
mod tests;
