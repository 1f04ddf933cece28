//! The operations of a store's device on the simulated chip: after the same cut, both are recovered
//! to the same state.
//!
//! What a store writes to its medium is noted and read as the operations of a device: a mark of a
//! block is an erase, a page a program. At a cut the same operations are carried out on a chip, as
//! far as they have landed on the medium; a page that was torn there is one that cannot be read.
//! Then a device is started on the chip, and its state is held against that of the store.

use super::model::Pages;
use flagstone::commit::{Device, Options};
use flagstone::ftl::BlockState;
use flagstone::layout::get;
use flagstone::nand::{Chip, Flash, FlashError, Geometry, Read, Timing};
use flagstone::units::{Lpn, Nanos, Pbn, Ppn, TxId};
use flagstone_store::medium::{Medium, Recorded};
use flagstone_store::{MEDIUM_PAGE_BYTES, PageStore, StoreError};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Pages of a medium before the first block.
const HEAD_PAGES: u64 = 2;

/// Where the parts of marks and of pages are.
#[derive(Debug, Clone)]
struct Fields {
    mark: Range<usize>,
    spare: Range<usize>,
    bytes: Range<usize>,
    generation: Range<usize>,
    /// Where what ends a page begins.
    end: usize,
}

impl Fields {
    fn new() -> Fields {
        let field = |record: &str, field: &str| {
            let mut records = flagstone_store::LAYOUTS.iter();
            let found = records.find(|layout| layout.path.ends_with(record));
            let fields = &found.expect("stores have it").fields;
            let found = fields.iter().find(|(name, ..)| *name == field);
            let &(_, start, len, _) = found.expect("it has it");
            start..start + len
        };
        let end = MEDIUM_PAGE_BYTES - (field("::trailer", "CRC").end);
        let behind = |range: Range<usize>| end + range.start..end + range.end;
        Fields {
            mark: field("::mark", "GENERATION"),
            spare: behind(field("::trailer", "SPARE")),
            bytes: behind(field("::trailer", "BYTES")),
            generation: behind(field("::trailer", "GENERATION")),
            end,
        }
    }
}

/// An operation of a device.
#[derive(Debug, Clone)]
enum Op {
    Program { at: Ppn, page: Arc<[u8]> },
    Erase { block: Pbn, generation: u64 },
}

/// What a store has done to its medium.
#[derive(Debug, Clone)]
pub(super) struct History {
    ops: Arc<Mutex<Vec<Op>>>,
    fields: Arc<Fields>,
    pages_per_block: u32,
}

impl History {
    pub(super) fn new(pages_per_block: u32) -> History {
        History {
            ops: Arc::default(),
            fields: Arc::new(Fields::new()),
            pages_per_block,
        }
    }

    /// How many operations there are so far.
    pub(super) fn len(&self) -> usize {
        self.ops.lock().expect("one thread").len()
    }

    /// A history of its own that begins with the first so many operations.
    pub(super) fn begin(&self, with: usize) -> History {
        let ops = self.ops.lock().expect("one thread")[..with].to_vec();
        History {
            ops: Arc::new(Mutex::new(ops)),
            ..self.clone()
        }
    }

    /// Which page of which block lies in a page of the medium; no page for a mark.
    fn place(&self, page: u64) -> Option<(Pbn, Option<Ppn>)> {
        let stride = u64::from(self.pages_per_block) + 1;
        let data = page.checked_sub(HEAD_PAGES)?;
        let (block, at) = ((data / stride) as u32, (data % stride) as u32);
        let ppn = at
            .checked_sub(1)
            .map(|at| block * self.pages_per_block + at);
        Some((Pbn(block), ppn.map(Ppn)))
    }

    fn note(&self, offset: u64, bytes: &[u8]) {
        let first = offset / MEDIUM_PAGE_BYTES as u64;
        let mut ops = self.ops.lock().expect("one thread");
        for (page, number) in bytes.chunks_exact(MEDIUM_PAGE_BYTES).zip(first..) {
            let op = match self.place(number) {
                Some((block, None)) if page.starts_with(b"Mark") => Op::Erase {
                    block,
                    generation: get(page, self.fields.mark.clone()),
                },
                Some((_, Some(at))) if get(page, self.fields.generation.clone()) > 0 => {
                    Op::Program {
                        at,
                        page: page.into(),
                    }
                }
                // A superblock, or room that is cleared.
                _ => continue,
            };
            ops.push(op);
        }
    }

