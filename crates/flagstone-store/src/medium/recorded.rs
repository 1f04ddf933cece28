//! A medium in memory with simulated power cuts: it records which writes are not synced yet.
//!
//! [`Recorded`] is a handle; clones share the medium, so a test keeps one while the store owns
//! another. A cut does not end the run: [`Recorded::cut`] returns a copy of the medium as the cut
//! leaves it, any number of times.

use super::image::Image;
use super::{Medium, SECTOR_BYTES};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Which unsynced sectors have landed after a cut.
///
/// Example: [`Recorded`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// None.
    Nothing,
    /// All.
    Everything,
    /// The first ones of this number, in the order in which they were written.
    First(u64),
    /// All but the first ones of this number.
    Last(u64),
    /// Each one with probability 1/2, drawn from this seed.
    Sectors(u64),
    /// Like [`Landing::Sectors`], but by pages of 4096 bytes.
    Pages(u64),
}

impl Landing {
    /// Draws a landing of `pending` sectors. `kind`, below eight, selects the variant; `number` is
    /// its parameter.
    pub fn draw(pending: u64, kind: u32, number: u64) -> Landing {
        match kind {
            0 => Landing::Nothing,
            1 => Landing::Everything,
            2 => Landing::First(number % (pending + 1)),
            3 => Landing::Last(number % (pending + 1)),
            4 | 5 => Landing::Sectors(number),
            _ => Landing::Pages(number),
        }
    }
}

/// Called before each operation.
type Watcher = Box<dyn FnMut(&Recorded) + Send>;

/// A change that the next sync makes durable. Copies share the bytes: a campaign keeps a copy of
/// the medium at each of many operations.
#[derive(Clone)]
enum Pending {
    /// Whole sectors written at an offset.
    Written(u64, Arc<[u8]>),
    /// The medium was truncated to this size.
    Shorter(u64),
}

impl Pending {
    /// Number of parts of a change. Each lands whole or not at all.
    fn count(&self) -> u64 {
        match self {
            Pending::Written(_, bytes) => (bytes.len() / SECTOR_BYTES) as u64,
            Pending::Shorter(_) => 1,
        }
    }

    /// Applies the whole change.
    fn land(&self, on: &mut Image) {
        match self {
            Pending::Written(offset, bytes) => on.write(*offset as usize, bytes),
            Pending::Shorter(bytes) => on.shorten(*bytes as usize),
        }
    }

    /// Applies the parts that `lands` selects, by the number of the part within this change and its
    /// offset on the medium (of a shortening: the new length).
    fn land_parts(&self, on: &mut Image, lands: impl Fn(u64, u64) -> bool) {
        let (offset, bytes) = match self {
            Pending::Shorter(bytes) if lands(0, *bytes) => return on.shorten(*bytes as usize),
            Pending::Shorter(_) => return,
            Pending::Written(offset, bytes) => (*offset, bytes),
        };
        let at = |part: u64| part as usize * SECTOR_BYTES;
        let has_landed =
            |part: &u64| *part < self.count() && lands(*part, offset + at(*part) as u64);
        let mut part = 0;
        while part < self.count() {
            let run = (part..).take_while(has_landed).count() as u64;
            if run > 0 {
                on.write(offset as usize + at(part), &bytes[at(part)..at(part + run)]);
            }
            // The part behind the run has not landed.
            part += run + 1;
        }
    }
}

#[derive(Clone, Default)]
struct State {
    durable: Image,
    /// Changes since the last sync, in order.
    pending: Vec<Pending>,
    /// The contents as the process sees them.
    current: Image,
    operations: u64,
    written: u64,
    syncs: u64,
    fails_at: Option<u64>,
    lies: bool,
    /// Whether a refresh keeps cached data that a failed sync has lost: for controls.
    keeps_cache: bool,
    /// Maximum size in bytes, and maximum bytes that one growth adds.
    room: Option<u64>,
    at_a_time: Option<u64>,
    /// The maximum size that the medium reports.
    most: Option<u64>,
    /// Unreadable pages.
    refused: BTreeSet<u64>,
    /// Whether the medium reports that parts may have no room allocated.
    is_sparse: bool,
}

