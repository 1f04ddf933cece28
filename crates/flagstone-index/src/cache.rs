//! A page cache of an index over a store, with counters of reads and writes.
//!
//! Nodes used one at a time go through the frames ([`Cache::read`], [`Cache::change`],
//! [`Cache::fill`]). So do nodes known to be needed next, which are read in parallel
//! ([`Cache::read_together`]). Other requests for many pages bypass the frames
//! ([`Cache::read_past`], [`Cache::write_past`]): they take no frame, but use and update the copies
//! in frames.

use super::{BackingError, BackingStore, IndexStats};
use flagstone::settings::Settings;
use flagstone::units::{Lpn, Nanos};
use flagstone_host::buffer::{PolicyKind, Pool};

/// Frames over a store. All errors come from the store, which then cannot continue.
pub(crate) struct Cache {
    store: Box<dyn BackingStore>,
    pool: Pool<Box<[u8]>>,
    policy: (PolicyKind, Settings),
    page_bytes: usize,
    /// Buffers of evicted frames, for reuse.
    spare: Vec<Box<[u8]>>,
    stats: IndexStats,
}

impl Cache {
    /// An empty cache of `frames` frames, at least two.
    pub(crate) fn new(
        store: Box<dyn BackingStore>,
        frames: usize,
        policy: (PolicyKind, Settings),
    ) -> Cache {
        Cache {
            page_bytes: store.page_bytes(),
            pool: Pool::new(frames.max(2), policy.0, &policy.1),
            store,
            policy,
            spare: Vec::new(),
            stats: IndexStats::default(),
        }
    }

    /// Bytes of a page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The number of frames.
    pub(crate) fn frames(&self) -> usize {
        self.pool.capacity()
    }

    /// Whether the page is in a frame.
    pub(crate) fn holds(&self, at: Lpn) -> bool {
        self.pool.contains(at)
    }

    /// The page that would be evicted now, if all frames are taken.
    pub(crate) fn next_victim(&mut self) -> Option<Lpn> {
        if !self.pool.is_full() {
            return None;
        }
        self.pool.victim(&mut |_, _| true)
    }

    /// A dirty page in a frame, for a change just before it is written out. Not counted as an
    /// access.
    pub(crate) fn dirty_page(&mut self, at: Lpn) -> Option<&mut [u8]> {
        if !self.pool.is_dirty(at) {
            return None;
        }
        self.pool.peek_mut(at).map(|page| &mut **page)
    }

