//! Histories of pages: a few clients write, trim, commit and abort. The store collects, grows and
//! releases space, and ends by a kill or a power cut.

use super::super::harness::{Done, failed};
use super::super::lie::Lying;
use super::super::model::{Model, Places, Tag, Writes, bulk_trimmed, bytes_of};
use super::super::tight::Tight;
use super::judge::{Kept, Looked, Way};
use super::past::{Bytes, Past};
use super::{End, RotRunId};
use flagstone::commit::DeviceError;
use flagstone::units::{Lpn, TxId};
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::{OpenOptions, PageStore, StoreError};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// Maximum number of pages listed per difference or commit.
const NAMED: usize = 6;

/// The write number of a damaged store's additional transaction.
const LATER: Tag = 1 << 40;

/// The store of a run, and how clients use it.
pub(super) struct RottenPages {
    id: RotRunId,
    pages_per_block: u32,
    pages: Places,
    space: f64,
    /// Maximum number of writes per transaction.
    writes: u32,
    clients: usize,
    /// The number of the last write, which determines its bytes.
    tag: Tag,
    /// For each committed write, its page and its commit.
    written: BTreeMap<Tag, (u32, usize)>,
    collections: u64,
    tight: Option<Tight>,
}

/// The contents of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Nothing,
    Write(Tag),
    /// Bytes that no client wrote.
    Other,
}

/// A live transaction of a client.
struct LiveTx {
    tx: TxId,
    writes: Writes,
    left: u32,
}

/// The first few numbers of a list, in one line.
fn some<T: ToString>(all: impl ExactSizeIterator<Item = T>) -> String {
    let more = all.len().saturating_sub(NAMED);
    let named: Vec<String> = all.take(NAMED).map(|one| one.to_string()).collect();
    match more {
        0 => named.join(" "),
        more => format!("{} and {more} more", named.join(" ")),
    }
}

impl RottenPages {
    fn open(&self, past: &Past<Model>) -> Result<PageStore, StoreError> {
        let medium = past
            .media
            .dressed(self.id.lie, self.pages_per_block, self.tight);
        PageStore::on(medium, &self.options())
    }

