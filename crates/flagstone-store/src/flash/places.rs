//! What a flash shares with threads that read and sync beside it: its medium, the generations of
//! its blocks, pages that are not on the medium yet, and the steps that the medium has still to do.
//!
//! A flash asks for writes and syncs in an order, as [`Step`]s. [`Places::carry_out`] does them in
//! that order. A flash that works *apart* leaves that to another thread, and goes on as if it were
//! done: the same sequence of calls reaches the medium, only later. So a thread carries the steps
//! out before it acknowledges anything. One thread at a time does so, and others wait for it.

use super::{
    DATA_BYTES, Judged, MEDIUM_PAGE_BYTES, MediumStats, NEVER, Notes, UNKNOWN, judge, mark_at,
};
use crate::identity::Identity;
use crate::medium::gaps::is_bad_sector;
use crate::medium::{Expecting, Medium};
use flagstone::nand::FlashError;
use flagstone::units::{Pbn, Ppn};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A page of the medium.
pub(crate) type Page = Arc<[u8; MEDIUM_PAGE_BYTES]>;

/// Bytes of a page, where offsets are counted.
const PAGE: u64 = MEDIUM_PAGE_BYTES as u64;

/// Pages that may wait until another thread writes them.
const ASKED_MAX: usize = (16 << 20) / MEDIUM_PAGE_BYTES;

/// Written pages whose memory is kept for the next ones.
const SPENT_MAX: usize = (128 << 10) / MEDIUM_PAGE_BYTES;

/// What fails where a page cannot be read.
pub(super) const READING: &str = "reading a page";

/// A call of the medium that is to come.
enum Step {
    /// Writes pages one behind the other, from this page of the medium on.
    Write(u64, Vec<Page>),
    /// Makes all that was written durable.
    Sync,
}

/// What changes with each operation.
#[derive(Default)]
pub(super) struct State {
    /// By block, see [`super::mark`].
    pub(super) generations: Vec<u64>,
    /// Blocks whose pages were given back to the medium since they were erased.
    pub(crate) discarded: BTreeSet<Pbn>,
    /// Pages that were programmed, by page of the medium: no step has them yet.
    pub(super) waiting: BTreeMap<u64, Page>,
    steps: VecDeque<Step>,
    /// Pages of the steps, the newest of each place.
    asked: BTreeMap<u64, Page>,
    spent: Vec<Page>,
    /// Whether anything was written since the last sync.
    unsynced: bool,
}

impl State {
    /// What lies at a page of the medium once all is done, where the medium does not have it yet.
    pub(super) fn kept(&self, place: u64) -> Option<&Page> {
        self.waiting.get(&place).or_else(|| self.asked.get(&place))
    }

    /// Memory for a page, of which there is no other handle. It holds what an earlier page left
    /// there.
    pub(super) fn spent_page(&mut self) -> Page {
        while let Some(mut page) = self.spent.pop() {
            if Arc::get_mut(&mut page).is_some() {
                return page;
            }
        }
        Arc::new([0; MEDIUM_PAGE_BYTES])
    }

    pub(super) fn spend(&mut self, page: Option<Page>) {
        if self.spent.len() < SPENT_MAX {
            self.spent.extend(page);
        }
    }

    /// Asks for writes of waiting pages at ascending places, those side by side at once.
    pub(super) fn ask_for_pages(&mut self, places: Vec<u64>) {
        let mut places = places.into_iter().peekable();
        while let Some(first) = places.next() {
            let mut run = Vec::new();
            let mut next = first;
            loop {
                let page = self.waiting.remove(&next).expect("it waits");
                self.asked.insert(next, Arc::clone(&page));
                run.push(page);
                next += 1;
                if places.next_if_eq(&next).is_none() {
                    break;
                }
            }
            self.steps.push_back(Step::Write(first, run));
        }
    }

    /// Asks for the write of a page that did not wait.
    pub(super) fn ask_for_page(&mut self, place: u64, page: Page) {
        self.asked.insert(place, Arc::clone(&page));
        self.steps.push_back(Step::Write(place, vec![page]));
    }

    pub(super) fn ask_for_sync(&mut self) {
        self.steps.push_back(Step::Sync);
    }

    fn is_crowded(&self) -> bool {
        self.asked.len() >= ASKED_MAX
    }

