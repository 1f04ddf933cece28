//! A simulated chip that accompanies the medium of a run: the same clients use a store on each, and
//! both are cut at the same operation, with the same outcome.
//!
//! ```text
//!   clients ──┬── PageStore ── Listening ── flash on a medium ── Recorded ──cut──> left ── restart
//!             │                    │ operations, in order          │ what has landed       ║ same?
//!             └── PageStore ── Cutting ──── PowerCut ── Chip ──────┴───cut──────> chip ── restart
//! ```
//!
//! The store on the medium executes each call first. The store on the chip follows, and must issue
//! the same programs, erases and syncs, with the same bytes. A copy of the medium made for a cut
//! knows the number of operations issued, and the chip is copied at the same operation. The outcome
//! of operations in flight is read from the cut medium: its marks tell which erases have landed,
//! its pages which programs have landed or are torn.
//!
//! A close completes everything in flight. The chip is then power-cycled with the state of the
//! medium.

mod again;

use crate::stores::lie::Lie;
use again::WholeAgain;
use flagstone::forward_flash;
use flagstone::ftl::statement;
use flagstone::nand::{
    Change, Chip, Flash, FlashError, Geometry, Left, PowerCut, Read, SaidAtErase, Timing,
};
use flagstone::units::{Nanos, Pbn, Ppn};
use flagstone_store::medium::Recorded;
use flagstone_store::{Glance, OpenOptions, Shown};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

/// An operation, reduced to what is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A page, and a checksum of its bytes.
    Program(Ppn, u64),
    Erase(Pbn),
    Sync,
    Grow(u32),
}

/// Per block: the sequence numbers of its erases in this opening.
type Erases = BTreeMap<Pbn, Vec<u32>>;

/// The chip at one operation.
#[derive(Clone)]
struct Moment {
    power: PowerCut,
    erases: Erases,
    /// The number of the opening on the medium, if it writes anything.
    opening: u32,
}

/// Outcomes of operations in flight at cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Landed {
    /// Cuts after which both stores were compared.
    pub cuts: u64,
    /// Openings that used the tables of a close. Everything but counters is compared.
    pub by_tables: u64,
    /// Operations in flight that had landed completely.
    pub all: u64,
    /// Operations in flight of which nothing had landed.
    pub nothing: u64,
    /// Torn programs.
    pub torn: u64,
    /// Overwritten pages whose old contents were complete again.
    pub older: u64,
}

impl Landed {
    /// Adds the counts of another run.
    pub(super) fn add(&mut self, other: &Landed) {
        self.cuts += other.cuts;
        self.by_tables += other.by_tables;
        self.all += other.all;
        self.nothing += other.nothing;
        self.torn += other.torn;
        self.older += other.older;
    }
}

struct State {
    /// The chip, once the size of the store is known.
    now: Option<Moment>,
    /// Number of erases in this opening.
    erased: u32,
    /// Contents of the medium's newest mark at the last opening that read the marks.
    says: Option<SaidAtErase>,
    /// Number of operations issued to the flash of the medium, and to the chip.
    issued: u64,
    followed: u64,
    /// Operations of the medium that the chip still has to follow.
    ahead: VecDeque<Event>,
    /// Block counts after growths of the medium that the chip still has to follow.
    grown: VecDeque<u32>,
    /// Operations at which to copy the chip, and the copies.
    wanted: BTreeSet<u64>,
    taken: BTreeMap<u64, Moment>,
    /// The first difference between the two stores.
    differs: Option<String>,
    /// Number of openings that used the tables of a close.
    by_tables: u64,
}

/// A handle to the accompanying chip. Clones refer to the same chip.
#[derive(Clone)]
pub(super) struct OnChip(Arc<Mutex<State>>);

impl OnChip {
    /// A chip that is created at the first opening.
    pub(super) fn blank() -> OnChip {
        OnChip::with(None)
    }

