//! G-MixSL: MixSL with group commit, one log page for several transactions.
//!
//! Paper       [MixSL] §4
//! Idea        A transaction that commits waits until enough others do; one log page then makes all
//!             of them count at once.
//! Commit      The log page of the group.
//! Cost        k programs for k pages, and a share of one log page; commits wait for their group.
//! Symbols     see [`super`], the engine of this and MixSL
//!
//!   spare     | head 11 | xid 6 | link 4 |          as in MixSL
//!   log page  | count 2 | xid 6, c/a 1 | xid 6, c/a 1 | ...
//!   root      | watermark 6 | count 4 | gaps ... |
//!
//! States      live ──commit──> waiting ──data of all durable, then log page──> committed
//!               └────abort, or a power cut────┴──────────────────> aborted ──erased──> gone
//!
//! Invariants  those of MixSL, and
//!             6. A waiting transaction keeps its rows and its pages' locks: no other transaction
//!                reads or overwrites what it wrote before the log page of its group is durable.
//!
//! Recovery    as MixSL: a log page is there with all of its records or not at all
//!
//! Departures  D1 to D5 of [`super::mixsl`], and
//!             D6. A group also ends at a deadline, and when the host says that all its clients
//!                 wait: fewer clients than the group has members would wait for ever.
//!             D7. An abort does not wait. As published its record joins the group, but no call
//!                 waits for it. A transaction that wrote nothing does not wait either.

use super::ShadowLog;
use super::protocol::{self, Rule};
use super::record::{LogRecord, records_per_page};
use crate::commit::{Info, Mode, Options, Recovered};
use crate::ftl::{Ftl, FtlError, Mounted};
use crate::settings::Setting;
use crate::units::{Nanos, TxId};

const PAGE_FULL: &str = "page-full";

const GROUP: Setting = Setting {
    name: "group",
    default: "8",
    what: "number of transactions per group; page-full means as many as fill a log page",
};

const GROUP_TIMEOUT: Setting = Setting {
    name: "group_timeout_us",
    default: "2000",
    what: "maximum microseconds that a commit waits for others",
};

pub(in crate::commit) const INFO: Info = Info {
    name: "g-mixsl",
    idea: "as mixsl, with one log page for a group of transactions",
    section: "§4",
    modes: &[
        Mode::new("count", &[]),
        Mode {
            name: PAGE_FULL,
            settings: &[(GROUP.name, PAGE_FULL)],
        },
    ],
    settings: &[GROUP, GROUP_TIMEOUT],
    ..super::INFO
};

#[derive(Clone)]
struct GMixSl {
    /// Number of records at which a group is written.
    limit: usize,
    timeout: Nanos,
    /// Records of the forming group.
    group: Vec<LogRecord>,
    /// When its first member requested the commit, and its last.
    asked: Option<(Nanos, Nanos)>,
    /// Members of written groups that are not reported yet.
    committed: Vec<(TxId, Nanos)>,
}

pub(in crate::commit) fn recover(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
) -> Result<Recovered, FtlError> {
    let fits = records_per_page(ftl);
    let settings = &options.settings;
    let limit = match settings.text(&INFO, GROUP.name) {
        PAGE_FULL => fits,
        _ => settings.number(&INFO, GROUP.name, 1, usize::MAX)?.min(fits),
    };
    let timeout = settings.number(&INFO, GROUP_TIMEOUT.name, 0, 1 << 40)?;
    let rule = GMixSl {
        limit,
        timeout: Nanos::from_micros(timeout),
        group: Vec::new(),
        asked: None,
        committed: Vec::new(),
    };
    protocol::recover(ftl, mounted, options, rule)
}

impl GMixSl {
    /// Adds a record to the group. Writes the group if that fills it.
    fn join(
        &mut self,
        log: &mut ShadowLog,
        ftl: &mut Ftl,
        now: Nanos,
        record: LogRecord,
    ) -> Result<(), FtlError> {
        self.group.push(record);
        let (first, last) = self.asked.unwrap_or((now, now));
        self.asked = Some((first.min(now), last.max(now)));
        if self.group.len() >= self.limit {
            self.write_group(log, ftl, now)?;
        }
        Ok(())
    }

    /// Removes the record of a transaction that could not be written.
    fn leave(&mut self, tx: TxId) {
        self.group.retain(|record| record.tx != tx);
        if self.group.is_empty() {
            self.asked = None;
        }
    }

    /// Commits all waiting transactions with one log page.
    fn write_group(
        &mut self,
        log: &mut ShadowLog,
        ftl: &mut Ftl,
        now: Nanos,
    ) -> Result<(), FtlError> {
        let Some((_, last)) = self.asked else {
            return Ok(());
        };
        let members = || self.group.iter().filter(|record| record.committed);
        let written = members().map(|record| log.written(record.tx)).max();
        let ready = ftl.sync(now.max(last), written.unwrap_or(now))?;
        // Without space for a log page they continue to wait.
        let done = log.log(ftl, ready, &self.group)?;
        self.asked = None;
        let group = std::mem::take(&mut self.group);
        for member in group.iter().filter(|record| record.committed) {
            log.merge(ftl, member.tx, done);
            self.committed.push((member.tx, done));
        }
        Ok(())
    }
}

impl Rule for GMixSl {
    fn commit(
        &mut self,
        log: &mut ShadowLog,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
    ) -> Result<Option<Nanos>, FtlError> {
        let committed = true;
        self.join(log, ftl, now, LogRecord { tx, committed })
            .inspect_err(|_| self.leave(tx))?;
        // The last member of a group is reported at once.
        let told = self.committed.iter().position(|&(member, _)| member == tx);
        Ok(told.map(|index| self.committed.remove(index).1))
    }

    /// Rolls the transaction back. As published, a record of that joins the group (D7).
    fn abort(
        &mut self,
        log: &mut ShadowLog,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
    ) -> Result<Nanos, FtlError> {
        log.roll_back(ftl, tx);
        if log.as_published() {
            let committed = false;
            let joined = self.join(log, ftl, now, LogRecord { tx, committed });
            match joined.inspect_err(|_| self.leave(tx)) {
                // There may be no room for the record: without one the transaction does not count
                // either.
                Ok(()) | Err(FtlError::MetaFull) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(now)
    }

    fn acknowledge(
        &mut self,
        log: &mut ShadowLog,
        ftl: &mut Ftl,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, FtlError> {
        if flush || self.deadline().is_some_and(|deadline| deadline <= now) {
            self.write_group(log, ftl, now)?;
        }
        Ok(std::mem::take(&mut self.committed))
    }

    fn deadline(&self) -> Option<Nanos> {
        self.asked.map(|(first, _)| first + self.timeout)
    }

    fn memory(&self) -> Option<(&'static str, u64)> {
        let group = self.group.capacity() * size_of::<LogRecord>();
        Some(("group", group as u64))
    }
}
