//! Pages of an index as records of a database. Each index page is the only record of a host page.
//! So index operations are recoverable with every recovery manager.

use super::{BackingError, BackingStore};
use flagstone::ftl::Ftl;
use flagstone::units::{Lpn, Nanos, TxId};
use flagstone_host::{Host, HostError, Rid, Step};

/// A database as a store, used by a single client.
pub struct HostStore {
    host: Host,
    page_bytes: usize,
    open: Option<TxId>,
    /// When the last transaction ends. Its locks are held until then.
    free_at: Nanos,
    /// Why a transaction could not be rolled back. It keeps its locks, so no other can begin.
    failed: Option<BackingError>,
    buffer: Vec<u8>,
}

impl HostStore {
    /// Uses all pages of a database except its log.
    pub fn new(host: Host) -> HostStore {
        HostStore {
            page_bytes: host.record_bytes_max(),
            host,
            open: None,
            free_at: Nanos::ZERO,
            failed: None,
            buffer: Vec::new(),
        }
    }

    /// The database.
    pub fn host(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Runs a request in the current transaction, or in one of its own.
    fn within(
        &mut self,
        now: Nanos,
        what: impl FnOnce(&mut HostStore, Nanos, TxId) -> Result<Nanos, BackingError>,
    ) -> Result<Nanos, BackingError> {
        if let Some(tx) = self.open {
            return what(self, now, tx);
        }
        let now = self.free_for(now)?;
        let tx = self.host.begin(now)?;
        let ended = what(self, now, tx).and_then(|done| self.end(done, tx));
        if ended.is_err() {
            // If that fails, the database cannot continue either.
            let _ = self.roll_back(now, tx);
        }
        ended
    }

    /// When a transaction can begin, at `now` or later.
    fn free_for(&self, now: Nanos) -> Result<Nanos, BackingError> {
        self.failed.clone().map_or(Ok(now.max(self.free_at)), Err)
    }

    fn roll_back(&mut self, now: Nanos, tx: TxId) -> Result<(), BackingError> {
        let done = self.host.abort(now, tx).map_err(BackingError::from);
        self.free_at = done.inspect_err(|error| self.failed = Some(error.clone()))?;
        Ok(())
    }

    /// Commits `tx`; if its commit waits for a group, flushes the group.
    fn end(&mut self, now: Nanos, tx: TxId) -> Result<Nanos, BackingError> {
        if let Step::Done((), done) = self.host.commit(now, tx)? {
            self.free_at = done;
            return Ok(done);
        }
        let done = self.host.acknowledged(now, true)?;
        let mine = done.iter().find(|(other, _)| *other == tx);
        // The only client never waits for a lock, so it is waiting for its group.
        self.free_at = mine.expect("a flush ends every commit that waits").1;
        Ok(self.free_at)
    }
}

/// The result of a step. The only client never has to wait.
fn done<T>(step: Step<T>) -> Result<(T, Nanos), BackingError> {
    match step {
        Step::Done(result, when) => Ok((result, when)),
        Step::Waits => unreachable!("a lone client waits for nobody"),
        Step::Abort { why, .. } => Err(BackingError::Restart(format!(
            "{why:?}: give the database more frames or log pages"
        ))),
    }
}

impl BackingStore for HostStore {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn pages(&self) -> u32 {
        self.host.pages()
    }

    fn read(&mut self, now: Nanos, at: Lpn, into: &mut [u8]) -> Result<Nanos, BackingError> {
        let rid = Rid { page: at, slot: 0 };
        let record = &mut self.buffer;
        let (_, done) = match self.open {
            Some(tx) => done(self.host.read(now, tx, rid, record)?)?,
            // There is no other client. Only an unfinished commit must be waited for.
            None => self.host.look(now.max(self.free_at), rid, record)?,
        };
        into[..record.len()].copy_from_slice(record);
        into[record.len()..].fill(0);
        Ok(done)
    }

    fn write(&mut self, now: Nanos, pages: &[(Lpn, &[u8])]) -> Result<Nanos, BackingError> {
        self.within(now, |store, now, tx| {
            let mut last = now;
            for &(at, data) in pages {
                // Zeros at the end need not be stored: a shorter record reads as zeros there.
                let len = data
                    .iter()
                    .rposition(|&byte| byte != 0)
                    .map_or(0, |i| i + 1);
                let rid = Rid { page: at, slot: 0 };
                let step = store.host.write(now, tx, rid, Some(&data[..len]))?;
                last = last.max(done(step)?.1);
            }
            Ok(last)
        })
    }