    /// A chip in the state `moment`, or that is not created yet, without operations to follow.
    fn with(moment: Option<Moment>) -> OnChip {
        OnChip(Arc::new(Mutex::new(State {
            now: moment,
            erased: 0,
            says: None,
            issued: 0,
            followed: 0,
            ahead: VecDeque::new(),
            grown: VecDeque::new(),
            wanted: BTreeSet::new(),
            taken: BTreeMap::new(),
            differs: None,
            by_tables: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics here")
    }

    /// Marks the current operation of the medium's flash, at which the chip will be copied. Returns
    /// its number.
    pub(super) fn mark(&self) -> u64 {
        let state = &mut *self.state();
        state.wanted.insert(state.issued);
        state.issued
    }

    /// Discards the copies.
    pub(super) fn forget(&self) {
        let state = &mut *self.state();
        state.wanted.clear();
        state.taken.clear();
    }

    /// Records an opening from a close's tables, whose findings match the chip.
    pub(super) fn opened_by_tables(&self) {
        self.state().by_tables += 1;
    }

    /// The number of openings from a close's tables since the last call.
    pub(super) fn take_by_tables(&self) -> u64 {
        std::mem::take(&mut self.state().by_tables)
    }

    /// Records a difference between the two stores.
    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        self.state().differs.get_or_insert_with(what);
    }

    /// Returns the recorded difference, if there is one, as an error.
    pub(super) fn same(&self) -> Result<(), String> {
        let state = self.state();
        match (&state.differs, state.ahead.front()) {
            (Some(what), _) => Err(what.clone()),
            (None, Some(event)) => Err(format!("the chip did not see {event:?}")),
            (None, None) => Ok(()),
        }
    }

    /// Begins a new opening of the medium, whose size is `geometry`. Creates the chip at the first
    /// opening, with room for a store of `blocks_max` blocks.
    pub(super) fn opens(&self, glance: Option<&Glance>, geometry: &Geometry, blocks_max: u32) {
        let state = &mut *self.state();
        let opening = glance.map_or(0, Glance::openings) + 1;
        match &mut state.now {
            Some(now) => now.opening = opening,
            None => {
                let mut roomy = *geometry;
                roomy.blocks_per_plane = blocks_max.max(2 * geometry.blocks());
                // An odd page size makes each page be copied separately.
                roomy.page_bytes += 1;
                let chip = Chip::new(roomy, timing(), geometry.spare_bytes as usize);
                state.now = Some(Moment {
                    power: PowerCut::new(chip),
                    erases: Erases::new(),
                    opening,
                });
            }
        }
    }

    /// Wraps a flash so that each operation is recorded before it is executed.
    pub(super) fn listen(&self, below: Box<dyn Flash>) -> Box<dyn Flash> {
        Box::new(Listening {
            below,
            chip: self.clone(),
        })
    }

    /// The chip's flash, limited to the blocks of `geometry`.
    pub(super) fn flash(&self, geometry: Geometry) -> Box<dyn Flash> {
        Box::new(Cutting {
            chip: self.clone(),
            geometry,
        })
    }

    /// Called after a close: power-cycles the chip. The medium shows what has landed.
    pub(super) fn closed(&self, medium: &Recorded, options: &OpenOptions) -> Result<(), String> {
        let mut state = self.state();
        // The close of a store on a medium waits for everything that the next opening relies on.
        state.ahead.retain(|event| *event != Event::Sync);
        // The chip is the same at all operations that it need not follow, so it is copied for each.
        let (issued, followed) = (state.issued, state.followed);
        let wanted: Vec<u64> = state.wanted.range(followed..=issued).copied().collect();
        for at in wanted {
            if !state.taken.contains_key(&at) {
                let now = state.now.clone().expect("it was opened");
                state.taken.insert(at, now);
            }
        }
        let now = state.now.take().expect("it was opened");
        state.issued += 1;
        state.followed = state.issued;
        state.erased = 0;
        drop(state);
        let (chip, _) = now.cut(medium, options, Lie::None)?;
        self.state().now = Some(Moment::on(chip));
        Ok(())
    }

    /// The chip after a cut at an operation, if the cut medium shows which operations have landed.
    pub(super) fn cut(
        &self,
        at: u64,
        left: &Recorded,
        options: &OpenOptions,
        lie: Lie,
    ) -> Result<(OnChip, Landed), String> {
        self.same()?;
        let state = self.state();
        let moment = match (state.taken.get(&at), state.followed == at) {
            (Some(moment), _) => moment.clone(),
            (None, true) => state.now.clone().expect("it was opened"),
            (None, false) => return Err(format!("the chip has no operation {at}")),
        };
        drop(state);
        let (chip, landed) = moment.cut(left, options, lie)?;
        Ok((OnChip::with(Some(Moment::on(chip))), landed))
    }
}

/// Timing with zero latencies, so that instants equal those of a medium, which only counts
/// operations.
fn timing() -> Timing {
    Timing {
        read: Nanos::ZERO,
        program: Nanos(1),
        reprogram: Nanos(1),
        erase: Nanos(1),
        transfer_ps_per_byte: 0,
    }
}

impl Moment {
    fn on(chip: Chip) -> Moment {
        Moment {
            power: PowerCut::new(chip),
            erases: Erases::new(),
            opening: 0,
        }
    }

    /// Cuts the power with the outcome seen on a medium.
    fn cut(
        self,
        left: &Recorded,
        options: &OpenOptions,
        lie: Lie,
    ) -> Result<(Chip, Landed), String> {
        let cannot = |error| format!("the medium cannot be looked at: {error}");
        let glance = Glance::at(Box::new(left.clone()), options).map_err(cannot)?;
        let ops = self.power.in_flight();
        // Per block: the number of its erases in this opening that no cut can undo (`era`, which
        // the loop over operations in flight then counts up), and of those that have landed.
        let mut eras: BTreeMap<Pbn, (usize, usize)> = BTreeMap::new();
        let geometry = *self.power.geometry();
        let none = Vec::new();
        for op in &ops {
            let block = match *op {
                Change::Program(at) => geometry.block_of(at),
                Change::Erase(block) => block,
            };
            if eras.contains_key(&block) {
                continue;
            }
            let erases = self.erases.get(&block).unwrap_or(&none);
            let in_flight = ops.iter().filter(|&&op| op == Change::Erase(block)).count();
            let safe = erases.len() - in_flight;
            let is_there = glance.as_ref().filter(|glance| block.0 < glance.blocks());
            let last = is_there.map(|glance| glance.last_erase(block));
            let landed = match last.transpose().map_err(cannot)?.flatten() {
                Some((opening, number)) if opening == self.opening => {
                    erases.iter().filter(|&&erase| erase <= number).count()
                }
                _ => 0,
            };
            if landed < safe {
                return Err(format!(
                    "the medium has lost an erase of block {block} that was synced"
                ));
            }
            eras.insert(block, (safe, landed));
        }
        let mut outcomes = Vec::with_capacity(ops.len());
        let mut again = WholeAgain::default();
        for op in &ops {
            outcomes.push(match *op {
                Change::Erase(block) => {
                    let (era, landed) = eras.get_mut(&block).expect("all have one");
                    *era += 1;
                    if *era <= *landed {
                        Left::All
                    } else {
                        Left::Nothing
                    }
                }
                Change::Program(at) => {
                    let (era, landed) = eras[&geometry.block_of(at)];
                    match (era.cmp(&landed), &glance) {
                        // An erase after this program has landed, so the program has as well.
                        (std::cmp::Ordering::Less, _) => Left::All,
                        (std::cmp::Ordering::Equal, Some(glance)) => {
                            match glance.page(at).map_err(cannot)? {
                                // The page holds its previous contents again: see `again`.
                                Shown::Whole if again.note(&self.power, glance, at)? => {
                                    Left::Nothing
                                }
                                Shown::Whole => Left::All,
                                Shown::Blank => Left::Nothing,
                                Shown::Torn => Left::Torn,
                            }
                        }
                        // An erase before this program has not landed, or there is no store.
                        _ => Left::Nothing,
                    }
                }
            });
        }
        if lie == Lie::Landings {
            // Pages of a block that was erased later do not count.
            let counts = |(op, left): &(&Change, &mut Left)| {
                let is_page = matches!(**op, Change::Program(at)
                    if eras[&geometry.block_of(at)].0 == eras[&geometry.block_of(at)].1);
                is_page && **left == Left::All
            };
            let mut all = ops.iter().zip(&mut outcomes);
            if let Some((_, last)) = all.rfind(counts) {
                *last = Left::Nothing;
            }
        }
        let count = |wanted| outcomes.iter().filter(|&&left| left == wanted).count() as u64;
        let landed = Landed {
            cuts: 1,
            by_tables: 0,
            all: count(Left::All),
            nothing: count(Left::Nothing),
            torn: count(Left::Torn),
            older: again.pages(),
        };
        Ok((again.put_back(self.power.pull_as(&outcomes)), landed))
    }
}

/// Size of the spare area of a page with a horizon; its last field is the number of an erase.
const WITH_STATEMENT: usize = 34;

/// A checksum of a program, without the erase count: the chip counts erases separately.
fn sum(data: &[u8], spare: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let end = WITH_STATEMENT - statement::ERASE.len();
    let spare = &spare[..spare.len().min(end)];
    (data, spare).hash(&mut hasher);
    hasher.finish()
}

/// The flash of the medium; records operations.
struct Listening {
    below: Box<dyn Flash>,
    chip: OnChip,
}

impl Listening {
    fn tell(&self, event: Event) {
        let state = &mut *self.chip.state();
        state.issued += 1;
        state.ahead.push_back(event);
    }
}

impl Flash for Listening {
    forward_flash!([below] but program erase sync grow);

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.tell(Event::Program(at, sum(data, spare)));
        self.below.program(now, at, data, spare)
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        self.erase_saying(now, block, 0, &[])
    }

    fn erase_saying(
        &mut self,
        now: Nanos,
        block: Pbn,
        number: u64,
        says: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.tell(Event::Erase(block));
        self.below.erase_saying(now, block, number, says)
    }

    /// The chip stores no block marks, so this is passed on from the medium.
    fn said_at_erase(&self) -> Option<SaidAtErase> {
        let says = self.below.said_at_erase();
        self.chip.state().says.clone_from(&says);
        says
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        self.tell(Event::Sync);
        self.below.sync(now, until)
    }

    fn grow(&mut self, blocks: u32) -> Result<(), FlashError> {
        self.tell(Event::Grow(blocks));
        let grown = self.below.grow(blocks);
        let has = self.below.geometry().blocks();
        self.chip.state().grown.push_back(has);
        grown
    }
}

/// The chip, limited to its first blocks: those that the medium has.
struct Cutting {
    chip: OnChip,
    geometry: Geometry,
}

impl Cutting {
    fn moment<T>(&self, act: impl FnOnce(&mut Moment) -> T) -> T {
        act(self.chip.state().now.as_mut().expect("it was opened"))
    }

    /// Counts an operation, which must equal that of the medium.
    fn follow(&self, event: Event) {
        let state = &mut *self.chip.state();
        state.take_if_wanted();
        state.followed += 1;
        let first = state.ahead.pop_front();
        if first != Some(event) {
            let differs = || format!("the chip is given {event:?}, and the medium {first:?}");
            state.differs.get_or_insert_with(differs);
        }
    }
}

impl State {
    fn take_if_wanted(&mut self) {
        let at = self.followed;
        if self.wanted.contains(&at) && !self.taken.contains_key(&at) {
            let now = self.now.clone().expect("it was opened");
            self.taken.insert(at, now);
        }
    }
}

impl Flash for Cutting {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Reads a page of the chip; the read takes no time, as on a medium.
    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        // A medium does not wait for earlier requests.
        let done = now;
        match self.moment(|chip| chip.power.read(now, at, data, spare)) {
            Ok(read) => Ok(Read { done, ..read }),
            Err(FlashError::Uncorrectable { at, .. }) => {
                Err(FlashError::Uncorrectable { at, done })
            }
            Err(other) => Err(other),
        }
    }

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.follow(Event::Program(at, sum(data, spare)));
        self.moment(|chip| {
            chip.power.write_over(at);
            chip.power.program(now, at, data, spare)
        })
    }

