//! The frames of the pool: page lookup, dirty and pinned pages, and counters of hits and evictions.

use super::FrameId;
use super::Policy;
use super::PolicyKind;
use flagstone::settings::Settings;
use flagstone::units::Lpn;
use rustc_hash::FxHashMap;

/// Pages evicted by choice of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Evictions {
    /// Pages that were clean when chosen.
    pub clean: u64,
    /// Pages that had to be written out.
    pub dirty: u64,
}

impl Evictions {
    /// Clean and dirty evictions.
    pub fn all(&self) -> u64 {
        self.clean + self.dirty
    }

    fn count(&mut self, dirty: bool) {
        *if dirty {
            &mut self.dirty
        } else {
            &mut self.clean
        } += 1;
    }
}

/// The counters of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// Reads that found their page.
    pub read_hits: u64,
    /// Reads that missed.
    pub read_misses: u64,
    /// Writes that found their page.
    pub write_hits: u64,
    /// Writes that missed.
    pub write_misses: u64,
    /// Evictions that made room for a page to be read.
    pub evicted_for_reads: Evictions,
    /// Evictions that made room for a page to be written.
    pub evicted_for_writes: Evictions,
    /// Evictions whose frame was not reused immediately: several before one insertion, or without
    /// an insertion.
    pub evicted_ahead: Evictions,
    /// Pages that the caller removed without choosing them as victims.
    pub dropped: u64,
    /// Frames that a choice passed over because they were pinned.
    pub passed_pinned: u64,
    /// Frames that a choice passed over because the caller refused them.
    pub passed_refused: u64,
    /// Choices that found no frame.
    pub exhausted: u64,
}

impl PoolStats {
    /// All accesses.
    pub fn accesses(&self) -> u64 {
        self.hits() + self.read_misses + self.write_misses
    }

    /// Accesses that found their page.
    pub fn hits(&self) -> u64 {
        self.read_hits + self.write_hits
    }

    /// All evictions.
    pub fn evicted(&self) -> Evictions {
        let all = [
            self.evicted_for_reads,
            self.evicted_for_writes,
            self.evicted_ahead,
        ];
        Evictions {
            clean: all.iter().map(|some| some.clean).sum(),
            dirty: all.iter().map(|some| some.dirty).sum(),
        }
    }
}

#[derive(Debug)]
struct Frame<T> {
    page: Lpn,
    /// The caller's value; `None` in a free frame.
    value: Option<T>,
    dirty: bool,
    pins: u32,
}

/// A buffer pool: frames keyed by logical page, each with the owner's value for its page.
///
/// An access is [`Pool::get`]. If the page is not there, the owner makes room ([`Pool::victim`],
/// writes the page out if it is dirty, [`Pool::remove`]) as long as the pool is full, reads the
/// page and gives it to [`Pool::insert`].
///
/// An access for writing makes the frame dirty; it is clean again when the owner says so with
/// [`Pool::set_dirty`], after writing it out.
///
/// Some methods panic for a page that is not in the pool; their documentation says so.
pub struct Pool<T> {
    capacity: usize,
    frames: Vec<Frame<T>>,
    free: Vec<FrameId>,
    at: FxHashMap<Lpn, FrameId>,
    policy: Box<dyn Policy>,
    /// The last chosen victim, and whether it was dirty then.
    chosen: Option<(FrameId, bool)>,
    /// The last chosen page, if it was written out since and the policy was not told. The policy
    /// treats that write as part of the eviction, unless the page stays after all.
    written: Option<FrameId>,
    /// Whether the last evicted page was dirty, if its frame is still free.
    room: Option<bool>,
    stats: PoolStats,
}

impl<T> Pool<T> {
    /// An empty pool.
    ///
    /// # Panics
    /// There are no frames, or [`PolicyKind::start`] refuses the settings.
    pub fn new(frames: usize, kind: PolicyKind, settings: &Settings) -> Pool<T> {
        let policy = kind.start(frames, settings);
        Pool::with_policy(frames, policy.expect("settings that were checked"))
    }

    pub(super) fn with_policy(frames: usize, policy: Box<dyn Policy>) -> Pool<T> {
        assert!(frames > 0, "a pool needs a frame");
        Pool {
            capacity: frames,
            frames: Vec::new(),
            free: Vec::new(),
            at: FxHashMap::default(),
            policy,
            chosen: None,
            written: None,
            room: None,
            stats: PoolStats::default(),
        }
    }

