//! The past of a medium: earlier contents of its pages, and the commits that made them durable.
//! Damage uses it to restore older pages; the judge uses it to find the commits of a damaged page.

use super::super::lie::{Lie, Lying};
use super::super::tight::Tight;
use flagstone_store::MEDIUM_PAGE_BYTES;
use flagstone_store::medium::{Medium, Recorded};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

/// A page of the medium.
pub(super) type Bytes = Arc<[u8; MEDIUM_PAGE_BYTES]>;

/// Maximum number of versions kept per page of the medium.
const VERSIONS_MAX: usize = 8;

const PAGE: u64 = MEDIUM_PAGE_BYTES as u64;

/// Log of page writes to a medium.
#[derive(Clone, Default)]
pub(super) struct Log {
    /// Number of page writes.
    pub(super) writes: u64,
    /// The last write made durable by a sync, or by the end of a life.
    synced: u64,
    /// Per page of the medium: its writes with their numbers, newest last.
    pub(super) pages: BTreeMap<u64, Vec<(u64, Bytes)>>,
}

/// The current contents of a page of a medium.
pub(super) fn page_of(medium: &Recorded, place: u64) -> Bytes {
    let mut page = [0; MEDIUM_PAGE_BYTES];
    let read = medium.read_at(place * PAGE, &mut page);
    read.expect("a medium in memory is read");
    Arc::new(page)
}

impl Log {
    /// The number of the last write of a page.
    pub(super) fn written(&self, place: u64) -> Option<u64> {
        Some(self.pages.get(&place)?.last()?.0)
    }

    /// Earlier contents of a page, newest first; ends with zeros if all versions are known.
    pub(super) fn older(&self, place: u64) -> Vec<Bytes> {
        let Some(versions) = self.pages.get(&place) else {
            return Vec::new();
        };
        let but_last = versions.iter().rev().skip(1);
        let mut older: Vec<Bytes> = but_last.map(|(_, bytes)| bytes.clone()).collect();
        if versions.len() < VERSIONS_MAX {
            older.push(Arc::new([0; MEDIUM_PAGE_BYTES]));
        }
        older
    }

    /// Records a write of `bytes` bytes that the medium holds already.
    fn write(&mut self, medium: &Recorded, offset: u64, bytes: usize) {
        self.writes += 1;
        for place in offset / PAGE..(offset + bytes as u64).div_ceil(PAGE) {
            let versions = self.pages.entry(place).or_default();
            if versions.len() == VERSIONS_MAX {
                versions.remove(0);
            }
            versions.push((self.writes, page_of(medium, place)));
        }
    }

    /// Removes writes that a power cut has undone. A partly written page stays as it is, and counts
    /// as its last write.
    pub(super) fn settle(&mut self, left: &Recorded) {
        self.synced = self.writes;
        for (&place, versions) in &mut self.pages {
            let now = page_of(left, place);
            let landed = versions.iter().rposition(|(_, bytes)| *bytes == now);
            match landed {
                Some(at) => versions.truncate(at + 1),
                None if now.iter().all(|&byte| byte == 0) => versions.clear(),
                None => {
                    // No complete copy of the torn version ever existed.
                    let (_, torn) = versions.last_mut().expect("each page was written");
                    *torn = now;
                }
            }
        }
        self.pages.retain(|_, versions| !versions.is_empty());
    }
}

/// A medium that logs page contents. The campaign keeps handles to the medium and the log.
pub(super) struct Remembering {
    front: Lying,
    below: Recorded,
    log: Arc<Mutex<Log>>,
}

/// A medium and its log, used by successive stores.
#[derive(Clone, Default)]
pub(super) struct Media {
    pub(super) medium: Recorded,
    log: Arc<Mutex<Log>>,
}

impl Media {
    /// A medium with an existing log.
    pub(super) fn with(medium: Recorded, log: Log) -> Media {
        Media {
            medium,
            log: Arc::new(Mutex::new(log)),
        }
    }

    /// The medium on which to open a store. If it is tight, its size is limited, and it may be
    /// sparse.
    pub(super) fn dressed(
        &self,
        lie: Lie,
        pages_per_block: u32,
        tight: Option<Tight>,
    ) -> Box<dyn Medium> {
        let end = tight.map(|tight| tight.end(pages_per_block));
        self.medium
            .be_sparse(tight.is_some_and(|tight| tight.is_sparse));
        Box::new(Remembering {
            front: Lying::new(self.medium.clone(), lie, pages_per_block).ending_at(end),
            below: self.medium.clone(),
            log: Arc::clone(&self.log),
        })
    }

