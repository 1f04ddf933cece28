//! A medium whose power can be cut: it knows what was synced, and what else may have landed.
//!
//! [`Recorded`] is a handle; its copies are of the same medium, so that a test keeps one while the
//! store owns another. A cut does not end the run: [`Recorded::cut`] gives what a landing leaves,
//! on the side, as often as one likes.

use super::image::Image;
use super::{Medium, SECTOR_BYTES};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Which of the sectors that were written and not synced a cut leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// None.
    Nothing,
    /// All.
    Everything,
    /// The first so many, in the order in which they were written.
    First(u64),
    /// All but the first so many.
    Last(u64),
    /// Each with the chance of one half, by this number.
    Sectors(u64),
    /// As [`Landing::Sectors`], by whole pages of 4096 bytes.
    Pages(u64),
}

impl Landing {
    /// A landing of so many sectors, from a number below eight that chooses the kind, and another
    /// one.
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

/// Is told before each operation.
type Watcher = Box<dyn FnMut(&Recorded) + Send>;

/// What is not durable before the next sync. Copies share the bytes: a campaign keeps a copy of the
/// medium at each of many operations.
#[derive(Clone)]
enum Pending {
    /// Whole sectors that were written, at an offset.
    Written(u64, Arc<[u8]>),
    /// The medium has become so many bytes long.
    Shorter(u64),
}

/// A part of what is not durable, which lands as a whole or not at all.
enum Part<'a> {
    Sector(u64, &'a [u8]),
    Shorter(u64),
}

impl Pending {
    /// How many parts it has.
    fn count(&self) -> u64 {
        match self {
            Pending::Written(_, bytes) => (bytes.len() / SECTOR_BYTES) as u64,
            Pending::Shorter(_) => 1,
        }
    }

    fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let (sectors, shorter) = match self {
            Pending::Written(offset, bytes) => (Some((*offset, bytes)), None),
            Pending::Shorter(bytes) => (None, Some(Part::Shorter(*bytes))),
        };
        let sectors = sectors.into_iter().flat_map(|(offset, bytes)| {
            let offsets = (offset..).step_by(SECTOR_BYTES);
            let sectors = offsets.zip(bytes.chunks_exact(SECTOR_BYTES));
            sectors.map(|(offset, sector)| Part::Sector(offset, sector))
        });
        sectors.chain(shorter)
    }

    /// All of it lands.
    fn land(&self, on: &mut Image) {
        match self {
            Pending::Written(offset, bytes) => on.write(*offset as usize, bytes),
            Pending::Shorter(bytes) => on.shorten(*bytes as usize),
        }
    }
}

impl Part<'_> {
    /// Where it has its effect, in bytes.
    fn offset(&self) -> u64 {
        match *self {
            Part::Sector(offset, _) | Part::Shorter(offset) => offset,
        }
    }

    fn land(&self, on: &mut Image) {
        match *self {
            Part::Sector(offset, sector) => on.write(offset as usize, sector),
            Part::Shorter(bytes) => on.shorten(bytes as usize),
        }
    }
}

#[derive(Clone, Default)]
struct State {
    durable: Image,
    /// What was done since the last sync, in that order.
    pending: Vec<Pending>,
    /// Bytes as the process sees them.
    current: Image,
    operations: u64,
    written: u64,
    syncs: u64,
    fails_at: Option<u64>,
    lies: bool,
    /// Whether it shows what it has in its cache after a refresh as well.
    keeps_cache: bool,
    /// Bytes that it gives at most, and that it gives more at a time.
    room: Option<u64>,
    at_a_time: Option<u64>,
    /// Bytes that it can ever have, as it says.
    most: Option<u64>,
    /// Pages that cannot be read.
    refused: BTreeSet<u64>,
    /// Whether it says that parts of it may have no room.
    is_sparse: bool,
}

/// A medium in memory that can be cut.
#[derive(Clone, Default)]
pub struct Recorded {
    state: Arc<Mutex<State>>,
    watcher: Arc<Mutex<Option<Watcher>>>,
}

/// The pages of 4096 bytes that a range touches.
fn pages_of(offset: u64, bytes: usize) -> Range<u64> {
    offset / 4096..(offset + bytes as u64).div_ceil(4096)
}

