//! State of a flash that is shared with reading and syncing threads: the medium, the generations of
//! the blocks, pages that are not on the medium yet, and pending writes and syncs.
//!
//! A flash enqueues writes and syncs as [`Step`]s. [`Places::carry_out`] performs them in order. A
//! flash that works *apart* leaves that to another thread and goes on as if they were done: the
//! medium gets the same sequence of calls, only later. So a thread carries out all steps before it
//! acknowledges anything. Only one thread at a time carries out steps; others wait for it.

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

/// The contents of a page of the medium.
pub(crate) type Page = Arc<[u8; MEDIUM_PAGE_BYTES]>;

/// Bytes of a page, where offsets are counted.
const PAGE: u64 = MEDIUM_PAGE_BYTES as u64;

/// Maximum number of pages that may wait for another thread to write them.
const ASKED_MAX: usize = (16 << 20) / MEDIUM_PAGE_BYTES;

/// Number of written pages whose memory is kept for reuse.
const SPENT_MAX: usize = (128 << 10) / MEDIUM_PAGE_BYTES;

/// Names the operation in errors about unreadable pages.
pub(super) const READING: &str = "reading a page";

/// A pending call to the medium.
enum Step {
    /// Writes consecutive pages, beginning with this page of the medium.
    Write(u64, Vec<Page>),
    /// Makes all earlier writes durable.
    Sync,
}

/// State that changes with each operation.
#[derive(Default)]
pub(super) struct State {
    /// Generation of each block, see [`super::mark`].
    pub(super) generations: Vec<u64>,
    /// Blocks whose pages were discarded since their last erase.
    pub(crate) discarded: BTreeSet<Pbn>,
    /// Programmed pages that are in no step yet, by page of the medium.
    pub(super) waiting: BTreeMap<u64, Page>,
    steps: VecDeque<Step>,
    /// Pages in pending steps: the newest one for each page of the medium.
    asked: BTreeMap<u64, Page>,
    spent: Vec<Page>,
    /// Whether anything was written since the last sync.
    unsynced: bool,
}

impl State {
    /// The newest contents of a page of the medium, if they are not yet written there.
    pub(super) fn kept(&self, place: u64) -> Option<&Page> {
        self.waiting.get(&place).or_else(|| self.asked.get(&place))
    }

    /// Memory for a page, without other references. Its contents are those of an earlier page.
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

    /// Enqueues writes of waiting pages. `places` ascend; adjacent pages become one step.
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

    /// Enqueues the write of a page that is not among the waiting ones.
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

    /// Removes written pages from the pending ones.
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

/// The shared state of a flash.
pub(crate) struct Places {
    medium: Arc<dyn Medium>,
    /// Read-ahead of the medium, if that is useful.
    expecting: Option<Expecting>,
    pub(super) notes: Notes,
    /// The identity of the store.
    identity: Identity,
    state: Mutex<State>,
    is_apart: AtomicBool,
    /// Whether an unreadable sector costs only its page, and does not break the store.
    forgives: AtomicBool,
    /// Whether growth only lengthens the medium and allocates no room for new blocks.
    grows_sparse: AtomicBool,
    /// Whether the store reopens itself after a write that found no room, see
    /// [`Places::begin_anew`].
    recovers: AtomicBool,
    /// Number of flashes that have used this state, one after another.
    epoch: AtomicU64,
    /// Held by the thread that carries out steps, to keep them in order.
    carrying: Mutex<()>,
}

/// Where the contents of a page are.
pub(crate) struct Place {
    /// The flash page.
    pub(crate) at: Ppn,
    /// The page of the medium.
    pub(crate) number: u64,
    /// The generation of the block.
    pub(crate) generation: u64,
    /// The contents, if they are not on the medium yet.
    pub(crate) kept: Option<Page>,
}

/// The result of reading a place.
pub(crate) enum Found {
    /// The valid contents of the page.
    Whole(Arc<[u8]>),
    /// The page is damaged, or was replaced or erased since.
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

    /// Announces reads of `pages` pages of the medium from `first` on. Does not block.
    pub(crate) fn expect(&self, first: u64, pages: u32) {
        if let Some(expecting) = &self.expecting {
            let offset = first * MEDIUM_PAGE_BYTES as u64;
            expecting(offset, pages as usize * MEDIUM_PAGE_BYTES);
        }
    }

    /// Whether the medium makes use of announced reads.
    pub(crate) fn expects(&self) -> bool {
        self.expecting.is_some()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics here")
    }

    /// Sets whether steps wait for the next call of [`Places::carry_out`].
    pub(crate) fn work_apart(&self, is_apart: bool) {
        self.is_apart.store(is_apart, Ordering::Relaxed);
    }

    /// Whether steps wait for the next call of [`Places::carry_out`].
    pub(crate) fn is_apart(&self) -> bool {
        self.is_apart.load(Ordering::Relaxed)
    }

    /// Sets whether growth leaves new blocks as holes, on a medium that supports it.
    pub(crate) fn grow_sparse(&self, is_sparse: bool) {
        self.grows_sparse.store(is_sparse, Ordering::Relaxed);
    }

    pub(super) fn grows_sparse(&self) -> bool {
        self.grows_sparse.load(Ordering::Relaxed)
    }

    /// Sets whether an unreadable sector costs only its page instead of breaking the store. Must be
    /// unset during an opening, see [`crate::medium::gaps`].
    pub(crate) fn forgive_misreads(&self, forgives: bool) {
        self.forgives.store(forgives, Ordering::Relaxed);
    }