    fn reprogram(&mut self, _: Nanos, _: Ppn, _: usize, _: &[u8]) -> Result<Nanos, FlashError> {
        unreachable!("a store has no protocol that reprograms")
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        self.follow(Event::Erase(block));
        let state = &mut *self.chip.state();
        state.erased += 1;
        let chip = state.now.as_mut().expect("it was opened");
        chip.erases.entry(block).or_default().push(state.erased);
        chip.power.erase(now, block)
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        self.follow(Event::Sync);
        // A cut during a sync of the medium corresponds to a chip before the wait.
        self.chip.state().take_if_wanted();
        self.moment(|chip| chip.power.sync(now, until))
    }

    fn never_fails(&self) -> bool {
        true
    }

    fn said_at_erase(&self) -> Option<SaidAtErase> {
        self.chip.state().says.clone()
    }

    fn is_factory_bad(&self, block: Pbn) -> bool {
        self.moment(|chip| chip.power.is_factory_bad(block))
    }

    fn grow(&mut self, blocks: u32) -> Result<(), FlashError> {
        self.follow(Event::Grow(blocks));
        self.chip.state().take_if_wanted();
        // The medium may have lacked room.
        let grown = self.chip.state().grown.pop_front();
        let blocks = grown.unwrap_or(self.geometry.blocks());
        let has = self.moment(|chip| chip.power.geometry().blocks());
        assert!(blocks <= has, "the chip beside the medium is too small");
        self.geometry.blocks_per_plane = blocks;
        Ok(())
    }

    fn peek(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        self.moment(|chip| chip.power.peek(at, data, spare))
    }
}
