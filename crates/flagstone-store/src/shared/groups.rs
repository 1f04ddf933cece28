//! Transactions that become durable together.
//!
//! ```text
//!   turn ──commit──> forming ──a thread waits, and no flush runs──> flushing ──sync──> durable
//! ```
//!
//! A turn leaves its changes in the group that forms. A thread that waits for its ticket while no
//! flush runs becomes the leader: it takes the group, writes it as one transaction of the device,
//! and waits for the medium while it holds no lock. Transactions that come meanwhile form the next
//! group. A page that several transactions of a group have changed is written once, as the last of
//! them left it.
//!
//! A turn whose changes find no room beside those of the groups waits until these are durable, and
//! is refused if there is none then either: it fails alone. If a group is refused nevertheless, all
//! of it has failed, and with it everything that has read its pages: the group that forms
//! meanwhile, and the turn that is taken. The store goes on without them. If
//! the medium fails, the store is broken. If a ticket of a group that failed was dropped, its
//! failure has not been reported: the close reports it.

use super::reads::{Core, Durable};
use super::{Changes, PageBytes};
use crate::error::StoreError;
use crate::pace::Pace;
use crate::pages::PageStore;
use flagstone::units::Lpn;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Instant;

/// What became of a group.
pub(super) type Outcome = Arc<OnceLock<Result<(), StoreError>>>;

#[derive(Default)]
struct Group {
    changes: Changes,
    members: usize,
    outcome: Outcome,
}

#[derive(Default)]
pub(super) struct State {
    /// Whether a turn is taken.
    is_taken: bool,
    /// Groups that failed, with all that had read their pages.
    failures: u64,
    forming: Group,
    /// The group that is being written, and what becomes of it.
    flushing: Option<(Arc<Changes>, Outcome)>,
    has_leader: bool,
    /// Groups with a dropped ticket: those that are not durable yet, and the first that failed.
    left: Vec<Outcome>,
    pace: Pace,
}

impl State {
    /// What a page is to hold, if a group has changed it that is not durable yet.
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
    /// What readers see.
    durable: RwLock<Arc<Durable>>,
    #[cfg(test)]
    mistake: OnceLock<Mistake>,
}