    /// Writes a page out if it is dirty. It keeps its frame.
    pub(crate) fn clean(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError> {
        if !self.pool.is_dirty(at) {
            return Ok(now);
        }
        let page = self.pool.peek(at).expect("a dirty page is in a frame");
        let done = self.store.write(now, &[(at, page)])?;
        self.stats.writes += 1;
        self.pool.set_dirty(at, false);
        Ok(done)
    }

    /// Frees a buffer for a page that is not cached. Its contents are unspecified.
    fn make_room(&mut self, mut now: Nanos) -> Result<(Box<[u8]>, Nanos), BackingError> {
        while self.pool.is_full() {
            let victim = self.pool.victim(&mut |_, _| true);
            let victim = victim.expect("an index pins fewer pages than there are frames");
            now = self.clean(now, victim)?;
            self.spare.extend(self.pool.remove(victim));
        }
        let page = self.spare.pop();
        Ok((page.unwrap_or_else(|| vec![0; self.page_bytes].into()), now))
    }

    /// Brings a page into a frame and counts one access; `write` makes the page dirty. `first` runs
    /// before a frame is taken, if the page is not in one.
    #[inline]
    fn fetch(
        &mut self,
        now: Nanos,
        at: Lpn,
        write: bool,
        first: impl FnOnce(&mut Cache),
    ) -> Result<Nanos, BackingError> {
        if self.pool.get(at, write).is_some() {
            return Ok(now);
        }
        first(self);
        self.load(now, at, write)
    }

    /// Reads a page that is not in a frame.
    fn load(&mut self, now: Nanos, at: Lpn, write: bool) -> Result<Nanos, BackingError> {
        let (mut page, now) = self.make_room(now)?;
        let done = self.store.read(now, at, &mut page)?;
        self.stats.reads += 1;
        self.pool.insert(at, page, write);
        Ok(done)
    }

    /// Reads a page.
    #[inline]
    pub(crate) fn read(&mut self, now: Nanos, at: Lpn) -> Result<(&[u8], Nanos), BackingError> {
        self.read_after(now, at, |_| ())
    }

    /// Reads a page. If it is not in a frame, calls `first` before a frame is taken for it.
    #[inline]
    pub(crate) fn read_after(
        &mut self,
        now: Nanos,
        at: Lpn,
        first: impl FnOnce(&mut Cache),
    ) -> Result<(&[u8], Nanos), BackingError> {
        let done = self.fetch(now, at, false, first)?;
        Ok((self.pool.peek(at).expect("it was fetched"), done))
    }

    /// A page to modify, which is dirty from now on.
    #[inline]
    pub(crate) fn change(
        &mut self,
        now: Nanos,
        at: Lpn,
    ) -> Result<(&mut [u8], Nanos), BackingError> {
        self.change_after(now, at, |_| ())
    }

    /// A page to modify, as in [`Cache::change`]; `first` as in [`Cache::read_after`].
    #[inline]
    pub(crate) fn change_after(
        &mut self,
        now: Nanos,
        at: Lpn,
        first: impl FnOnce(&mut Cache),
    ) -> Result<(&mut [u8], Nanos), BackingError> {
        let done = self.fetch(now, at, true, first)?;
        Ok((self.pool.peek_mut(at).expect("it was fetched"), done))
    }

    /// A page to overwrite: zeros, dirty, and not read from the store.
    pub(crate) fn fill(&mut self, now: Nanos, at: Lpn) -> Result<(&mut [u8], Nanos), BackingError> {
        let mut done = now;
        if self.pool.get(at, true).is_none() {
            let (page, when) = self.make_room(now)?;
            done = when;
            self.pool.insert(at, page, true);
        }
        let page = self.pool.peek_mut(at).expect("it has a frame");
        page.fill(0);
        Ok((page, done))
    }

    /// Passes several pages to `look`, in order, and counts one access each. Missing ones are read
    /// in parallel, and are in frames afterwards, as far as there are enough.
    pub(crate) fn read_together(
        &mut self,
        now: Nanos,
        pages: &[Lpn],
        mut look: impl FnMut(Lpn, &[u8]),
    ) -> Result<Nanos, BackingError> {
        let missing: Vec<Lpn> = pages
            .iter()
            .copied()
            .filter(|&at| self.pool.get(at, false).is_none())
            .collect();
        let mut bytes = vec![0; missing.len() * self.page_bytes];
        let mut done = now;
        if !missing.is_empty() {
            done = self.store.read_many(now, &missing, &mut bytes)?;
            self.count_reads(missing.len());
        }
        let mut read = bytes.chunks(self.page_bytes);
        for &at in pages {
            match self.pool.peek(at) {
                Some(page) => look(at, page),
                None => look(at, read.next().expect("it was missing, and read")),
            }
        }
        for (&at, bytes) in missing.iter().zip(bytes.chunks(self.page_bytes)) {
            // A damaged node can name a page twice.
            if !self.pool.contains(at) {
                let (mut page, when) = self.make_room(done)?;
                done = when;
                page.copy_from_slice(bytes);
                self.pool.insert(at, page, false);
            }
        }
        Ok(done)
    }

    /// Reads pages in parallel and concatenates them in `into`. Copies in frames are used and not
    /// counted as accesses.
    pub(crate) fn read_past(
        &mut self,
        now: Nanos,
        pages: &[Lpn],
        into: &mut [u8],
    ) -> Result<Nanos, BackingError> {
        let size = self.page_bytes;
        if pages.iter().all(|&at| !self.pool.contains(at)) {
            self.count_reads(pages.len());
            return self
                .store
                .read_many(now, pages, &mut into[..pages.len() * size]);
        }
        let missing: Vec<usize> = (0..pages.len())
            .filter(|&i| !self.pool.contains(pages[i]))
            .collect();
        let wanted: Vec<Lpn> = missing.iter().map(|&i| pages[i]).collect();
        let mut bytes = vec![0; wanted.len() * size];
        let done = self.store.read_many(now, &wanted, &mut bytes)?;
        self.count_reads(wanted.len());
        for (&i, page) in missing.iter().zip(bytes.chunks(size)) {
            into[i * size..][..size].copy_from_slice(page);
        }
        for (i, &at) in pages.iter().enumerate() {
            if let Some(page) = self.pool.peek(at) {
                into[i * size..][..size].copy_from_slice(page);
            }
        }
        Ok(done)
    }

    fn count_reads(&mut self, pages: usize) {
        self.stats.reads += pages as u64;
        self.stats.coarse_reads += u64::from(pages > 1);
    }

    /// Writes whole pages in parallel. Frames with these pages get the new contents and are clean.
    pub(crate) fn write_past(
        &mut self,
        now: Nanos,
        pages: &[(Lpn, &[u8])],
    ) -> Result<Nanos, BackingError> {
        if pages.is_empty() {
            return Ok(now);
        }
        let done = self.store.write(now, pages)?;
        self.count_writes(pages.len());
        for &(at, data) in pages {
            if let Some(frame) = self.pool.peek_mut(at) {
                frame[..data.len()].copy_from_slice(data);
                frame[data.len()..].fill(0);
                self.pool.set_dirty(at, false);
            }
        }
        Ok(done)
    }

    fn count_writes(&mut self, pages: usize) {
        self.stats.writes += pages as u64;
        if pages > 1 {
            self.stats.coarse_writes += 1;
            self.stats.coarse_pages += pages as u64;
        }
    }

    /// Frees a page that is no longer needed: frees its frame and trims it in the store.
    pub(crate) fn forget(&mut self, now: Nanos, at: Lpn) -> Result<Nanos, BackingError> {
        self.spare.extend(self.pool.remove(at));
        self.store.trim(now, at)
    }

    /// Writes all dirty pages, in parallel.
    pub(crate) fn write_all(&mut self, now: Nanos) -> Result<Nanos, BackingError> {
        let mut dirty: Vec<(Lpn, &[u8])> =
            self.pool.dirty().map(|(at, page)| (at, &**page)).collect();
        if dirty.is_empty() {
            return Ok(now);
        }
        dirty.sort_unstable_by_key(|&(at, _)| at);
        let done = self.store.write(now, &dirty)?;
        let written: Vec<Lpn> = dirty.iter().map(|&(at, _)| at).collect();
        self.count_writes(written.len());
        for at in written {
            self.pool.set_dirty(at, false);
        }
        Ok(done)
    }

    /// Changes the number of frames, at least two. Remaining pages are passed to a new policy, as
    /// if each had just been read, or written if it is dirty.
    pub(crate) fn resize(&mut self, mut now: Nanos, frames: usize) -> Result<Nanos, BackingError> {
        let frames = frames.max(2);
        while self.pool.len() > frames {
            let victim = self.pool.victim(&mut |_, _| true);
            let victim = victim.expect("an index pins fewer pages than there are frames");
            now = self.clean(now, victim)?;
            self.spare.extend(self.pool.remove(victim));
        }
        let stats = *self.pool.stats();
        let mut new = Pool::new(frames, self.policy.0, &self.policy.1);
        let held: Vec<(Lpn, bool)> = self
            .pool
            .iter()
            .map(|(at, _)| (at, self.pool.is_dirty(at)))
            .collect();
        for (at, dirty) in held {
            let page = self.pool.remove(at).expect("it was there");
            new.insert(at, page, dirty);
        }
        new.restore_stats(stats);
        self.pool = new;
        self.spare.clear();
        Ok(now)
    }

    /// Reads a page for a check, without counting.
    pub(crate) fn inspect(&mut self, at: Lpn) -> Result<Vec<u8>, BackingError> {
        if let Some(page) = self.pool.peek(at) {
            return Ok(page.to_vec());
        }
        let mut page = vec![0; self.page_bytes];
        self.store.read(Nanos::ZERO, at, &mut page)?;
        Ok(page)
    }

    /// Counts key comparisons of the index.
    #[inline]
    pub(crate) fn compared(&mut self, keys: u64) {
        self.stats.comparisons += keys;
    }

    /// Pages read from the store and written to it.
    #[inline]
    pub(crate) fn transfers(&self) -> (u64, u64) {
        (self.stats.reads, self.stats.writes)
    }

    /// The counters.
    pub(crate) fn stats(&self) -> IndexStats {
        IndexStats {
            pool: *self.pool.stats(),
            ..self.stats
        }
    }

    /// Sets the counters to zero.
    pub(crate) fn reset_stats(&mut self) {
        self.stats = IndexStats::default();
        self.pool.reset_stats();
    }

    /// Bytes of the frames.
    pub(crate) fn memory(&self) -> u64 {
        (self.pool.capacity() * self.page_bytes) as u64
    }

    /// The store below.
    pub(crate) fn store(&mut self) -> &mut dyn BackingStore {
        self.store.as_mut()
    }

    /// Returns the store. Dirty pages are lost.
    pub(crate) fn into_store(self) -> Box<dyn BackingStore> {
        self.store
    }
}