    /// Pages were written.
    fn has_written(&mut self, first: u64, run: Vec<Page>) {
        for (place, page) in (first..).zip(run) {
            let asked = self.asked.get(&place);
            if asked.is_some_and(|newest| Arc::ptr_eq(newest, &page)) {
                self.asked.remove(&place);
            }
            self.spend(Some(page));
        }
    }
}

/// What a flash shares.
pub(crate) struct Places {
    medium: Arc<dyn Medium>,
    /// Hears of reads to come, where that is of use.
    expecting: Option<Expecting>,
    pub(super) notes: Notes,
    /// That of the store.
    identity: Identity,
    state: Mutex<State>,
    is_apart: AtomicBool,
    /// Whether a sector that the medium refuses to read costs its page only.
    forgives: AtomicBool,
    /// Whether a growth makes the medium longer only, and takes room for no new block.
    grows_sparse: AtomicBool,
    /// Whether the store is opened again after a write that has found no room, see
    /// [`Places::begin_anew`].
    recovers: AtomicBool,
    /// Counts the flashes that these places were those of, one after the other.
    epoch: AtomicU64,
    /// The thread that has this lock carries steps out, so that they stay in order.
    carrying: Mutex<()>,
}

/// Where the bytes of a page are.
pub(crate) struct Place {
    /// The page.
    pub(crate) at: Ppn,
    /// The page of the medium.
    pub(crate) number: u64,
    /// The generation of its block.
    pub(crate) generation: u64,
    /// The page, if the medium does not have it yet.
    pub(crate) kept: Option<Page>,
}

/// What was found at a place.
pub(crate) enum Found {
    /// The bytes of the page.
    Whole(Arc<[u8]>),
    /// Something else: the page is damaged, or is not there any more.
    Other,
}

impl Places {
    pub(super) fn new(
        medium: Box<dyn Medium>,
        notes: Notes,
        generations: Vec<u64>,
        identity: Identity,
    ) -> Places {
        Places {
            expecting: medium.expecting(),
            medium: Arc::from(medium),
            notes,
            identity,
            state: Mutex::new(State {
                generations,
                ..State::default()
            }),
            is_apart: AtomicBool::new(false),
            forgives: AtomicBool::new(false),
            grows_sparse: AtomicBool::new(false),
            recovers: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            carrying: Mutex::new(()),
        }
    }

    pub(crate) fn medium(&self) -> &dyn Medium {
        self.medium.as_ref()
    }

    /// Says that so many pages of the medium will be read soon. It waits for nothing.
    pub(crate) fn expect(&self, first: u64, pages: u32) {
        if let Some(expecting) = &self.expecting {
            let offset = first * MEDIUM_PAGE_BYTES as u64;
            expecting(offset, pages as usize * MEDIUM_PAGE_BYTES);
        }
    }

    /// Whether the medium makes use of what it is told to expect.
    pub(crate) fn expects(&self) -> bool {
        self.expecting.is_some()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics here")
    }

    /// Sets whether steps are left to the next call of [`Places::carry_out`] from now on.
    pub(crate) fn work_apart(&self, is_apart: bool) {
        self.is_apart.store(is_apart, Ordering::Relaxed);
    }

    /// Sets whether a growth takes room for no new block from now on, on a medium that can be
    /// sparse.
    pub(crate) fn grow_sparse(&self, is_sparse: bool) {
        self.grows_sparse.store(is_sparse, Ordering::Relaxed);
    }

    pub(super) fn grows_sparse(&self) -> bool {
        self.grows_sparse.load(Ordering::Relaxed)
    }

    /// Has a sector that the medium refuses to read cost its page from now on, and not the store.
    /// While it is opened it must not be so: see [`crate::medium::gaps`].
    pub(crate) fn forgive_misreads(&self, forgives: bool) {
        self.forgives.store(forgives, Ordering::Relaxed);
    }

    /// Sets whether the store above opens itself again after a write that has found no room.
    pub(crate) fn recover_from_no_room(&self, recovers: bool) {
        self.recovers.store(recovers, Ordering::Relaxed);
    }

    /// Whether a write has found no room, and the store is to be opened again for that. Until then
    /// nothing is written. What was asked for stays in memory, so that pages can still be read.
    pub(crate) fn waits_for_room(&self) -> bool {
        let trouble = &self.notes.trouble;
        trouble.is_for_room() && self.recovers.load(Ordering::Relaxed)
    }

