//! Group commit: transactions that become durable with one flush.
//!
//! ```text
//!   turn ──commit──> forming ──a thread waits, and no flush runs──> flushing ──sync──> durable
//! ```
//!
//! A turn adds its changes to the forming group. A thread that waits for its ticket while no flush
//! runs becomes the leader: it takes the group, writes it as one transaction of the device, and
//! syncs the medium without holding a lock. Meanwhile later transactions form the next group. A
//! page that several transactions of a group have changed is written once, with its last contents.
//!
//! If the changes of a turn find no room beside the groups, the turn waits until these are durable.
//! If there is still no room, only this turn fails. If a whole group is refused nevertheless,
//! everything that has read its pages fails too: the forming group, and the turn in progress. The
//! store goes on. If the medium fails, the store is broken. If a ticket of a failed group was
//! dropped, the close reports the failure.

use super::reads::{Core, Durable};
use super::{Changes, PageBytes};
use crate::error::StoreError;
use crate::pace::Pace;
use crate::pages::PageStore;
use flagstone::units::Lpn;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Instant;

/// The result of a group, once it is known.
pub(super) type Outcome = Arc<OnceLock<Result<(), StoreError>>>;

#[derive(Default)]
struct Group {
    changes: Changes,
    members: usize,
    outcome: Outcome,
}

#[derive(Default)]
pub(super) struct State {
    /// Whether a thread has the turn.
    is_taken: bool,
    /// Number of failed groups. Everything that had read their pages failed with them.
    failures: u64,
    forming: Group,
    /// The group that is being flushed, and its result.
    flushing: Option<(Arc<Changes>, Outcome)>,
    has_leader: bool,
    /// Groups with a dropped ticket: those not durable yet, and the first one that failed.
    left: Vec<Outcome>,
    pace: Pace,
}

impl State {
    /// The newest contents of a page, if a group that is not durable yet has changed it.
    fn newest(&self, at: Lpn) -> Option<&Option<PageBytes>> {
        let newest = self.forming.changes.get(&at);
        let flushing = self.flushing.as_ref().map(|(changes, _)| changes);
        newest.or_else(|| flushing.and_then(|changes| changes.get(&at)))
    }
}

pub(super) struct Groups {
    state: Mutex<State>,
    turn_is_free: Condvar,
    one_has_come: Condvar,
    one_is_done: Condvar,
    core: Arc<Core>,
    /// The snapshot that new readers get.
    durable: RwLock<Arc<Durable>>,
    #[cfg(test)]
    mistake: OnceLock<Mistake>,
}

/// Mistakes made on purpose, for controls of the tests.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    /// Acknowledges and shows a group before its sync.
    AcknowledgesEarly,
    /// Shows a group to readers before its sync.
    ShowsEarly,
    /// Adds a turn to a group without checking for room.
    AsksForNoRoom,
}

impl Groups {
    pub(super) fn over(core: Arc<Core>) -> Result<Groups, StoreError> {
        let first = Core::take(&mut core.store(), &core)?;
        Ok(Groups {
            state: Mutex::default(),
            turn_is_free: Condvar::new(),
            one_has_come: Condvar::new(),
            one_is_done: Condvar::new(),
            core,
            durable: RwLock::new(Arc::new(first)),
            #[cfg(test)]
            mistake: OnceLock::new(),
        })
    }

    #[cfg(test)]
    pub(super) fn make(&self, mistake: Mistake) {
        self.mistake.set(mistake).expect("one is enough");
    }

    #[cfg(test)]
    fn acknowledge(&self) {
        if let Some((_, outcome)) = &self.state().flushing {
            let _ = outcome.set(Ok(()));
        }
        self.one_is_done.notify_all();
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics here")
    }

    /// The newest durable snapshot.
    pub(super) fn durable(&self) -> Arc<Durable> {
        Arc::clone(&self.durable.read().expect("no thread panics here"))
    }

    /// The newest durable snapshot, also if the store was reopened since.
    pub(super) fn newest(&self) -> Result<Arc<Durable>, StoreError> {
        let durable = self.durable();
        if !durable.is_stale() {
            return Ok(durable);
        }
        // No group starts to be written meanwhile.
        let state = self.state();
        let is_quiet = state.flushing.is_none();
        self.renew(&mut self.core.store(), is_quiet)?;
        drop(state);
        Ok(self.durable())
    }

    /// Continues after the store was reopened: until the next group is written, it holds exactly
    /// the durable state. With `is_as_before` readers keep their snapshot; otherwise new readers
    /// get a new one.
    fn renew(&self, store: &mut PageStore, is_as_before: bool) -> Result<(), StoreError> {
        let durable = self.durable();
        if !durable.is_stale() {
            return Ok(());
        }
        self.core.forget();
        if is_as_before && durable.reopen(store) {
            return Ok(());
        }
        let taken = Core::take(store, &self.core)?;
        self.show(Some(taken));
        Ok(())
    }