/// Made on purpose: controls of the tests.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    /// A group is acknowledged, and shown, before its sync.
    AcknowledgesEarly,
    /// Readers see a group before its sync.
    ShowsEarly,
    /// A turn joins a group whether or not it finds room beside it.
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

    /// The newest snapshot of what is durable.
    pub(super) fn durable(&self) -> Arc<Durable> {
        Arc::clone(&self.durable.read().expect("no thread panics here"))
    }

    /// The newest snapshot of what is durable, in a store that may have been opened again.
    pub(super) fn newest(&self) -> Result<Arc<Durable>, StoreError> {
        let durable = self.durable();
        if !durable.is_stale() {
            return Ok(durable);
        }
        // No group begins to be written meanwhile.
        let state = self.state();
        let is_quiet = state.flushing.is_none();
        self.renew(&mut self.core.store(), is_quiet)?;
        drop(state);
        Ok(self.durable())
    }

    /// Goes on after the store was opened again: until the next group is written, it holds what is
    /// durable, and nothing else. If that `is_as_before`, readers go on with the snapshot that they
    /// have; others begin with a new one.
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

    /// Waits for the turn. Returns how many groups have failed.
    pub(super) fn take_turn(&self) -> Result<u64, StoreError> {
        let mut state = self.state();
        while state.is_taken {
            let waited = self.turn_is_free.wait(state);
            state = waited.expect("no thread panics here");
        }
        if let Err(error) = self.core.is_well() {
            // The turn stays free: the next thread that waits for it gets the error as well.
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

    /// Whether what a turn has read, since so many groups had failed, is still what will be.
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

    /// The newest bytes of a page, for a turn.
    pub(super) fn read(&self, failures: u64, at: Lpn) -> Result<Option<PageBytes>, StoreError> {
        let state = self.state();
        self.has_not_failed(&state, failures)?;
        if let Some(newest) = state.newest(at) {
            return Ok(newest.clone());
        }
        drop(state);
        // Only the holder of the turn adds to a group: what is not in one now was committed before.
        self.core.read(None, at)
    }

    /// The newest bytes of several pages, for a turn, read side by side.
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

    /// Sees to it that changes find room together with those of the groups. If they do not, the
    /// groups have to be durable first, and then they find room by themselves, or never.
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
            // The group that is being flushed is a transaction of its own.
            let count = writes as u64 + store.pages_of_trims(trims) + 1;
            if store.has_room_for(count, highest) {
                return Ok(());
            }
        }
        loop {
            // Each page once, and whether it is to hold anything.
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
            // Their members hear what became of them.
            let _ = self.wait_for_all();
        }
    }

    /// Adds the changes of a turn to the group that forms.
    pub(super) fn add(&self, failures: u64, changes: Changes) -> Result<Outcome, StoreError> {
        self.core.may_write()?;
        self.has_not_failed(&self.state(), failures)?;
        if let Err(error) = self.find_room(&changes) {
            let _ = self.newest();
            return Err(error);
        }
        let mut state = self.state();
        self.core.may_write()?;
        self.has_not_failed(&state, failures)?;
        if changes.is_empty() && state.forming.members == 0 {
            // It is durable as soon as all that it has read is.
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

    /// Waits until a group is durable, and leads a flush if no other thread does.
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

    /// Writes the commits whose tickets were not waited for.
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

    /// Whether all commits so far are durable, or lost.
    pub(super) fn has_no_open_group(&self) -> bool {
        let state = self.state();
        state.forming.members == 0 && state.flushing.is_none()
    }

    /// A ticket of a group was dropped, so that its holder will not hear of a failure.
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

    /// Says why the first group has failed of which a ticket was dropped.
    pub(super) fn lost(&self) -> Result<(), StoreError> {
        let state = self.state();
        let mut failed = state
            .left
            .iter()
            .filter_map(|left| left.get()?.as_ref().err());
        failed.next().map_or(Ok(()), |error| Err(error.again()))
    }

    /// Waits until as many are there as are expected, but not for long.
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

    /// Makes the group that forms durable, and says so to all of it.
    fn lead(&self) {
        let leading = Leading(self);
        let group = self.gather();
        let began = Instant::now();
        let flushed = self.flush(group.members);
        let mut state = self.state();
        state.flushing = None;
        let meanwhile = state.forming.members;
        state
            .pace
            .flushed(group.members, meanwhile, began.elapsed());
        if let Err(error) = &flushed {
            state.failures += 1;
            let lost = std::mem::take(&mut state.forming);
            let _ = lost.outcome.set(Err(error.again()));
        }
        let _ = group.outcome.set(flushed);
        drop(state);
        drop(leading);
    }

    /// Writes the group that is being flushed as one transaction, and returns when it is durable.
    fn flush(&self, members: usize) -> Result<(), StoreError> {
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
        let written = write(&mut store, &changes, members);
        if self.durable().is_stale() {
            // There was no room, and the store was opened again.
            return self.judge(&mut store, &changes, written);
        }
        let epoch = core.places.epoch();
        if written.is_ok() {
            core.has_committed(&changes);
        }
        let taken = match written {
            Ok(()) => Core::take(&mut store, core).map(Some),
            // What was tried, such as to make room, may have cost readers their snapshot.
            Err(_) if store.is_well().is_ok() && !store.is_open(self.durable().id()) => {
                Core::take(&mut store, core).map(Some)
            }
            Err(_) => Ok(None),
        };
        drop(store);
        let mut taken = taken?;
        #[cfg(test)]
        if let Some(&mistake) = self.mistake.get()
            && mistake != Mistake::AsksForNoRoom
        {
            self.show(taken.take());
            if mistake == Mistake::AcknowledgesEarly {
                self.acknowledge();
            }
            // Others have the time to believe it.
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

    /// Judges a group by what the store holds that was opened again because there was no room for
    /// the group: all of it may have landed. Anything else that has failed is what it was.
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
        match has_committed {
            true => Ok(()),
            false => failed,
        }
    }

    /// Lets readers that come from now on see a snapshot.
    fn show(&self, taken: Option<Durable>) {
        let Some(taken) = taken else {
            return;
        };
        let mut durable = self.durable.write().expect("no thread panics here");
        let before = std::mem::replace(&mut *durable, Arc::new(taken));
        drop(durable);
        // Without the lock: this may be the last handle of that snapshot.
        drop(before);
    }
}

/// Whether the store holds what these changes leave, in each of their pages.
fn holds(store: &mut PageStore, changes: &Changes) -> Result<bool, StoreError> {
    let mut page = vec![0; PageStore::PAGE_BYTES];
    for (&at, change) in changes {
        let bytes = match store.read(None, at, &mut page) {
            Ok(bytes) => bytes.map(|bytes| &page[..bytes]),
            // One that is damaged is not what was written now.
            Err(error) if error.is_damage() => return Ok(false),
            Err(error) => return Err(error),
        };
        if bytes != change.as_deref() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes changes as one transaction. What it asks of the medium is not done yet.
fn write(store: &mut PageStore, changes: &Changes, members: usize) -> Result<(), StoreError> {
    let tx = store.begin()?;
    for (&at, page) in changes {
        let done = match page {
            Some(page) => store.write(tx, at, page),
            None => store.trim(tx, at),
        };
        if let Err(error) = done {
            // A medium that failed refuses this as well, and the first error says why.
            let _ = store.abort(tx);
            return Err(error);
        }
    }
    let committed = store.commit_for(tx, members as u64);
    if committed.is_err() {
        // As above. A transaction that stayed would keep its pages.
        let _ = store.abort(tx);
    }
    committed
}

/// A thread that leads. Whatever becomes of it, others go on.
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