    /// Counts the flashes that these places were those of. A thread that carries out what it has
    /// asked for says in which epoch that was.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Keeps other threads from writing, until the guard is dropped.
    pub(crate) fn stop_writing(&self) -> MutexGuard<'_, ()> {
        self.carrying.lock().expect("no thread panics here")
    }

    /// Forgets all that is not on the medium. Another flash begins with so many blocks, of which it
    /// knows nothing yet. The caller has stopped the writing.
    pub(super) fn begin_anew(&self, blocks: u32) {
        let mut state = self.state();
        *state = State {
            generations: vec![UNKNOWN; blocks as usize],
            ..State::default()
        };
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Whether a failed read costs nothing but what was to be read. It is noted then.
    pub(super) fn forgives(&self, what: &'static str, error: &io::Error) -> bool {
        let is_forgiven = self.forgives.load(Ordering::Relaxed) && is_bad_sector(error);
        if is_forgiven {
            self.notes.misreads.note(what, error);
        }
        is_forgiven
    }

    /// Whether a block was erased, however long ago; nothing was ever written to others.
    pub(crate) fn was_erased(&self, block: Pbn) -> bool {
        !matches!(self.generation(block), NEVER | UNKNOWN)
    }

    /// Whether anything may ever have been written to a block, whose mark is at a page of the
    /// medium.
    pub(crate) fn may_be_written(&self, block: Pbn, mark: u64) -> bool {
        let state = self.state();
        match state.generations[block.index()] {
            NEVER => false,
            UNKNOWN if state.kept(mark).is_none() => {
                drop(state);
                mark_at(self.medium(), mark).map_or(true, |bytes| bytes.iter().any(|&it| it != 0))
            }
            _ => true,
        }
    }

    /// Gives the pages of a block back to the medium, `pages` of them from the page `first` of the
    /// medium. The erase of the block has to be durable: until then a cut leaves its old pages.
    /// Returns whether the medium took them.
    ///
    /// # Errors
    /// The medium has failed before.
    ///
    /// # Panics
    /// The mark of the block is not on the medium yet.
    pub(crate) fn discard(&self, block: Pbn, first: u64, pages: u32) -> Result<bool, FlashError> {
        if self.notes.trouble.is_noted() {
            return Err(FlashError::PowerLost);
        }
        let mut state = self.state();
        assert!(
            state.kept(first - 1).is_none(),
            "block {block} is given back before its erase is durable"
        );
        if state.discarded.contains(&block) {
            return Ok(false);
        }
        let (offset, bytes) = (first * PAGE, u64::from(pages) * PAGE);
        // Nothing hangs on it: where the medium refuses, the block keeps its room.
        let is_done = self.medium.discard(offset, bytes).unwrap_or(false);
        if is_done {
            state.discarded.insert(block);
            state.unsynced = true;
        }
        Ok(is_done)
    }

    /// Where a page of a block is.
    pub(crate) fn place(&self, at: Ppn, block: Pbn, number: u64) -> Place {
        let state = self.state();
        Place {
            at,
            number,
            generation: state.generations[block.index()],
            kept: state.kept(number).map(Arc::clone),
        }
    }

    /// Reads a page from a place that was looked up, however long ago.
    ///
    /// # Errors
    /// The medium fails, now or before. What failed is noted.
    pub(crate) fn read(&self, place: &Place) -> Result<Found, FlashError> {
        let mut page = [0; MEDIUM_PAGE_BYTES];
        let found = self.read_into(place, &mut page)?;
        Ok(match found {
            Some(bytes) => Found::Whole(page[..bytes].into()),
            None => Found::Other,
        })
    }

    /// As [`Places::read`], into `page`. Returns how many bytes of it are those of the page;
    /// nothing if something else was found.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn read_into(
        &self,
        place: &Place,
        page: &mut [u8; MEDIUM_PAGE_BYTES],
    ) -> Result<Option<usize>, FlashError> {
        self.is_well()?;
        match &place.kept {
            Some(kept) => page.copy_from_slice(&kept[..]),
            None => {
                let offset = place.number * MEDIUM_PAGE_BYTES as u64;
                match self.medium.read_at(offset, page) {
                    Err(error) if self.forgives(READING, &error) => return Ok(None),
                    got => got.map_err(|error| self.fails(READING, error))?,
                }
            }
        }
        let (data, end) = page.split_at(DATA_BYTES);
        Ok(
            match judge(data, end, place.at, place.generation, self.identity) {
                Judged::Whole(bytes) => Some(bytes),
                Judged::Blank | Judged::Wrong => None,
            },
        )
    }

    pub(super) fn generation(&self, block: Pbn) -> u64 {
        self.state().generations[block.index()]
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut MediumStats)) {
        change(&mut self.notes.stats());
    }

    /// Notes what failed: from then on nothing is done any more.
    pub(super) fn fails(&self, what: &'static str, error: io::Error) -> FlashError {
        self.notes.trouble.note(what, error)
    }

    /// What failed, if anything did from which the store does not recover.
    pub(crate) fn why_broken(&self) -> Option<String> {
        let trouble = &self.notes.trouble;
        trouble.why().filter(|_| !self.waits_for_room())
    }

    pub(super) fn is_well(&self) -> Result<(), FlashError> {
        match self.notes.trouble.is_noted() && !self.waits_for_room() {
            true => Err(FlashError::PowerLost),
            false => Ok(()),
        }
    }

    /// Carries steps out that were asked for just now, unless they are left to another thread. A
    /// step that finds no room is no error here, if the store recovers from that: a translation
    /// layer that ends what it does has its tables in order, and can be asked what it holds.
    pub(super) fn asked(&self) -> Result<(), FlashError> {
        let is_crowded = self.state().is_crowded();
        if !is_crowded && (self.is_apart.load(Ordering::Relaxed) || self.waits_for_room()) {
            return Ok(());
        }
        self.ignore_no_room(self.carry_out())
    }

    /// Makes no error of a write that has found no room, if the store recovers from that and has
    /// memory for what waits.
    pub(super) fn ignore_no_room(&self, done: Result<(), FlashError>) -> Result<(), FlashError> {
        match self.waits_for_room() && !self.state().is_crowded() {
            true => Ok(()),
            false => done,
        }
    }

    /// Does to the medium what was asked for, in that order, and returns when all of it is done.
    ///
    /// # Errors
    /// The medium fails, now or before. What failed is noted.
    pub(crate) fn carry_out(&self) -> Result<(), FlashError> {
        self.carry_out_of(self.epoch())
    }

    /// As [`Places::carry_out`], for what was asked for in `epoch`.
    ///
    /// # Errors
    /// As there, or what was asked for was thrown away since, because the medium had no room.
    pub(crate) fn carry_out_of(&self, epoch: u64) -> Result<(), FlashError> {
        let _alone = self.stop_writing();
        loop {
            if self.notes.trouble.is_noted() || self.epoch() != epoch {
                return Err(FlashError::PowerLost);
            }
            // A guard in the condition would last for the whole body.
            let step = self.state().steps.pop_front();
            match step {
                Some(Step::Write(first, run)) => self.write(first, run)?,
                Some(Step::Sync) => self.sync()?,
                None => return Ok(()),
            }
        }
    }

    fn write(&self, first: u64, run: Vec<Page>) -> Result<(), FlashError> {
        self.has_written();
        let pages: Vec<&[u8]> = run.iter().map(|page| &page[..]).collect();
        let offset = first * MEDIUM_PAGE_BYTES as u64;
        let written = self.medium.write_joined(offset, &pages);
        written.map_err(|error| self.fails("writing pages", error))?;
        self.count(|stats| {
            stats.writes += 1;
            stats.bytes += (run.len() * MEDIUM_PAGE_BYTES) as u64;
        });
        self.state().has_written(first, run);
        Ok(())
    }

    /// Something was written, or is about to be, that a close has to make durable.
    pub(super) fn has_written(&self) {
        self.state().unsynced = true;
    }

    pub(super) fn is_unsynced(&self) -> bool {
        self.state().unsynced
    }

    pub(super) fn sync(&self) -> Result<(), FlashError> {
        let synced = self.medium.sync();
        synced.map_err(|error| self.fails("waiting until it is durable", error))?;
        self.count(|stats| stats.syncs += 1);
        self.state().unsynced = false;
        Ok(())
    }
}