    /// Accesses a page. A hit is reported to the policy, and makes the frame dirty if `write` is
    /// set. A miss is only counted.
    pub fn get(&mut self, at: Lpn, write: bool) -> Option<&mut T> {
        self.tell_written();
        let stats = &mut self.stats;
        let Some(&frame) = self.at.get(&at) else {
            *if write {
                &mut stats.write_misses
            } else {
                &mut stats.read_misses
            } += 1;
            return None;
        };
        *if write {
            &mut stats.write_hits
        } else {
            &mut stats.read_hits
        } += 1;
        self.policy.touched(frame, write);
        self.chosen.take_if(|(chosen, _)| *chosen == frame);
        let held = &mut self.frames[frame.index()];
        held.dirty |= write;
        held.value.as_mut()
    }

    /// The page's value, without an access: not counted, and not reported to the policy.
    pub fn peek(&self, at: Lpn) -> Option<&T> {
        self.frames[self.at.get(&at)?.index()].value.as_ref()
    }

    /// Like [`Pool::peek`], but mutable. Does not make the frame dirty.
    pub fn peek_mut(&mut self, at: Lpn) -> Option<&mut T> {
        self.frames[self.at.get(&at)?.index()].value.as_mut()
    }

    /// Whether the page is in the pool.
    pub fn contains(&self, at: Lpn) -> bool {
        self.at.contains_key(&at)
    }

    /// The number of pages.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// Whether the pool has no pages.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// The number of frames.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether a page must be removed before another is inserted.
    pub fn is_full(&self) -> bool {
        self.at.len() == self.capacity
    }

    /// Chooses the page to evict; `None` if there is none. Never chooses a pinned page, or one for
    /// which `may` is false. (Without steal, `may` is false for dirty pages of live transactions.)
    ///
    /// The page stays until it is removed. [`Pool::remove`] of the last chosen page, if not
    /// accessed since, counts as an eviction: clean or dirty, as the page was when chosen.
    pub fn victim(&mut self, may: &mut dyn FnMut(Lpn, &T) -> bool) -> Option<Lpn> {
        self.tell_written();
        let (frames, stats) = (&self.frames, &mut self.stats);
        let chosen = self.policy.victim(&mut |frame| {
            let held = &frames[frame.index()];
            let value = held.value.as_ref().expect("the policy knows what is free");
            if held.pins > 0 {
                stats.passed_pinned += 1;
                return false;
            }
            let allowed = may(held.page, value);
            stats.passed_refused += u64::from(!allowed);
            allowed
        });
        let Some(frame) = chosen else {
            self.chosen = None;
            self.stats.exhausted += 1;
            return None;
        };
        let held = &self.frames[frame.index()];
        assert_eq!(held.pins, 0, "a policy chose the pinned page {}", held.page);
        self.chosen = Some((frame, held.dirty));
        Some(held.page)
    }

    /// Inserts a page, which is dirty if `write` is set.
    ///
    /// # Panics
    /// The pool is full (evict first), or has the page.
    pub fn insert(&mut self, at: Lpn, value: T, write: bool) {
        assert!(!self.is_full(), "the pool is full: evict before page {at}");
        let held = Frame {
            page: at,
            value: Some(value),
            dirty: write,
            pins: 0,
        };
        let frame = match self.free.pop() {
            Some(frame) => {
                self.frames[frame.index()] = held;
                frame
            }
            None => {
                self.frames.push(held);
                FrameId(self.frames.len() as u32 - 1)
            }
        };
        self.tell_written();
        let before = self.at.insert(at, frame);
        assert!(before.is_none(), "page {at} is in the pool already");
        if let Some(dirty) = self.room.take() {
            let stats = &mut self.stats;
            let evicted = if write {
                &mut stats.evicted_for_writes
            } else {
                &mut stats.evicted_for_reads
            };
            evicted.count(dirty);
        }
        self.policy.inserted(frame, at, write);
    }