    /// Waits for the turn. Returns the number of failed groups.
    pub(super) fn take_turn(&self) -> Result<u64, StoreError> {
        let mut state = self.state();
        while state.is_taken {
            let waited = self.turn_is_free.wait(state);
            state = waited.expect("no thread panics here");
        }
        if let Err(error) = self.core.is_well() {
            // The turn stays free: the next waiting thread gets the error as well.
            self.turn_is_free.notify_one();
            return Err(error);
        }
        state.is_taken = true;
        Ok(state.failures)
    }

    pub(super) fn give_turn_up(&self) {
        self.state().is_taken = false;
        self.turn_is_free.notify_one();
    }

    /// Checks that no group has failed since this count: what a turn has read is still valid.
    fn has_not_failed(&self, state: &State, failures: u64) -> Result<(), StoreError> {
        if state.failures == failures {
            return Ok(());
        }
        self.core.is_well()?;
        Err(StoreError::Full(
            "a transaction before this one, whose pages this one may have read, found no room: \
             begin again"
                .into(),
        ))
    }

    /// The newest bytes of a page, for the holder of the turn. Fails if a group has failed since
    /// the turn began, when their count was `failures`: the turn may have read its pages.
    pub(super) fn read(&self, failures: u64, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        let state = self.state();
        self.has_not_failed(&state, failures)?;
        if let Some(newest) = state.newest(at) {
            return Ok(newest.clone());
        }
        drop(state);
        // Only the holder of the turn adds to a group: a page in no group was committed before.
        self.core.read(None, at)
    }

    /// Like [`Groups::read`], for several pages. Those that no group has changed are read
    /// concurrently. `failures` is the count of failed groups when the turn began.
    pub(super) fn read_many(
        &self,
        failures: u64,
        pages: &[Lpn],
    ) -> Result<Vec<Option<PageBytes>>, StoreError> {
        let state = self.state();
        self.has_not_failed(&state, failures)?;
        let newest = pages.iter().map(|&at| state.newest(at).cloned());
        let newest: Vec<Option<Option<PageBytes>>> = newest.collect();
        drop(state);
        let below = pages
            .iter()
            .zip(&newest)
            .filter(|(_, newest)| newest.is_none());
        let below: Vec<Lpn> = below.map(|(&at, _)| at).collect();
        let mut below = self.core.read_many(None, &below)?.into_iter();
        let each = newest.into_iter();
        Ok(each
            .map(|newest| newest.unwrap_or_else(|| below.next().flatten()))
            .collect())
    }

    /// Ensures room for `changes` in addition to those of the groups. First asks for an upper
    /// bound, which is cheap, then for the exact number of pages. If there is no room, waits until
    /// the groups are durable, and asks for `changes` alone.
    fn find_room(&self, changes: &Changes) -> Result<(), StoreError> {
        #[cfg(test)]
        if self.mistake.get() == Some(&Mistake::AsksForNoRoom) {
            return Ok(());
        }
        let highest_of = |changes: &Changes| changes.last_key_value().map(|(at, _)| *at);
        let trims_of = |changes: &Changes| changes.values().filter(|page| page.is_none()).count();
        let (writes, trims, highest) = {
            let state = self.state();
            let flushing = state.flushing.as_ref().map(|(changes, _)| &**changes);
            let all = flushing
                .into_iter()
                .chain([&state.forming.changes, changes]);
            let pages: usize = all.clone().map(Changes::len).sum();
            let trims: usize = all.clone().map(trims_of).sum();
            (pages - trims, trims, all.filter_map(highest_of).max())
        };
        let Some(highest) = highest else {
            return Ok(());
        };
        {
            let mut store = self.core.store();
            // The group that is being flushed is a separate transaction: its trims may take one
            // more page.
            let count = writes as u64 + store.pages_of_trims(trims) + 1;
            if store.has_room_for(count, highest) {
                return Ok(());
            }
        }
        loop {
            // Each changed page once, and whether it will hold data.
            let (mut all, is_open) = {
                let state = self.state();
                let flushing = state.flushing.as_ref().map(|(changes, _)| &**changes);
                let open = flushing.into_iter().chain([&state.forming.changes]);
                let open = open.flatten().map(|(at, page)| (*at, page.is_some()));
                let is_open = flushing.is_some() || state.forming.members > 0;
                (open.collect::<BTreeMap<_, _>>(), is_open)
            };
            all.extend(changes.iter().map(|(at, page)| (*at, page.is_some())));
            let mut store = self.core.store();
            let held = all.iter().filter(|&(_, &holds)| holds);
            let (new, again): (Vec<&Lpn>, _) =
                held.map(|(at, _)| at).partition(|&&at| store.is_new(at));
            let trims = store.pages_of_trims(all.len() - new.len() - again.len());
            match store.find_room(new.len() as u64, again.len() as u64 + trims, highest) {
                Err(StoreError::Full(_)) if is_open => {}
                found => return found,
            }
            drop(store);
            // The members of the groups get their own results.
            let _ = self.wait_for_all();
        }
    }