    /// Carries out the first so many operations on a chip, as far as a medium has them; all of them
    /// without a medium.
    fn play(
        &self,
        count: usize,
        left: Option<&Recorded>,
        (geometry, spare_bytes): (Geometry, usize),
    ) -> Torn {
        let chip = Chip::new(geometry, Timing::default(), spare_bytes);
        let (mut chip, mut torn, mut now) = (chip, BTreeSet::new(), Nanos::ZERO);
        let read = |number: u64| {
            let mut page = [0; MEDIUM_PAGE_BYTES];
            let read = left.map(|left| left.read_at(number * MEDIUM_PAGE_BYTES as u64, &mut page));
            read.map(|read| read.map(|()| page).expect("memory"))
        };
        let stride = u64::from(self.pages_per_block) + 1;
        let mark_of = |block: Pbn| read(HEAD_PAGES + u64::from(block.0) * stride);
        let marks: Vec<u64> = (0..geometry.blocks())
            .map(|block| match mark_of(Pbn(block)) {
                Some(mark) if mark.starts_with(b"Mark") => get(&mark, self.fields.mark.clone()),
                Some(_) => 0,
                None => u64::MAX,
            })
            .collect();
        let fields = &self.fields;
        for op in &self.ops.lock().expect("one thread")[..count] {
            // Blocks that the store has not got, as the superblock has not landed that adds them.
            let block = match op {
                Op::Erase { block, .. } => *block,
                Op::Program { at, .. } => Pbn(at.0 / self.pages_per_block),
            };
            let Some(&mark) = marks.get(block.index()) else {
                continue;
            };
            now = match op {
                Op::Erase { block, generation } if *generation <= mark => {
                    torn.retain(|&at| geometry.block_of(at) != *block);
                    chip.erase(now, *block).expect("it does not fail")
                }
                Op::Program { at, page } => {
                    let generation = get(page, fields.generation.clone());
                    if generation > mark {
                        continue;
                    }
                    if generation == mark {
                        let place = u64::from(at.0 % self.pages_per_block) + 1;
                        let number = HEAD_PAGES + u64::from(block.0) * stride + place;
                        let found = read(number).expect("its marks were read");
                        if found[..] != page[..] {
                            if get(&found, fields.generation.clone()) == generation {
                                torn.insert(*at);
                            }
                            continue;
                        }
                    }
                    let bytes = get(page, fields.bytes.clone()) as usize;
                    let spare = &page[fields.spare.clone()][..spare_bytes];
                    let data = &page[..fields.end][..bytes];
                    chip.program(now, *at, data, spare)
                        .expect("it does not fail")
                }
                Op::Erase { .. } => continue,
            };
        }
        chip.reset_time();
        Torn { chip, torn }
    }

    /// Starts a device on a chip after the first so many operations, as far as a medium has them,
    /// and holds its state against that of a store on this medium. Returns whether that would be
    /// another one had all operations landed.
    ///
    /// # Errors
    /// What differs.
    pub(super) fn compare(
        &self,
        count: usize,
        left: &Recorded,
        store: &mut PageStore,
        pages: Pages,
    ) -> Result<bool, String> {
        let of_store = State::of_store(store, pages)?;
        let ftl = store.device().ftl();
        let (kind, config) = (store.info().protocol, *ftl.config());
        let spare_bytes = kind.info().format.spare_bytes(&config);
        let shape = (*ftl.geometry(), spare_bytes);
        let start = |chip: Torn| {
            let (options, start) = (Options::default(), Nanos::ZERO);
            let opened = Device::open(Box::new(chip), kind, config, &options, start);
            opened.map_err(|error| error.to_string())
        };
        let device = start(self.play(count, Some(left), shape));
        let device = device.map_err(|error| format!("on the chip it does not open: {error}"))?;
        if let Some(what) = State::of_device(device, pages).differs(&of_store) {
            return Err(format!("on the chip {what} are others than in the store"));
        }
        // The control.
        let all = start(self.play(count, None, shape));
        Ok(all.is_ok_and(|device| State::of_device(device, pages).differs(&of_store).is_some()))
    }
}