    /// Removes a page, whether chosen by [`Pool::victim`] or not.
    ///
    /// # Panics
    /// The page is pinned.
    pub fn remove(&mut self, at: Lpn) -> Option<T> {
        let frame = self.at.remove(&at)?;
        let held = &mut self.frames[frame.index()];
        assert_eq!(held.pins, 0, "page {at} is pinned");
        let value = held.value.take();
        match self.chosen {
            Some((chosen, dirty)) if chosen == frame => {
                self.chosen = None;
                if let Some(before) = self.room.replace(dirty) {
                    self.stats.evicted_ahead.count(before);
                }
            }
            _ => self.stats.dropped += 1,
        }
        if self.written == Some(frame) {
            self.written = None;
        }
        self.policy.removed(frame);
        self.free.push(frame);
        value
    }

    /// Marks a page as dirty, or as clean after it was written out.
    ///
    /// # Panics
    /// The page is not in the pool.
    pub fn set_dirty(&mut self, at: Lpn, dirty: bool) {
        self.tell_written();
        let frame = self.frame(at);
        let held = &mut self.frames[frame.index()];
        if held.dirty == dirty {
            return;
        }
        held.dirty = dirty;
        if !dirty && self.chosen.is_some_and(|(chosen, _)| chosen == frame) {
            self.written = Some(frame);
        } else {
            self.policy.marked(frame, dirty);
        }
    }

    /// Tells the policy that the chosen page was written out but stays for now.
    fn tell_written(&mut self) {
        if let Some(frame) = self.written.take() {
            self.policy.marked(frame, false);
        }
    }

    /// Whether the page is in the pool and dirty.
    pub fn is_dirty(&self, at: Lpn) -> bool {
        self.at
            .get(&at)
            .is_some_and(|frame| self.frames[frame.index()].dirty)
    }

    /// Pins a page. A pinned page is not evicted until each pin is removed.
    ///
    /// # Panics
    /// The page is not in the pool.
    pub fn pin(&mut self, at: Lpn) {
        let frame = self.frame(at);
        self.frames[frame.index()].pins += 1;
    }

    /// Removes one pin.
    ///
    /// # Panics
    /// The page is not in the pool, or not pinned.
    pub fn unpin(&mut self, at: Lpn) {
        let frame = self.frame(at);
        let pins = &mut self.frames[frame.index()].pins;
        *pins = pins.checked_sub(1).expect("a pin for each unpin");
    }

    /// Number of pins of the page; 0 if it is not in the pool.
    pub fn pins(&self, at: Lpn) -> u32 {
        self.at
            .get(&at)
            .map_or(0, |frame| self.frames[frame.index()].pins)
    }

    /// All pages, in frame order, which is deterministic.
    pub fn iter(&self) -> impl Iterator<Item = (Lpn, &T)> + '_ {
        self.frames
            .iter()
            .filter_map(|held| Some((held.page, held.value.as_ref()?)))
    }

    /// The dirty pages, in frame order.
    pub fn dirty(&self) -> impl Iterator<Item = (Lpn, &T)> + '_ {
        self.frames
            .iter()
            .filter(|held| held.dirty)
            .filter_map(|held| Some((held.page, held.value.as_ref()?)))
    }

    /// The counters since the start or [`Pool::reset_stats`].
    pub fn stats(&self) -> &PoolStats {
        &self.stats
    }

    /// Sets the counters to zero.
    pub fn reset_stats(&mut self) {
        self.stats = PoolStats::default();
        self.room = None;
    }

    /// Adopts the counters of another pool, which this one replaces.
    pub fn restore_stats(&mut self, stats: PoolStats) {
        self.stats = stats;
    }

    /// Checks the invariants of the pool and its policy, in tests and campaigns.
    ///
    /// # Errors
    /// Describes the violated invariant.
    pub fn check(&self) -> Result<(), String> {
        let used = self.iter().count();
        if used != self.at.len() || used + self.free.len() != self.frames.len() {
            return Err(format!(
                "{used} frames are used and {} free, of {}; {} pages are known",
                self.free.len(),
                self.frames.len(),
                self.at.len()
            ));
        }
        for (index, held) in self.frames.iter().enumerate() {
            let frame = self.at.get(&held.page).copied();
            if held.value.is_some() && frame != Some(FrameId(index as u32)) {
                return Err(format!("frame {index} has page {}, not known", held.page));
            }
        }
        self.policy.check()
    }

    fn frame(&self, at: Lpn) -> FrameId {
        *self
            .at
            .get(&at)
            .unwrap_or_else(|| panic!("page {at} is not in the pool"))
    }
}