    /// The log so far.
    pub(super) fn log(&self) -> Log {
        self.log.lock().expect("no thread panics here").clone()
    }

    /// The last write that is durable.
    pub(super) fn synced(&self) -> u64 {
        self.log.lock().expect("no thread panics here").synced
    }
}

impl Medium for Remembering {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.front.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.front.write_at(offset, bytes)?;
        let mut log = self.log.lock().expect("no thread panics here");
        log.write(&self.below, offset, bytes.len());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.front.sync()?;
        let mut log = self.log.lock().expect("no thread panics here");
        log.synced = log.writes;
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        self.front.bytes()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.front.reserve(bytes)
    }

    fn lengthen(&self, bytes: u64) -> io::Result<()> {
        self.front.lengthen(bytes)
    }

    fn is_thin(&self) -> bool {
        self.front.is_thin()
    }

    fn take(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.front.take(offset, bytes)
    }

    fn can_shorten(&self) -> bool {
        self.front.can_shorten()
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        let had = self.front.bytes()?;
        self.front.shorten(bytes)?;
        let mut log = self.log.lock().expect("no thread panics here");
        log.write(&self.below, bytes, had.saturating_sub(bytes) as usize);
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        self.write_at(offset, &vec![0; bytes as usize])?;
        Ok(true)
    }
}

/// A state of a store that was committed.
#[derive(Clone)]
pub(super) struct Committed<S> {
    pub(super) state: S,
    /// The last write that was durable when the commit was acknowledged.
    pub(super) durable: u64,
    /// Whether the commit surely wrote something.
    pub(super) counts: bool,
    /// Description for reports.
    pub(super) about: String,
}

/// How a history ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The store was closed.
    Closed,
    /// The process was killed; all its writes have landed.
    Killed,
    /// The process was killed during a transaction; all its writes have landed.
    KilledInTransaction,
    /// The power was cut during a commit.
    Cut,
}

impl End {
    pub(super) const ALL: [End; 4] = [End::Closed, End::Killed, End::KilledInTransaction, End::Cut];

    pub(super) fn about(self) -> &'static str {
        match self {
            End::Closed => "the store was closed",
            End::Killed => "the process was killed, and all that it wrote has landed",
            End::KilledInTransaction => {
                "the process was killed while a transaction lived, and all that it wrote has landed"
            }
            End::Cut => "the power was cut during a commit, or at rest",
        }
    }
}

/// A history, and the resulting medium.
pub(super) struct Past<S> {
    pub(super) media: Media,
    /// States, the empty one first.
    pub(super) commits: Vec<Committed<S>>,
    /// The state of a commit interrupted by a cut.
    pub(super) doubt: Option<S>,
    pub(super) end: End,
    /// Events other than commits: the number of the previous commit, and a description.
    pub(super) events: Vec<(usize, String)>,
}

impl<S: Clone + Default> Past<S> {
    /// A history that begins with an empty store, its commit 0.
    pub(super) fn new() -> Past<S> {
        let empty = Committed {
            state: S::default(),
            durable: 0,
            counts: false,
            about: "an empty store".into(),
        };
        Past {
            media: Media::default(),
            commits: vec![empty],
            doubt: None,
            end: End::Closed,
            events: Vec::new(),
        }
    }

    /// The committed and durable state.
    pub(super) fn newest(&self) -> &S {
        &self.commits.last().expect("there is one").state
    }

    /// Records an acknowledged commit. A commit that may have written nothing proves nothing about
    /// others' writes.
    pub(super) fn acknowledge(&mut self, state: S, counts: bool, about: String) {
        let before = self.commits.last().expect("there is one").durable;
        let durable = if counts { self.media.synced() } else { before };
        self.commits.push(Committed {
            state,
            durable,
            counts: counts && durable > before,
            about,
        });
    }

    /// Records an event after the newest commit.
    pub(super) fn tell(&mut self, what: impl Into<String>) {
        self.events.push((self.commits.len() - 1, what.into()));
    }

    /// Sets the medium after the end of a life, with its log.
    pub(super) fn leave(&mut self, medium: Recorded, mut log: Log) {
        log.settle(&medium);
        self.media = Media::with(medium, log);
    }

    /// The commit to which a write belongs: the first commit that was durable after it. The number
    /// after the last commit stands for later writes.
    pub(super) fn commit_of(&self, write: u64) -> usize {
        self.commits
            .partition_point(|commit| commit.durable < write)
    }
}