/// What a restart finds.
struct State {
    contents: Vec<Result<Option<Vec<u8>>, String>>,
    places: Vec<Option<Ppn>>,
    blocks: Vec<(BlockState, u32)>,
    numbers: (u64, TxId),
}

impl State {
    fn of(device: &Device, pages: Pages, contents: Vec<Result<Option<Vec<u8>>, String>>) -> State {
        let ftl = device.ftl();
        let at = (0..pages.count).map(|index| Lpn(pages.at(index)));
        let at = at.filter(|at| at.0 < ftl.logical_pages());
        let blocks = (0..ftl.geometry().blocks()).map(Pbn);
        State {
            contents,
            places: at.map(|at| ftl.slot(at).ppn()).collect(),
            blocks: blocks
                .map(|block| (ftl.block_state(block), ftl.live_in(block)))
                .collect(),
            numbers: (ftl.last_seq(), device.last_tx()),
        }
    }

    fn of_store(store: &mut PageStore, pages: Pages) -> Result<State, String> {
        let mut page = vec![0; PageStore::PAGE_BYTES];
        let mut contents = Vec::new();
        for at in (0..pages.count).map(|index| Lpn(pages.at(index))) {
            contents.push(match store.read(None, at, &mut page) {
                Ok(bytes) => Ok(bytes.map(|bytes| page[..bytes].to_vec())),
                Err(StoreError::Device(error)) => Err(error.to_string()),
                Err(error) => return Err(error.to_string()),
            });
        }
        Ok(State::of(store.device(), pages, contents))
    }

    fn of_device(mut device: Device, pages: Pages) -> State {
        let now = device.recovered_at();
        let contents = (0..pages.count).map(|index| {
            let at = Lpn(pages.at(index));
            if at.0 >= device.pages() {
                return Ok(None);
            }
            let read = device.read(now, None, at);
            let bytes = read.map(|(_, bytes)| bytes.map(<[u8]>::to_vec));
            bytes.map_err(|error| error.to_string())
        });
        let contents = contents.collect();
        State::of(&device, pages, contents)
    }

    /// What is not the same.
    fn differs(&self, other: &State) -> Option<&'static str> {
        [
            (self.contents == other.contents, "the contents"),
            (self.places == other.places, "the places of pages"),
            (self.blocks == other.blocks, "the blocks in use"),
            (self.numbers == other.numbers, "the last numbers"),
        ]
        .into_iter()
        .find_map(|(same, what)| (!same).then_some(what))
    }
}

/// A medium whose operations are noted.
pub(super) struct Noting<M> {
    pub(super) below: M,
    pub(super) history: History,
}

impl<M: Medium> Medium for Noting<M> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.below.write_at(offset, bytes)?;
        self.history.note(offset, bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.below.sync()
    }

    fn bytes(&self) -> io::Result<u64> {
        self.below.bytes()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.below.reserve(bytes)
    }
}

/// A chip, some pages of which cannot be read.
struct Torn {
    chip: Chip,
    torn: BTreeSet<Ppn>,
}

impl Flash for Torn {
    fn geometry(&self) -> &Geometry {
        self.chip.geometry()
    }

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        match self.torn.contains(&at) {
            true => Err(FlashError::Uncorrectable { at, done: now }),
            false => self.chip.read(now, at, data, spare),
        }
    }

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.chip.program(now, at, data, spare)
    }

    fn reprogram(
        &mut self,
        now: Nanos,
        at: Ppn,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.chip.reprogram(now, at, offset, bytes)
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        let geometry = *self.chip.geometry();
        self.torn.retain(|&at| geometry.block_of(at) != block);
        self.chip.erase(now, block)
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        self.chip.sync(now, until)
    }

    fn is_factory_bad(&self, block: Pbn) -> bool {
        self.chip.is_factory_bad(block)
    }

    fn peek(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        match self.torn.contains(&at) {
            true => None,
            false => self.chip.peek(at, data, spare),
        }
    }
}