/// A medium in memory with simulated power cuts.
///
/// ```
/// use flagstone_store::medium::{Landing, Medium, Recorded};
///
/// let medium = Recorded::default();
/// medium.write_at(0, &[1; 512])?;
/// medium.sync()?;
/// medium.write_at(0, &[2; 1024])?;
/// assert_eq!(medium.pending(), 2);
///
/// // Two sectors are not synced. Each cut has an outcome of its own.
/// let after = |landing| medium.cut(landing).to_vec();
/// assert_eq!(after(Landing::Nothing), [1; 512]);
/// assert_eq!(after(Landing::Everything), [2; 1024]);
/// assert_eq!(after(Landing::First(1))[..512], [2; 512]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Recorded {
    state: Arc<Mutex<State>>,
    watcher: Arc<Mutex<Option<Watcher>>>,
}

/// The pages of 4096 bytes that a range overlaps.
fn pages_of(offset: u64, bytes: usize) -> Range<u64> {
    offset / 4096..(offset + bytes as u64).div_ceil(4096)
}

/// Hashes two numbers (the finaliser of splitmix64).
fn mix(seed: u64, place: u64) -> u64 {
    let mut word = seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Recorded {
    /// A medium with these contents, all durable.
    pub fn with(bytes: &[u8]) -> Recorded {
        Recorded::of(State::on(Image::new(bytes)))
    }

    fn of(state: State) -> Recorded {
        Recorded {
            state: Arc::new(Mutex::new(state)),
            watcher: Arc::default(),
        }
    }

    /// Calls `watcher` before each write and each sync. Between two of these calls every cut leaves
    /// the same. The watcher may inspect the medium, but not write to it.
    pub fn watch(&self, watcher: Option<Watcher>) {
        *self.watcher.lock().expect("no thread panics here") = watcher;
    }

    /// An independent copy of the medium in its present state.
    pub fn snapshot(&self) -> Recorded {
        Recorded::of(self.state().clone())
    }

    fn tell(&self) {
        if let Some(watcher) = &mut *self.watcher.lock().expect("no thread panics here") {
            watcher(self);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics here")
    }

    /// Number of writes and syncs so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Number of bytes written so far.
    pub fn written(&self) -> u64 {
        self.state().written
    }

    /// Number of syncs so far.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Lets the operation of this number and all later ones fail. `None`: no failures.
    pub fn fail_at(&self, operation: Option<u64>) {
        self.state().fails_at = operation;
    }

    /// Limits the size in bytes, as a full file system does. `None`: no limit.
    pub fn give_at_most(&self, bytes: Option<u64>) {
        self.state().room = bytes;
    }

    /// Limits the bytes that one growth can add. `None`: no limit.
    pub fn give_at_a_time(&self, bytes: Option<u64>) {
        self.state().at_a_time = bytes;
    }

    /// Reports a maximum size in bytes, as a block device does.
    pub fn end_at(&self, bytes: u64) {
        self.state().most = Some(bytes);
    }

    /// Sets whether data lost by a failed sync stays readable after a refresh: a faulty cache, for
    /// controls.
    pub fn keep_cache(&self, keeps: bool) {
        self.state().keeps_cache = keeps;
    }

    /// Lets reads of these pages of 4096 bytes fail (EIO), and of no others. A page becomes
    /// readable again when it is written, as disks then replace bad sectors.
    pub fn refuse(&self, pages: &[u64]) {
        self.state().refused = pages.iter().copied().collect();
    }

    /// The unreadable pages.
    pub fn refused(&self) -> Vec<u64> {
        self.state().refused.iter().copied().collect()
    }

    /// Sets whether the medium reports unallocated parts, as a file with holes does.
    pub fn be_sparse(&self, is_sparse: bool) {
        self.state().is_sparse = is_sparse;
    }

    /// Lets syncs do nothing from now on: a disk that ignores flushes, for controls.
    pub fn lie(&self) {
        self.state().lies = true;
    }

    /// Number of unsynced sectors, plus truncations.
    pub fn pending(&self) -> u64 {
        self.state().pending.iter().map(Pending::count).sum()
    }

    /// A copy of the medium as a power cut at this moment leaves it: what is durable, and the
    /// pending sectors that `landing` selects.
    pub fn cut(&self, landing: Landing) -> Recorded {
        let state = self.state();
        let mut left = state.durable.clone();
        // Parts of earlier pending changes: a landing counts over all changes.
        let mut before = 0;
        for change in &state.pending {
            change.land_parts(&mut left, |part, offset| match landing {
                Landing::Nothing => false,
                Landing::Everything => true,
                Landing::First(most) => before + part < most,
                Landing::Last(but) => before + part >= but,
                Landing::Sectors(seed) => mix(seed, before + part) & 1 == 0,
                Landing::Pages(seed) => mix(seed, offset / 4096) & 1 == 0,
            });
            before += change.count();
        }
        Recorded::of(State {
            is_sparse: state.is_sparse,
            ..State::on(left)
        })
    }

    /// Simulates a failed sync: the unsynced sectors selected by `landing` become durable, the
    /// others are lost. All of them still read as written.
    pub fn lose(&self, landing: Landing) {
        let durable = self.cut(landing).state().durable.clone();
        let mut state = self.state();
        state.durable = durable;
        let bytes = state.current.bytes();
        state.durable.reserve(bytes);
        state.pending.clear();
    }

    /// The contents as the process sees them.
    pub fn to_vec(&self) -> Vec<u8> {
        self.state().current.to_vec()
    }
}

impl State {
    /// The state of a medium on which `image` is durable.
    fn on(image: Image) -> State {
        State {
            durable: image.clone(),
            current: image,
            ..State::default()
        }
    }

    fn count(&mut self) -> io::Result<()> {
        if self.fails_at.is_some_and(|at| self.operations >= at) {
            return Err(io::Error::other("the medium fails, as it was told to"));
        }
        self.operations += 1;
        Ok(())
    }
}

impl Medium for Recorded {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        if state
            .refused
            .range(pages_of(offset, into.len()))
            .next()
            .is_some()
        {
            // EIO on Linux.
            return Err(io::Error::from_raw_os_error(5));
        }
        state.current.read(offset as usize, into);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.tell();
        let mut state = self.state();
        state.count()?;
        assert!(
            offset.is_multiple_of(SECTOR_BYTES as u64) && bytes.len().is_multiple_of(SECTOR_BYTES),
            "a medium is written by sectors"
        );
        state.written += bytes.len() as u64;
        let written = pages_of(offset, bytes.len());
        state.refused.retain(|page| !written.contains(page));
        state.current.write(offset as usize, bytes);
        state.pending.push(Pending::Written(offset, bytes.into()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.tell();
        let mut state = self.state();
        state.count()?;
        state.syncs += 1;
        if state.lies {
            return Ok(());
        }
        let state = &mut *state;
        for pending in state.pending.drain(..) {
            pending.land(&mut state.durable);
        }
        // A length that was allocated is durable after the next sync.
        let bytes = state.current.bytes();
        state.durable.reserve(bytes);
        Ok(())
    }

    fn most(&self) -> Option<u64> {
        self.state().most
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.state().current.bytes() as u64)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.state();
        let more = bytes.saturating_sub(state.current.bytes() as u64);
        let is_more = state.at_a_time.is_some_and(|most| more > most);
        if is_more || state.room.is_some_and(|room| bytes > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.current.reserve(bytes as usize);
        Ok(())
    }

    fn can_shorten(&self) -> bool {
        self.state().most.is_none()
    }

    fn is_thin(&self) -> bool {
        self.state().is_sparse
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        self.tell();
        let mut state = self.state();
        state.count()?;
        state.refused.retain(|&page| page * 4096 < bytes);
        if bytes < state.current.bytes() as u64 {
            state.current.shorten(bytes as usize);
            state.pending.push(Pending::Shorter(bytes));
        }
        Ok(())
    }

    /// Like writing zeros: any of them may land before a sync.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        self.write_at(offset, &vec![0; bytes as usize])?;
        Ok(true)
    }

    fn refresh(&self) -> io::Result<()> {
        self.sync()?;
        let mut state = self.state();
        if !state.lies && !state.keeps_cache {
            state.current = state.durable.clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_leaves_what_was_synced_and_any_of_the_rest() {
        let medium = Recorded::default();
        medium.write_at(0, &[1; 1024]).expect("a write");
        medium.sync().expect("a sync");
        medium.write_at(512, &[2; 1024]).expect("a write");
        assert_eq!(medium.pending(), 2);
        let sectors = |landing| {
            let bytes = medium.cut(landing).to_vec();
            let at = |index: usize| bytes.get(index * 512).copied().unwrap_or(0);
            [at(0), at(1), at(2)]
        };
        assert_eq!(sectors(Landing::Nothing), [1, 1, 0]);
        assert_eq!(sectors(Landing::Everything), [1, 2, 2]);
        assert_eq!(sectors(Landing::First(1)), [1, 2, 0]);
        assert_eq!(sectors(Landing::Last(1)), [1, 1, 2]);
        let mut seen: Vec<_> = (0..64)
            .map(|seed| sectors(Landing::Sectors(seed)))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [[1, 1, 0], [1, 1, 2], [1, 2, 0], [1, 2, 2]]);
    }
}