    /// Sets whether the store reopens itself after a write that found no room.
    pub(crate) fn recover_from_no_room(&self, recovers: bool) {
        self.recovers.store(recovers, Ordering::Relaxed);
    }

    /// Whether a write found no room and the store has to be reopened. Until then nothing is
    /// written. Pending pages stay in memory, so they can still be read.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.notes.trouble.is_for_room() && self.recovers()
    }

    fn recovers(&self) -> bool {
        self.recovers.load(Ordering::Relaxed)
    }

    /// Counts the flashes that have used this state. A thread that carries out its steps names the
    /// epoch in which it enqueued them.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Keeps other threads from writing until the guard is dropped.
    pub(crate) fn stop_other_writers(&self) -> MutexGuard<'_, ()> {
        self.carrying.lock().expect("no thread panics here")
    }

    /// Drops all state that is not on the medium. The next flash begins with `blocks` blocks of
    /// unknown generation. The caller has stopped all writing.
    pub(super) fn begin_anew(&self, blocks: u32) {
        let mut state = self.state();
        *state = State {
            generations: vec![UNKNOWN; blocks as usize],
            ..State::default()
        };
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Whether a failed read costs only the data that was to be read. Notes the failure if so.
    pub(super) fn forgives(&self, what: &'static str, error: &io::Error) -> bool {
        let is_forgiven = self.forgives.load(Ordering::Relaxed) && is_bad_sector(error);
        if is_forgiven {
            self.notes.misreads.note(what, error);
        }
        is_forgiven
    }

    /// Whether a block was ever erased. Nothing was ever written to other blocks.
    pub(crate) fn was_erased(&self, block: Pbn) -> bool {
        !matches!(self.generation(block), NEVER | UNKNOWN)
    }

    /// Whether a block may have been written to. `mark` is the page of its mark on the medium.
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

    /// Discards `pages` pages of a block, from page `first` of the medium on. The erase of the
    /// block must be durable: until then a cut leaves its old pages in use. Returns whether the
    /// medium discarded them.
    ///
    /// # Errors
    /// The medium has failed before.
    ///
    /// # Panics
    /// The mark of the block is not written yet.
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
        // Optional: if the medium refuses, the block keeps its space.
        let is_done = self.medium.discard(offset, bytes).unwrap_or(false);
        if is_done {
            state.discarded.insert(block);
            state.unsynced = true;
        }
        Ok(is_done)
    }

    /// Looks up the place of a page.
    pub(crate) fn place(&self, at: Ppn, block: Pbn, number: u64) -> Place {
        let state = self.state();
        Place {
            at,
            number,
            generation: state.generations[block.index()],
            kept: state.kept(number).map(Arc::clone),
        }
    }

    /// Reads a page from a place that was looked up earlier.
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

    /// Like [`Places::read`], but into `page`. Returns the length of the page in bytes, or `None`
    /// if something else was found.
    ///
    /// # Errors
    /// As [`Places::read`].
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

    pub(crate) fn count(&self, change: impl FnOnce(&mut MediumStats)) {
        change(&mut self.notes.stats());
    }

    /// Notes a failure. All later operations fail.
    pub(super) fn fails(&self, what: &'static str, error: io::Error) -> FlashError {
        self.notes.trouble.note(what, error)
    }

    /// The failure, unless the store recovers from it.
    pub(crate) fn why_broken(&self) -> Option<String> {
        self.notes.trouble.why_final(self.recovers())
    }

    pub(super) fn is_well(&self) -> Result<(), FlashError> {
        if self.notes.trouble.is_final(self.recovers()) {
            Err(FlashError::PowerLost)
        } else {
            Ok(())
        }
    }

    /// Carries out the steps that were just enqueued, unless another thread does so. Lack of room
    /// is no error here if the store recovers from it: the translation layer then finishes its
    /// operation with consistent tables, which can still be read.
    pub(super) fn asked(&self) -> Result<(), FlashError> {
        let is_crowded = self.state().is_crowded();
        if !is_crowded && (self.is_apart() || self.waits_for_room()) {
            return Ok(());
        }
        self.ignore_no_room(self.carry_out())
    }

    /// Turns lack of room into success if the store recovers from it, and memory is left for the
    /// pending pages.
    pub(super) fn ignore_no_room(&self, done: Result<(), FlashError>) -> Result<(), FlashError> {
        if self.waits_for_room() && !self.state().is_crowded() {
            Ok(())
        } else {
            done
        }
    }

    /// Performs all enqueued steps in order, and returns when they are done.
    ///
    /// # Errors
    /// The medium fails, or has failed before. The failure is noted.
    pub(crate) fn carry_out(&self) -> Result<(), FlashError> {
        self.carry_out_of(self.epoch())
    }

    /// Like [`Places::carry_out`], for steps that were enqueued in `epoch`.
    ///
    /// # Errors
    /// As [`Places::carry_out`], or the steps were dropped since because the medium had no room.
    pub(crate) fn carry_out_of(&self, epoch: u64) -> Result<(), FlashError> {
        let _alone = self.stop_other_writers();
        loop {
            if self.notes.trouble.is_noted() || self.epoch() != epoch {
                // The error is not shown: the store knows the reason.
                return Err(FlashError::PowerLost);
            }
            // A guard in the loop condition would be held during the loop body.
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

    /// Notes that something was or will be written, which a close has to make durable.
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