/// A number that looks like chance, from two others (the finaliser of splitmix64).
fn mix(seed: u64, place: u64) -> u64 {
    let mut word = seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Recorded {
    /// A medium with these contents, all of them durable.
    pub fn with(bytes: &[u8]) -> Recorded {
        Recorded::of(State::on(Image::new(bytes)))
    }

    fn of(state: State) -> Recorded {
        Recorded {
            state: Arc::new(Mutex::new(state)),
            watcher: Arc::default(),
        }
    }

    /// Calls `watcher` before each write and each sync: the moments between which a cut leaves the
    /// same. The watcher may look at the medium, and must not write to it.
    pub fn watch(&self, watcher: Option<Watcher>) {
        *self.watcher.lock().expect("no thread panics here") = watcher;
    }

    /// A medium of its own that is as this one is.
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

    /// Writes and syncs so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.state().written
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Lets the operation of this number, and all after it, fail; or none.
    pub fn fail_at(&self, operation: Option<u64>) {
        self.state().fails_at = operation;
    }

    /// Lets it have so many bytes and no more, or as many as one likes: a full file system.
    pub fn give_at_most(&self, bytes: Option<u64>) {
        self.state().room = bytes;
    }

    /// Lets it give so many bytes more at a time, or as many as one likes.
    pub fn give_at_a_time(&self, bytes: Option<u64>) {
        self.state().at_a_time = bytes;
    }

    /// Has it say that it can have so many bytes and no more, as a device does.
    pub fn end_at(&self, bytes: u64) {
        self.state().most = Some(bytes);
    }

    /// Lets what was written be read as before when a sync has failed and it was refreshed, or not:
    /// a cache that does not forget, for controls.
    pub fn keep_cache(&self, keeps: bool) {
        self.state().keeps_cache = keeps;
    }

    /// Lets reads of these pages of 4096 bytes fail (EIO), and of no others. A page can be read
    /// again once it is written: disks replace bad sectors then.
    pub fn refuse(&self, pages: &[u64]) {
        self.state().refused = pages.iter().copied().collect();
    }

    /// The pages that cannot be read.
    pub fn refused(&self) -> Vec<u64> {
        self.state().refused.iter().copied().collect()
    }

    /// Has it say that parts of it may have no room, as a file with holes does, or not.
    pub fn be_sparse(&self, is_sparse: bool) {
        self.state().is_sparse = is_sparse;
    }

    /// Lets syncs do nothing from now on: a medium that does not mean it, for controls.
    pub fn lie(&self) {
        self.state().lies = true;
    }

    /// Sectors that were written and not synced, and times that it became shorter.
    pub fn pending(&self) -> u64 {
        self.state().pending.iter().map(Pending::count).sum()
    }

    /// What a power cut at this moment leaves, as a medium of its own.
    pub fn cut(&self, landing: Landing) -> Recorded {
        let state = self.state();
        let mut left = state.durable.clone();
        let parts = state.pending.iter().flat_map(Pending::parts);
        for (count, part) in parts.enumerate() {
            let has_landed = match landing {
                Landing::Nothing => false,
                Landing::Everything => true,
                Landing::First(most) => (count as u64) < most,
                Landing::Last(but) => count as u64 >= but,
                Landing::Sectors(seed) => mix(seed, count as u64) & 1 == 0,
                Landing::Pages(seed) => mix(seed, part.offset() / 4096) & 1 == 0,
            };
            if has_landed {
                part.land(&mut left);
            }
        }
        Recorded::of(State {
            is_sparse: state.is_sparse,
            ..State::on(left)
        })
    }

    /// What a sync that fails leaves: of the sectors that were not synced, those of the landing
    /// are durable, the others are not and will not be, and all of them are read as before.
    pub fn lose(&self, landing: Landing) {
        let durable = self.cut(landing).state().durable.clone();
        let mut state = self.state();
        state.durable = durable;
        let bytes = state.current.bytes();
        state.durable.reserve(bytes);
        state.pending.clear();
    }

    /// The bytes as the process sees them.
    pub fn to_vec(&self) -> Vec<u8> {
        self.state().current.to_vec()
    }
}

impl State {
    /// A medium on which all of this is durable.
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
            // As Linux says it.
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
        // A length that was promised is durable with the next sync.
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

    /// As writing zeros: any of them may land before a sync.
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