    fn trim(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError> {
        self.within(now, |store, now, tx| {
            let rid = Rid { page: at, slot: 0 };
            Ok(done(store.host.write(now, tx, rid, None)?)?.1)
        })
    }

    fn transactional(&self) -> bool {
        true
    }

    fn begin(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        assert!(self.open.is_none(), "one transaction at a time");
        let now = self.free_for(now)?;
        self.open = Some(self.host.begin(now)?);
        Ok(now)
    }

    fn commit(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        let tx = self.open.ok_or(HostError::NoTransaction(TxId(0)))?;
        let done = self.end(now, tx)?;
        self.open = None;
        Ok(done)
    }

    fn abort(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        if let Some(tx) = self.open.take() {
            self.roll_back(now, tx)?;
        }
        Ok(now.max(self.free_at))
    }

    fn ftl(&self) -> Option<&Ftl> {
        Some(self.host.ftl())
    }

    fn verify(&self) -> Result<(), String> {
        self.host.verify()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::commit::{Kind, Options};
    use flagstone::ftl::Config;
    use flagstone::nand::{Cell, Geometry, small};
    use flagstone_host::{HostConfig, Stack};

    fn store(stack: Stack) -> HostStore {
        let config = Config::small(128, None);
        let mut host = HostConfig::default();
        host.frames = 8;
        host.log_pages = 32;
        // Pages of a transaction of an SCC database stay in their frames.
        host.steal = stack != Stack::Force(Kind::Scc);
        let host = host.with("log_buffer_bytes", 600).keep_those_of(stack);
        let options = Options::default();
        let flash = small::chip(Geometry {
            cell: Cell::Slc {
                partial_programs: 4,
            },
            strict_order: false,
            ..small::GEOMETRY
        });
        let flash = Box::new(flash);
        HostStore::new(
            Host::open(flash, stack, config, &options, &host, Nanos::ZERO).expect("a blank device"),
        )
    }

    #[test]
    fn what_is_read_outside_of_transactions_is_read_side_by_side() {
        for stack in [
            Stack::Wal,
            Stack::CfcEx,
            Stack::AfcEx,
            Stack::Force(Kind::Cfc),
        ] {
            let mut store = store(stack);
            let bytes = store.page_bytes();
            let mut pages = vec![0; 6 * bytes];
            let mut now = Nanos::ZERO;
            for at in 0..32 {
                let data = [at as u8 + 1; 40];
                now = store.write(now, &[(Lpn(at), &data)]).expect("written");
            }
            // Frames with dirty pages are evicted first.
            let mut in_turn = |store: &mut HostStore, now: Nanos, from: u32| {
                (from..from + 6).fold(now, |now, at| {
                    let read = store.read(now, Lpn(at), &mut pages[..bytes]);
                    read.expect("read")
                })
            };
            now = in_turn(&mut store, now, 16);
            now = in_turn(&mut store, now, 22);
            let begun = store.host().stats().begun;
            let one_by_one = in_turn(&mut store, now, 0);
            let all: Vec<Lpn> = (6..12).map(Lpn).collect();
            let together = store.read_many(one_by_one, &all, &mut pages);
            let together = together.expect("read");
            assert_eq!((pages[0], pages[5 * bytes]), (7, 12), "{stack}");
            let (together, one_by_one) = (together.since(one_by_one), one_by_one.since(now));
            assert!(
                together < one_by_one,
                "{stack}: {together} and {one_by_one}"
            );
            assert_eq!(store.host().stats().begun, begun, "{stack}");
        }
    }

    #[test]
    fn a_read_waits_for_the_commit_before_it() {
        let mut store = store(Stack::Wal);
        let mut page = vec![0; store.page_bytes()];
        let done = store.write(Nanos::ZERO, &[(Lpn(0), &[7])]);
        let done = done.expect("written");
        let read = store.read(Nanos::ZERO, Lpn(0), &mut page).expect("read");
        assert_eq!((page[0], read >= done, done > Nanos::ZERO), (7, true, true));
    }

    /// The first byte of a page.
    fn first(store: &mut HostStore, now: Nanos, at: u32) -> u8 {
        let mut page = vec![9; store.page_bytes()];
        store.read(now, Lpn(at), &mut page).expect("read");
        page[0]
    }

    #[test]
    fn a_transaction_of_pages_counts_as_a_whole_or_not_at_all() {
        for stack in [Stack::Wal, Stack::AfcEx, Stack::Force(Kind::Bpcc)] {
            let mut store = store(stack);
            assert!(store.transactional() && store.pages() > 20);
            let two = [(Lpn(2), &[1][..]), (Lpn(3), &[1])];
            let now = store.write(Nanos::ZERO, &two).expect("written");
            let now = store.begin(now).expect("begun");
            let now = store.write(now, &[(Lpn(2), &[2])]).expect("written");
            let now = store.trim(now, Lpn(3)).expect("trimmed");
            let seen = (first(&mut store, now, 2), first(&mut store, now, 3));
            assert_eq!(seen, (2, 0), "{stack}: it sees its own");
            let now = store.abort(now).expect("rolled back");
            let seen = (first(&mut store, now, 2), first(&mut store, now, 3));
            assert_eq!(seen, (1, 1), "{stack}");
            assert_eq!(store.abort(now).expect("nothing to do"), now);
            assert!(store.commit(now).is_err(), "{stack}: none was begun");
            let now = store.trim(now, Lpn(3)).expect("trimmed");
            assert_eq!(
                first(&mut store, now, 3),
                0,
                "{stack}: a trimmed page is zeros"
            );
            assert_eq!(store.verify(), Ok(()));
            assert!(store.ftl().is_some());
        }
    }

    /// Fails if the locks of a failed transaction remain: a lone client must never wait.
    #[test]
    fn pages_that_could_not_be_written_leave_no_transaction_behind() {
        for stack in [Stack::Wal, Stack::AfcEx, Stack::Force(Kind::Aw)] {
            let mut store = store(stack);
            let long = vec![1; store.page_bytes() + 1];
            let [good, bad] = [(Lpn(0), &[7][..]), (Lpn(1), &long)];
            assert!(store.write(Nanos::ZERO, &[good, bad]).is_err(), "{stack}");
            let now = store.free_at;
            assert_eq!(first(&mut store, now, 0), 0, "{stack}: it was rolled back");
            let now = store.write(now, &[good]).expect("nobody is in the way");
            assert_eq!(first(&mut store, now, 0), 7, "{stack}");
        }
    }

    /// Fails if a client waits for the locks of a transaction that could not be rolled back.
    #[test]
    fn after_a_roll_back_that_failed_no_transaction_begins() {
        let mut store = store(Stack::Wal);
        let now = store.begin(Nanos::ZERO).expect("begun");
        let now = store.write(now, &[(Lpn(0), &[1])]).expect("written");
        let tx = store.open.expect("begun above");
        let ended = store.host.abort(now, tx).expect("rolled back");
        assert!(store.abort(ended).is_err(), "it has ended before");
        assert!(store.begin(ended).is_err());
        assert!(store.write(ended, &[(Lpn(0), &[2])]).is_err());
        assert_eq!(first(&mut store, ended, 0), 0, "it can be read");
    }

    /// A lone client never waits. A transaction that exceeds the resources gets an error that says
    /// so, and the client can continue.
    #[test]
    fn a_transaction_that_is_too_large_is_to_start_again() {
        let mut store = store(Stack::Force(Kind::Scc));
        let now = store
            .write(Nanos::ZERO, &[(Lpn(0), &[1])])
            .expect("written");
        // There are eight frames.
        let data = [7];
        let pages: Vec<(Lpn, &[u8])> = (0..9).map(|at| (Lpn(at), &data[..])).collect();
        let refused = store.write(now, &pages).unwrap_err();
        let says = |error: &BackingError| error.to_string().contains("more frames or log pages");
        assert!(says(&refused), "{refused}");
        assert_eq!(first(&mut store, now, 0), 1, "it was rolled back");
        let now = store.begin(store.free_at).expect("begun");
        let refused = store.write(now, &pages).unwrap_err();
        assert!(says(&refused), "{refused}");
        let now = store.abort(now).expect("rolled back");
        let now = store
            .write(now, &pages[..8])
            .expect("as many as there are frames");
        assert_eq!(first(&mut store, now, 0), 7);
    }
}