    /// Performs up to 8 of the remaining writes of a transaction. None remain once a write finds no
    /// space.
    fn write(
        &mut self,
        store: &mut PageStore,
        live: &mut LiveTx,
        dice: &mut Pcg64Mcg,
    ) -> Result<(), StoreError> {
        for _ in 0..dice.random_range(1..=live.left.min(8)) {
            live.left -= 1;
            let at = self.pages.draw(dice);
            self.tag += 1;
            let (tag, trims) = (self.tag, dice.random_range(0..8) == 0);
            let written = if trims {
                store.trim(live.tx, Lpn(at))
            } else {
                store.write(live.tx, Lpn(at), &bytes_of(tag))
            };
            match written {
                Ok(()) => {
                    live.writes.insert(at, (!trims).then_some(tag));
                    if trims {
                        // A page that the store refuses is left out.
                        for at in bulk_trimmed(self.id.seed, tag, self.pages) {
                            if store.trim(live.tx, Lpn(at)).is_ok() {
                                live.writes.insert(at, None);
                            }
                        }
                    }
                }
                // The protocol cannot accept this page now. Try another one.
                Err(StoreError::Device(DeviceError::Conflict { .. })) => {}
                Err(StoreError::Full(_)) => {
                    live.left = 0;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Records an acknowledged commit.
    fn acknowledge(&mut self, past: &mut Past<Model>, writes: &Writes) {
        let number = past.commits.len();
        let tags = writes.iter().filter_map(|(&at, &tag)| Some((tag?, at)));
        self.written
            .extend(tags.map(|(tag, at)| (tag, (at, number))));
        let state = past.newest().with(writes);
        let puts = writes.iter().filter(|(_, tag)| tag.is_some());
        let puts: Vec<String> = puts
            .map(|(at, tag)| format!("{at}={}", tag.unwrap_or_default()))
            .collect();
        let trims: Vec<&u32> = writes
            .iter()
            .filter(|it| it.1.is_none())
            .map(|it| it.0)
            .collect();
        let mut about = match puts.as_slice() {
            [] => "writes nothing".to_string(),
            puts => format!("writes {}", some(puts.iter())),
        };
        if !trims.is_empty() {
            about += &format!("; trims {}", some(trims.iter()));
        }
        let counts = !puts.is_empty() || state != *past.newest();
        past.acknowledge(state, counts, about);
    }

    /// Commits another transaction on a medium that is about to fail, as in a power cut. The caller
    /// cuts the medium.
    fn cut(
        &mut self,
        store: &mut PageStore,
        past: &mut Past<Model>,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        let medium = past.media.medium.clone();
        medium.fail_at(Some(medium.operations() + dice.random_range(0..8)));
        if dice.random_range(0..3) == 0 && store.idle(dice.random_range(1..40)).is_err() {
            past.tell("the power fails while it is idle");
            return Ok(());
        }
        let Ok(tx) = store.begin() else {
            past.tell("the power fails at the begin of a transaction");
            return Ok(());
        };
        let mut live = LiveTx {
            tx,
            writes: Writes::new(),
            left: dice.random_range(1..=self.writes.max(1)),
        };
        while live.left > 0 {
            if self.write(store, &mut live, dice).is_err() {
                past.tell("the power fails while a transaction writes");
                return Ok(());
            }
        }
        match store.commit(tx) {
            Ok(()) => self.acknowledge(past, &live.writes),
            Err(StoreError::Full(_)) => {}
            Err(_) => {
                past.tell(format!(
                    "the power fails during the commit of writes {}",
                    some(live.writes.iter().map(|(at, tag)| match tag {
                        Some(tag) => format!("{at}={tag}"),
                        None => format!("{at} trimmed"),
                    }))
                ));
                past.doubt = Some(past.newest().with(&live.writes));
            }
        }
        Ok(())
    }

    /// Ends the life of a store.
    fn end(
        &mut self,
        mut store: PageStore,
        past: &mut Past<Model>,
        end: End,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        let medium = past.media.medium.clone();
        self.collections += store.device().stats().collections;
        let left = match end {
            // The store is closed, and the medium is left as it is then.
            End::Closed => {
                store.close().map_err(failed("close"))?;
                past.leave(medium.snapshot(), past.media.log());
                return Ok(());
            }
            // The process is killed between two calls; all that it wrote lands.
            End::Killed => medium.cut(Landing::Everything),
            // The process is killed after the writes of one more transaction; all of them land.
            End::KilledInTransaction => {
                let tx = store.begin().map_err(failed("begin"))?;
                // Mostly few writes, and sometimes more than the 256 pages that are buffered.
                let most = [3, 3, 40, 600][dice.random_range(0..4)];
                let mut live = LiveTx {
                    tx,
                    writes: Writes::new(),
                    left: dice.random_range(1..=most),
                };
                while live.left > 0 {
                    let written = self.write(&mut store, &mut live, dice);
                    written.map_err(failed("write"))?;
                }
                past.tell(format!("a transaction writes {} pages", live.writes.len()));
                medium.cut(Landing::Everything)
            }
            // The power is cut in one more transaction or while idle; some of the last writes land.
            End::Cut => {
                self.cut(&mut store, past, dice)?;
                let number = dice.random();
                // Which writes land: `Landing::draw` has eight kinds.
                let kind = dice.random_range(0..8);
                medium.cut(Landing::draw(medium.pending(), kind, number))
            }
        };
        // The log is taken before the drop of the store, whose writes are none of the past.
        let log = past.media.log();
        // Hands what is left on to the next life, and removes what did not land from the log.
        past.leave(left, log);
        drop(store);
        Ok(())
    }
}

impl Kept for RottenPages {
    type State = Model;
    type View = BTreeMap<u32, Result<Holds, String>>;

    fn draw(id: &RotRunId, dice: &mut Pcg64Mcg) -> RottenPages {
        let mut kept = RottenPages {
            id: *id,
            pages_per_block: [16, 16, 20, 32, 64][dice.random_range(0..5)],
            pages: Places {
                count: [3, 20, 60, 150][dice.random_range(0..4)],
                apart: 1,
            },
            space: [1.2, 1.5, 2.0][dice.random_range(0..3)],
            writes: [1, 2, 4, 12, 60][dice.random_range(0..5)],
            clients: dice.random_range(1..4),
            tag: 0,
            written: BTreeMap::new(),
            collections: 0,
            tight: Tight::draw(id.seed),
        };
        match dice.random_range(0..6) {
            0 => kept.space = 30.0,
            1 => kept.pages.apart = dice.random_range(2..60),
            _ => {}
        }
        if let Some(tight) = kept.tight {
            kept.pages_per_block = tight.pages_per_block;
            kept.pages.count = tight.count;
            kept.writes = kept.writes.max(12);
        }
        kept
    }

    fn about(&self) -> String {
        format!(
            "{}, {} pages a block; {} logical pages, {} apart; `page=write` below",
            self.id.protocol, self.pages_per_block, self.pages.count, self.pages.apart
        )
    }

    fn id(&self) -> &RotRunId {
        &self.id
    }

    fn collections(&self) -> u64 {
        self.collections
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::default().with_protocol(self.id.protocol);
        options.pages_per_block = self.pages_per_block;
        options.space = self.space;
        options.mistake = crate::made(self.id.lie.of_device());
        self.id.lock(&mut options);
        options
    }

    fn live(
        &mut self,
        _: &RotRunId,
        past: &mut Past<Model>,
        end: End,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        let mut store = self.open(past).map_err(failed("it does not open"))?;
        let mut live: Vec<LiveTx> = Vec::new();
        let most = store.device().live_max().unwrap_or(u32::MAX) as usize;
        let steps = [0..3, 5..40, 40..200][dice.random_range(0..3)].clone();
        for _ in 0..dice.random_range(steps) {
            match dice.random_range(0..60) {
                0..3 => {
                    let moved = store.idle(dice.random_range(1..40));
                    let moved = moved.map_err(failed("while it is idle"))?;
                    if moved > 0 {
                        past.tell(format!("idle: {moved} pages are moved"));
                    }
                }
                3 => {
                    let given = store.discard().map_err(failed("discard"))?;
                    if given > 0 {
                        past.tell(format!("discard: {given} bytes"));
                    }
                }
                _ => {}
            }
            if live.len() < self.clients.min(most) {
                let tx = store.begin().map_err(failed("begin"))?;
                live.push(LiveTx {
                    tx,
                    writes: Writes::new(),
                    left: dice.random_range(0..=self.writes),
                });
            }
            let at = dice.random_range(0..live.len());
            if live[at].left > 0 {
                let written = self.write(&mut store, &mut live[at], dice);
                written.map_err(failed("write"))?;
                continue;
            }
            let LiveTx { tx, writes, .. } = live.swap_remove(at);
            if dice.random_range(0..6) == 0 {
                store.abort(tx).map_err(failed("abort"))?;
                past.tell(format!("abort of {} pages", writes.len()));
                continue;
            }
            match store.commit(tx) {
                Ok(()) => self.acknowledge(past, &writes),
                Err(StoreError::Full(_)) => store.abort(tx).map_err(failed("abort"))?,
                Err(error) => return Err(failed("commit")(error)),
            }
        }
        // Some transactions stay live, but fewer than the device allows: `end` may begin one more.
        for (left, LiveTx { tx, .. }) in (0..live.len()).rev().zip(live) {
            if end == End::Cut || left + 1 >= most || dice.random_range(0..2) == 0 {
                store.abort(tx).map_err(failed("abort"))?;
            }
        }
        self.end(store, past, end, dice)
    }

    fn look(&self, medium: &Recorded, way: Way, _: &Model) -> Result<Looked<Self::View>, String> {
        let mut options = self.options();
        options.create = false;
        options.read_only = way.reads;
        let lying = Lying::new(medium.clone(), self.id.lie, self.pages_per_block);
        let opened = PageStore::on(Box::new(lying), &options);
        let mut store = opened.map_err(|error| error.to_string())?;
        let before = way.checks_first.then(|| check(&mut store));
        let mut view = BTreeMap::new();
        let mut page = vec![0; PageStore::PAGE_BYTES];
        // Reads the written pages, and some that were never written.
        let written = (0..self.pages.count).map(|index| self.pages.at(index));
        for at in written.flat_map(|at| [at, at + 1]) {
            let held = match store.read(None, Lpn(at), &mut page) {
                Ok(None) => Ok(Holds::Nothing),
                Ok(Some(bytes)) => Ok(holds(&page[..bytes])),
                Err(error) => Err(error.to_string()),
            };
            view.insert(at, held);
        }
        let wrong = before.unwrap_or_else(|| check(&mut store));
        let went_on = way.goes_on && !way.reads && go_on(store, self.pages.at(0)).is_ok();
        Ok(Looked {
            view,
            wrong,
            went_on,
        })
    }

    fn later(&self, state: &Model) -> Model {
        state.with(&Writes::from([(self.pages.at(0), Some(LATER))]))
    }

    fn differs(&self, view: &Self::View, state: &Model) -> Option<String> {
        let of = |holds: Holds| match holds {
            Holds::Nothing => "nothing".to_string(),
            Holds::Other => "bytes that nobody wrote".to_string(),
            Holds::Write(tag) => match self.written.get(&tag) {
                Some((_, commit)) => format!("write {tag} of commit {commit}"),
                None => format!("write {tag}, which is not committed"),
            },
        };
        let wrong = view.iter().filter_map(|(&at, held)| {
            let (held, wanted) = (*held.as_ref().ok()?, state.tag(at));
            let wanted = wanted.map_or(Holds::Nothing, Holds::Write);
            (held != wanted).then(|| format!("page {at} reads as {}, not {}", of(held), of(wanted)))
        });
        let wrong: Vec<String> = wrong.collect();
        (!wrong.is_empty()).then(|| match wrong.len() {
            1..=3 => wrong.join("; "),
            count => format!("{}; and {} pages more", wrong[..3].join("; "), count - 3),
        })
    }

    fn unread(&self, view: &Self::View) -> Option<String> {
        let unread = view.iter().filter(|(_, held)| held.is_err());
        let unread: Vec<&u32> = unread.map(|(at, _)| at).collect();
        (!unread.is_empty()).then(|| format!("page {}", some(unread.iter())))
    }

    fn written_by(&self, bytes: &Bytes) -> Option<String> {
        let tag = Tag::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        self.written
            .get(&tag)
            .map(|(at, commit)| format!("write {tag} to page {at} of commit {commit}"))
    }
}

/// Findings of `check` on the pages of a store; `None` if it found nothing.
pub(super) fn check(store: &mut PageStore) -> Option<String> {
    match store.check() {
        Ok(report) if report.is_well() => None,
        Ok(report) => {
            let unreadable = report.unreadable.iter().take(NAMED);
            let pages = unreadable.map(|at| format!("page {at} cannot be read"));
            let all: Vec<String> = pages.chain(report.wrong).collect();
            Some(all.join("; "))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Commits another transaction, and closes the store.
fn go_on(mut store: PageStore, at: u32) -> Result<(), StoreError> {
    let tx = store.begin()?;
    store.write(tx, Lpn(at), &bytes_of(LATER))?;
    store.commit(tx)?;
    store.close()
}

/// The write that bytes belong to.
fn holds(bytes: &[u8]) -> Holds {
    let Some(tag) = bytes.first_chunk() else {
        return Holds::Other;
    };
    let tag = Tag::from_le_bytes(*tag);
    if bytes == bytes_of(tag) {
        Holds::Write(tag)
    } else {
        Holds::Other
    }
}