    /// Adds the changes of a turn to the forming group. Fails if a group has failed since the turn
    /// began, when `failures` had.
    pub(super) fn add(&self, failures: u64, changes: Changes) -> Result<Outcome, StoreError> {
        self.core.may_write()?;
        self.has_not_failed(&self.state(), failures)?;
        if let Err(error) = self.find_room(&changes) {
            // The attempt may have reopened the store: gives new readers a snapshot of it.
            let _ = self.newest();
            return Err(error);
        }
        let mut state = self.state();
        self.core.may_write()?;
        self.has_not_failed(&state, failures)?;
        if changes.is_empty() && state.forming.members == 0 {
            // An empty commit is durable once everything that it has read is: with the group that
            // is being flushed, or at once.
            let outcome = state
                .flushing
                .as_ref()
                .map(|(_, outcome)| Arc::clone(outcome));
            return Ok(outcome.unwrap_or_else(|| Arc::new(Ok(()).into())));
        }
        state.forming.changes.extend(changes);
        state.forming.members += 1;
        if state.pace.has_all(state.forming.members) {
            self.one_has_come.notify_one();
        }
        Ok(Arc::clone(&state.forming.outcome))
    }

    /// Waits until a group is durable. Leads the flush if no other thread does.
    pub(super) fn wait(&self, outcome: &Outcome) -> Result<(), StoreError> {
        let mut state = self.state();
        loop {
            if let Some(outcome) = outcome.get() {
                return outcome.as_ref().copied().map_err(StoreError::again);
            }
            if state.has_leader {
                let waited = self.one_is_done.wait(state);
                state = waited.expect("no thread panics here");
            } else {
                state.has_leader = true;
                drop(state);
                self.lead();
                state = self.state();
            }
        }
    }

    /// Writes the commits whose tickets were not awaited.
    pub(super) fn wait_for_all(&self) -> Result<(), StoreError> {
        let state = self.state();
        let newest = match state.forming.members {
            0 => state
                .flushing
                .as_ref()
                .map(|(_, outcome)| Arc::clone(outcome)),
            _ => Some(Arc::clone(&state.forming.outcome)),
        };
        drop(state);
        newest.map_or(Ok(()), |outcome| self.wait(&outcome))
    }

    /// Whether all commits so far are durable or failed.
    pub(super) fn has_no_open_group(&self) -> bool {
        let state = self.state();
        state.forming.members == 0 && state.flushing.is_none()
    }

    /// Records that a ticket of a group was dropped, so that no caller gets its failure.
    pub(super) fn leave(&self, outcome: Outcome) {
        let mut state = self.state();
        let mut has_failed = false;
        state.left.retain(|left| match left.get() {
            None => true,
            Some(Ok(())) => false,
            Some(Err(_)) => !std::mem::replace(&mut has_failed, true),
        });
        let is_durable = matches!(outcome.get(), Some(Ok(())));
        if !is_durable && !state.left.iter().any(|left| Arc::ptr_eq(left, &outcome)) {
            state.left.push(outcome);
        }
    }

    /// The error of the first failed group of which a ticket was dropped.
    pub(super) fn lost(&self) -> Result<(), StoreError> {
        let state = self.state();
        let mut failed = state
            .left
            .iter()
            .filter_map(|left| left.get()?.as_ref().err());
        failed.next().map_or(Ok(()), |error| Err(error.again()))
    }

    /// Waits briefly for the expected members, and takes the group.
    fn gather(&self) -> Group {
        let gathered = Pace::gather(self.state(), &self.one_has_come, |state| {
            (&state.pace, state.forming.members)
        });
        let mut state = gathered.expect("no thread panics here");
        let mut group = std::mem::take(&mut state.forming);
        let changes = Arc::new(std::mem::take(&mut group.changes));
        state.flushing = Some((Arc::clone(&changes), Arc::clone(&group.outcome)));
        group
    }

    /// Makes the forming group durable and notifies its members.
    fn lead(&self) {
        let leading = Leading(self);
        let group = self.gather();
        let began = Instant::now();
        let flushed = self.flush();
        let mut state = self.state();
        state.flushing = None;
        let meanwhile = state.forming.members;
        state
            .pace
            .flushed(group.members, meanwhile, began.elapsed());
        if let Err(error) = &flushed {
            // The members of the forming group may have read pages of the failed one.
            state.failures += 1;
            let lost = std::mem::take(&mut state.forming);
            let _ = lost.outcome.set(Err(error.again()));
        } else {
            let commits = group.members as u64;
            self.core.places.count(|stats| stats.commits += commits);
        }
        let _ = group.outcome.set(flushed);
        drop(state);
        drop(leading);
    }

