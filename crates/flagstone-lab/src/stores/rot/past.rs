//! The past of a medium: what each of its pages held before, and which commits made it durable.
//! Damage needs it to put an older page back. The judge needs it to tell which commits a damaged
//! page belongs to.

use super::super::lie::{Lie, Lying};
use super::super::tight::Tight;
use flagstone_store::MEDIUM_PAGE_BYTES;
use flagstone_store::medium::{Medium, Recorded};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

/// A page of the medium.
pub(super) type Bytes = Arc<[u8; MEDIUM_PAGE_BYTES]>;

/// Versions of a page of the medium that are kept, at most.
const VERSIONS_MAX: usize = 8;

const PAGE: u64 = MEDIUM_PAGE_BYTES as u64;

/// What was written to a medium, page by page.
#[derive(Clone, Default)]
pub(super) struct Log {
    /// Counts writes of pages.
    pub(super) writes: u64,
    /// The last of them that a sync has made durable, or the end of a life.
    synced: u64,
    /// By page of the medium: the writes, the newest last, each with its number.
    pub(super) pages: BTreeMap<u64, Vec<(u64, Bytes)>>,
}

/// A page of a medium as it is.
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

    /// What a page held before its last write, the newest version first; it ends with zeros if all
    /// versions are known.
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

    /// Forgets the writes that a power cut has undone. A page that landed in part stays as it is,
    /// and counts as written by the last of its writes.
    pub(super) fn settle(&mut self, left: &Recorded) {
        self.synced = self.writes;
        for (&place, versions) in &mut self.pages {
            let now = page_of(left, place);
            let landed = versions.iter().rposition(|(_, bytes)| *bytes == now);
            match landed {
                Some(at) => versions.truncate(at + 1),
                None if now.iter().all(|&byte| byte == 0) => versions.clear(),
                None => {
                    // What was torn has never been there as a whole.
                    let (_, torn) = versions.last_mut().expect("each page was written");
                    *torn = now;
                }
            }
        }
        self.pages.retain(|_, versions| !versions.is_empty());
    }
}

/// A medium that remembers what its pages held. The campaign keeps handles to the medium and to the
/// log.
pub(super) struct Remembering {
    front: Lying,
    below: Recorded,
    log: Arc<Mutex<Log>>,
}

/// A medium and its log, which stores come and go on.
#[derive(Clone, Default)]
pub(super) struct Media {
    pub(super) medium: Recorded,
    log: Arc<Mutex<Log>>,
}

impl Media {
    /// A medium with a past.
    pub(super) fn with(medium: Recorded, log: Log) -> Media {
        Media {
            medium,
            log: Arc::new(Mutex::new(log)),
        }
    }

    /// The medium for a store to be opened on. One that is tight has an end, and may be sparse.
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

    /// The log up to now.
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
    /// Whether it surely wrote something.
    pub(super) counts: bool,
    /// What a reader of a story is told of it.
    pub(super) about: String,
}

/// How a history ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The store was closed.
    Closed,
    /// The process was killed; all that it wrote has landed.
    Killed,
    /// The process was killed while a transaction lived; all that it wrote has landed.
    Begun,
    /// The power was cut during a commit.
    Cut,
}

impl End {
    pub(super) const ALL: [End; 4] = [End::Closed, End::Killed, End::Begun, End::Cut];

    pub(super) fn about(self) -> &'static str {
        match self {
            End::Closed => "the store was closed",
            End::Killed => "the process was killed, and all that it wrote has landed",
            End::Begun => {
                "the process was killed while a transaction lived, and all that it wrote has landed"
            }
            End::Cut => "the power was cut during a commit, or at rest",
        }
    }
}

/// A history, and the medium that it left.
pub(super) struct Past<S> {
    pub(super) media: Media,
    /// States, the empty one first.
    pub(super) commits: Vec<Committed<S>>,
    /// The state of the commit that a cut has caught.
    pub(super) doubt: Option<S>,
    pub(super) end: End,
    /// What happened beside commits: the number of the commit before, and a line.
    pub(super) events: Vec<(usize, String)>,
}

impl<S: Clone + Default> Past<S> {
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

    /// The state that is committed and durable.
    pub(super) fn newest(&self) -> &S {
        &self.commits.last().expect("there is one").state
    }

    /// A commit was acknowledged. One that may have written nothing promises nothing of what others
    /// have written.
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

    pub(super) fn tell(&mut self, what: impl Into<String>) {
        self.events.push((self.commits.len() - 1, what.into()));
    }

    /// The medium that the end of a life leaves, with the log of what lies on it.
    pub(super) fn leave(&mut self, medium: Recorded, mut log: Log) {
        log.settle(&medium);
        self.media = Media::with(medium, log);
    }

    /// The commit whose pages a write belongs to: the first that was durable after it. The number
    /// behind the last one stands for what was written since.
    pub(super) fn commit_of(&self, write: u64) -> usize {
        self.commits
            .partition_point(|commit| commit.durable < write)
    }
}
