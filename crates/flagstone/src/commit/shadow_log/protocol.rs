//! Shadow pages and their log as a protocol, all but the moment at which a log page is written.

use super::ShadowLog;
use crate::commit::show::Rulings;
use crate::commit::{Found, Options, Protocol, Recovered, Table, Taken, Write};
use crate::ftl::{Ftl, FtlError, Mounted, Moving, Owner, Victim, Written};
use crate::units::{Lpn, Nanos, Pbn, TxId};

/// The differences between the protocols.
pub(super) trait Rule: Clone + Send + 'static {
    /// Commits a transaction that needs a record. Returns when it is durable, if that is known.
    fn commit(
        &mut self,
        log: &mut ShadowLog,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
    ) -> Result<Option<Nanos>, FtlError>;

    /// Rolls a transaction back. Returns when the device has finished.
    fn abort(
        &mut self,
        log: &mut ShadowLog,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
    ) -> Result<Nanos, FtlError>;

    /// See [`Protocol::acknowledge`].
    fn acknowledge(
        &mut self,
        log: &mut ShadowLog,
        ftl: &mut Ftl,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, FtlError> {
        let _ = (log, ftl, now, flush);
        Ok(Vec::new())
    }

    /// See [`Protocol::deadline`].
    fn deadline(&self) -> Option<Nanos> {
        None
    }

    /// Memory beyond that of the engine's tables.
    fn memory(&self) -> Option<(&'static str, u64)> {
        None
    }
}

/// A protocol of the family.
#[derive(Clone)]
struct Shadowed<R> {
    log: ShadowLog,
    rule: R,
}

/// Recovers MixSL or G-MixSL from the mounted log and the blocks; `rule` decides when log pages are
/// written.
pub(super) fn recover<R: Rule>(
    ftl: &mut Ftl,
    mounted: Mounted,
    options: &Options,
    rule: R,
) -> Result<Recovered, FtlError> {
    let mut rulings = Rulings::new(options.tells);
    let (log, done) = ShadowLog::recover(ftl, mounted, options.as_published, &mut rulings)?;
    Ok(Recovered {
        last_tx: log.last_tx,
        protocol: Box::new(Shadowed { log, rule }),
        done,
        rulings: rulings.into_list(),
    })
}

impl<R: Rule> Protocol for Shadowed<R> {
    fn grown(&mut self, ftl: &Ftl) {
        self.log.grown(ftl);
    }

    fn begin(&mut self, _: &mut Ftl, _: Nanos, tx: TxId) -> Result<(), FtlError> {
        self.log.begin(tx);
        Ok(())
    }

    fn write(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        tx: TxId,
        write: Write<'_>,
    ) -> Result<Taken, FtlError> {
        self.log.write(ftl, now, tx, write)
    }

    fn find(&self, ftl: &Ftl, tx: Option<TxId>, at: Lpn) -> Found<'_> {
        self.log.find(ftl, tx, at)
    }

    fn commit(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Option<Nanos>, FtlError> {
        if !self.log.needs_record(tx) {
            self.log.merge(ftl, tx, now);
            return Ok(Some(now));
        }
        self.rule.commit(&mut self.log, ftl, now, tx)
    }

    fn abort(&mut self, ftl: &mut Ftl, now: Nanos, tx: TxId) -> Result<Nanos, FtlError> {
        self.rule.abort(&mut self.log, ftl, now, tx)
    }

    fn acknowledge(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        flush: bool,
    ) -> Result<Vec<(TxId, Nanos)>, FtlError> {
        self.rule.acknowledge(&mut self.log, ftl, now, flush)
    }

    fn deadline(&self) -> Option<Nanos> {
        self.rule.deadline()
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.log.memory();
        all.extend(self.rule.memory());
        all
    }

    fn tables(&self, _: &Ftl) -> Vec<Table> {
        self.log.tables()
    }

    fn check(&self, ftl: &Ftl) -> Result<(), String> {
        self.log.check(ftl)
    }
}

/// A compaction collects blocks as well, so the log handles the collector's calls.
impl<R: Rule> Owner for Shadowed<R> {
    fn prepare(&mut self, ftl: &mut Ftl, now: Nanos, victim: Pbn) -> Result<Nanos, FtlError> {
        self.log.prepare(ftl, now, victim)
    }

    fn relocated(&mut self, ftl: &mut Ftl, page: &Moving<'_>, to: Written) {
        self.log.relocated(ftl, page, to);
    }

    fn let_go(&mut self, ftl: &mut Ftl, now: Nanos, block: Pbn) -> Result<(), FtlError> {
        self.log.let_go(ftl, now, block)
    }

    fn before_erase(&mut self, ftl: &mut Ftl, now: Nanos, of: Victim) -> Result<Nanos, FtlError> {
        self.log.before_erase(ftl, now, of)
    }

    fn erased(&mut self, ftl: &mut Ftl, victim: Pbn, done: Nanos) {
        self.log.erased(ftl, victim, done);
    }
}