    /// Writes the group being flushed as one transaction, and returns once that is durable. The
    /// store is locked while the transaction is committed, but not while the medium writes and
    /// syncs. Then new readers get a snapshot with the group.
    fn flush(&self) -> Result<(), StoreError> {
        let changes = self
            .state()
            .flushing
            .as_ref()
            .map(|(changes, _)| Arc::clone(changes));
        let changes = changes.expect("it was just put there");
        let core = &self.core;
        let mut store = core.store();
        self.renew(&mut store, true)?;
        core.give_back(&mut store);
        let written = write(&mut store, &changes);
        if self.durable().is_stale() {
            // There was no space, and the store was reopened.
            return self.judge(&mut store, &changes, written);
        }
        let epoch = core.places.epoch();
        if written.is_ok() {
            core.has_committed(&changes);
        }
        let taken = match written {
            Ok(()) => Core::take(&mut store, core).map(Some),
            // The attempt, for example making room, may have ended the readers' snapshot.
            Err(_) if store.is_well().is_ok() && !store.is_open(self.durable().id()) => {
                Core::take(&mut store, core).map(Some)
            }
            Err(_) => Ok(None),
        };
        drop(store);
        // Readers get this snapshot once it is durable.
        let mut taken = taken?;
        #[cfg(test)]
        if let Some(&mistake) = self.mistake.get()
            && mistake != Mistake::AsksForNoRoom
        {
            self.show(taken.take());
            if mistake == Mistake::AcknowledgesEarly {
                self.acknowledge();
            }
            // Gives other threads time to act on the early acknowledgement.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if written.is_ok() && core.places.carry_out_of(epoch).is_err() {
            let mut store = core.store();
            let failed = Err(store.failed());
            return self.judge(&mut store, &changes, failed);
        }
        self.show(taken.take());
        written
    }

    /// Decides the result of a group for which there was no room, from the contents of the reopened
    /// store: the whole group may have landed. Other errors are passed on.
    fn judge(
        &self,
        store: &mut PageStore,
        changes: &Changes,
        failed: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if !matches!(failed, Err(StoreError::Full(_))) {
            return failed;
        }
        let has_committed = holds(store, changes)?;
        self.renew(store, !has_committed)?;
        if has_committed { Ok(()) } else { failed }
    }

    /// Makes a snapshot the one that new readers get.
    fn show(&self, taken: Option<Durable>) {
        let Some(taken) = taken else {
            return;
        };
        let mut durable = self.durable.write().expect("no thread panics here");
        let before = std::mem::replace(&mut *durable, Arc::new(taken));
        drop(durable);
        // Dropped without the lock: this may be the last handle of that snapshot.
        drop(before);
    }
}

/// Whether the store holds the results of these changes on each changed page.
fn holds(store: &mut PageStore, changes: &Changes) -> Result<bool, StoreError> {
    let mut page = vec![0; PageStore::PAGE_BYTES];
    for (&at, change) in changes {
        let bytes = match store.read(None, at, &mut page) {
            Ok(bytes) => bytes.map(|bytes| &page[..bytes]),
            // A damaged page does not have the new contents.
            Err(error) if error.is_damage() => return Ok(false),
            Err(error) => return Err(error),
        };
        if bytes != change.as_deref() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes changes as one transaction. Its requests to the medium are still pending.
fn write(store: &mut PageStore, changes: &Changes) -> Result<(), StoreError> {
    let tx = store.begin()?;
    for (&at, page) in changes {
        let done = match page {
            Some(page) => store.write(tx, at, page),
            None => store.trim(tx, at),
        };
        if let Err(error) = done {
            // If the medium has failed, this fails as well, and the first error is reported.
            let _ = store.abort(tx);
            return Err(error);
        }
    }
    let committed = store.commit_uncounted(tx);
    if committed.is_err() {
        // As above. A transaction that stays live would keep its pages.
        let _ = store.abort(tx);
    }
    committed
}

/// The leading thread. Wakes the others even if it panics.
struct Leading<'a>(&'a Groups);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.has_leader = false;
        if std::thread::panicking() {
            self.0.core.abandon();
            let died = || {
                Err(StoreError::Broken(
                    "the thread that wrote it panicked".into(),
                ))
            };
            if let Some((_, outcome)) = state.flushing.take() {
                let _ = outcome.set(died());
            }
            state.failures += 1;
            let _ = std::mem::take(&mut state.forming).outcome.set(died());
        }
        drop(state);
        self.0.one_is_done.notify_all();
    }
}
