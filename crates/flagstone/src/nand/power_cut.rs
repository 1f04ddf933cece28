//! A power cut at any flash operation, around a [`Chip`].
//!
//! Every operation is executed at once, and the bytes that it replaces are saved. An operation is
//! *safe* once a [`Flash::sync`] has waited for it and that wait has ended. All others are in
//! flight. At the cut each operation in flight has either landed or not, and one of those that have
//! not landed may be torn. Operations of one block keep their order around an erase: a page
//! programmed after an erase exists only if the erase has landed. An operation issued for an
//! instant after the cut has not begun: concurrent clients issue operations out of the order of
//! time.
//!
//! Where pages share cells ([`Pairing`](super::Pairing)), a program of an upper page that was in
//! flight and has not landed may have begun. With probability 1/2 the pages below it become
//! unreadable, even if they were safe.

mod landing;
mod moment;
mod paired;

pub use landing::{Change, Landings, Left};
pub use moment::Moment;

use super::chip::{Damage, SavedBlock};
use super::{Cells, Chip, Flash, FlashError, Read};
use crate::dice::Dice;
use crate::forward_flash;
use crate::units::{Nanos, Pbn, Ppn};

/// When the power fails, and the outcome.
///
/// Example: [`PowerCut`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cut {
    /// The cut falls as this operation (program, reprogram or erase, from 0) is issued.
    pub at: u64,
    /// Bits that decide which operations in flight have landed and which one is torn.
    pub dice: u64,
    /// Whether one of the operations that did not land is torn.
    pub torn: bool,
}

/// The kind of operation that a cut waits for, from operation [`Cut::at`] on. If no such operation
/// comes within the limit of [`PowerCut::aim`], the cut falls on the next operation of any kind. If
/// a cut at an [`Aim::Erase`] or [`Aim::Reprogram`] tears an operation, it tears that one unless it
/// has landed.
///
/// Example: [`Moment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Aim {
    /// Any kind.
    #[default]
    Any,
    /// An erase, while other operations of the same collection are in flight.
    Erase,
    /// A reprogram, which sets a flag.
    Reprogram,
    /// An erase while programs or reprograms of other blocks are in flight that no sync has waited
    /// for. After half of these cuts only the erase has landed.
    Overtaking,
    /// An erase while a reprogram of another block is in flight: the reprogram sets a flag that may
    /// replace one in the erased block.
    OverFlag,
    /// An erase while the erase of another block is in flight: the two may land in either order.
    OverErase,
    /// Operation [`Cut::at`] of any kind, with the worst outcomes for erases that overtake.
    /// [`Cut::dice`] modulo 4 selects what has landed. 0: that operation alone; 1: all erases in
    /// flight; 2: some of them; 3: some of all operations in flight.
    Adverse,
    /// Operation [`Cut::at`] of any kind. [`Cut::dice`] states for each operation whether it has
    /// landed, as in [`Moment::landings`].
    Exact,
}

impl Aim {
    /// Whether this waits for erases that overtake other operations.
    fn overtakes(self) -> bool {
        matches!(self, Aim::Overtaking | Aim::OverFlag | Aim::OverErase)
    }
}

/// Number of operations within which a cut waits for its kind.
const PATIENCE: u64 = 300;

/// The bytes that an operation replaced.
#[derive(Debug, Clone)]
enum Undo {
    Program {
        at: Ppn,
        was: Option<Damage>,
    },
    Reprogram {
        at: Ppn,
        offset: usize,
        old: Vec<u8>,
        new: Vec<u8>,
        programs: u8,
    },
    Erase {
        saved: Box<SavedBlock>,
    },
}

impl Undo {
    fn describe(&self, block: Pbn) -> String {
        match self {
            Undo::Program { at, .. } => format!("program p{at}"),
            Undo::Reprogram { at, .. } => format!("reprogram p{at}"),
            Undo::Erase { .. } => format!("erase b{block}"),
        }
    }
}

#[derive(Debug, Clone)]
struct InFlight {
    block: Pbn,
    /// The instant of issue, or the later instant of an operation that must come first.
    issued: Nanos,
    done: Nanos,
    /// The instant at which the wait for the operation ends; `None` before a wait covers it.
    waited: Option<Nanos>,
    undo: Undo,
}

/// The fate of an operation that was in flight at the cut.
///
/// ```
/// use flagstone::nand::{Chip, Cut, Fate, Flash, FlashError, PowerCut};
/// use flagstone::units::{Nanos, Ppn};
///
/// let cut = Cut { at: 1, dice: 7, torn: true };
/// let mut flash = PowerCut::new(Chip::default()).telling().arm(cut);
/// flash.program(Nanos::ZERO, Ppn(0), b"one", &[])?;
/// let _ = flash.program(Nanos::ZERO, Ppn(1), b"two", &[]);
/// let fate = |what: &str, landed, torn| Fate { what: what.into(), landed, torn };
/// let fates = [fate("program p0", false, false), fate("program p1", false, true)];
/// assert_eq!(flash.fates(), fates);
/// # Ok::<(), FlashError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// Description of the operation.
    pub what: String,
    /// Whether it took effect.
    pub landed: bool,
    /// Whether it was torn, if it did not take effect.
    pub torn: bool,
}

/// Cuts the power of a chip at a chosen operation.
///
/// ```
/// use flagstone::nand::{Chip, Cut, Flash, FlashError, PowerCut};
/// use flagstone::units::{Nanos, Ppn};
///
/// // The power fails as the second program, reprogram or erase is issued.
/// let cut = Cut { at: 1, dice: 7, torn: false };
/// let mut flash = PowerCut::new(Chip::default()).arm(cut);
/// let done = flash.program(Nanos::ZERO, Ppn(0), b"waited for", &[])?;
/// let now = flash.sync(done, done)?;
/// let failed = flash.program(now, Ppn(1), b"in flight", &[]);
/// assert_eq!(failed, Err(FlashError::PowerLost));
///
/// // What was waited for is there. Page 1 is there or not: `dice` decides.
/// let (mut chip, mut data) = (flash.into_chip(), vec![0; 4096]);
/// let read = chip.read(Nanos::ZERO, Ppn(0), &mut data, &mut [])?;
/// assert_eq!(&data[..read.data_bytes], b"waited for");
/// # Ok::<(), FlashError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PowerCut {
    chip: Chip,
    /// Which pages share cells, if any do.
    cells: Option<Cells>,
    cut: Option<Cut>,
    aim: Aim,
    issued: u64,
    off: bool,
    in_flight: Vec<InFlight>,
    tell: bool,
    fates: Vec<Fate>,
    /// Maximum number of recorded moments.
    moments_max: usize,
    moments: Vec<Moment>,
}

impl PowerCut {
    /// A device without a cut until [`PowerCut::arm`] is called.
    pub fn new(chip: Chip) -> Self {
        PowerCut {
            cells: Cells::new(chip.geometry()),
            chip,
            cut: None,
            aim: Aim::Any,
            issued: 0,
            off: false,
            in_flight: Vec::new(),
            tell: false,
            fates: Vec::new(),
            moments_max: 0,
            moments: Vec::new(),
        }
    }

    /// Records the fate of each operation in flight, see [`PowerCut::fates`].
    #[must_use]
    pub fn telling(mut self) -> Self {
        self.tell = true;
        self
    }

    /// The fates of the operations that were in flight at the cut, in the order of their issue.
    pub fn fates(&self) -> &[Fate] {
        &self.fates
    }

    /// Sets the cut. Operations are counted from now on.
    #[must_use]
    pub fn arm(mut self, cut: Cut) -> Self {
        self.issued = 0;
        self.cut = Some(cut);
        self
    }

    /// Sets the kind of operation that the cut waits for, within 300 operations.
    #[must_use]
    pub fn aim(mut self, aim: Aim) -> Self {
        self.aim = aim;
        self
    }

    /// Whether the power has failed.
    pub fn is_off(&self) -> bool {
        self.off
    }

    /// Programs, reprograms and erases issued since the cut was armed.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    /// Cuts the power now, between two operations. Returns the chip as a restart finds it.
    pub fn pull(mut self, dice: u64, torn: bool) -> Chip {
        if !self.off {
            self.land(Nanos(u64::MAX), dice, torn);
        }
        self.chip.reset_time();
        self.chip
    }

    /// The chip as a restart finds it. If there was no cut, all operations in flight have landed.
    pub fn into_chip(mut self) -> Chip {
        self.chip.reset_time();
        self.chip
    }

    /// The chip in its present state.
    pub fn chip(&self) -> &Chip {
        &self.chip
    }

    /// Makes a page blank whose program was cut, as on a medium that can overwrite pages.
    pub fn write_over(&mut self, at: Ppn) {
        if self.chip.damage(at).is_some() {
            self.chip.unprogram(at, None);
            self.chip
                .go_on_behind_last(self.chip.geometry().block_of(at));
        }
    }

    /// Called before an operation takes effect at `now`. Returns whether the power fails with it.
    fn fails(&mut self, now: Nanos, kind: Aim) -> Result<bool, FlashError> {
        if self.off {
            return Err(FlashError::PowerLost);
        }
        // Operations that are safe are dropped now and then, to save memory.
        if self.in_flight.len() >= 64 {
            self.in_flight
                .retain(|op| op.waited.is_none_or(|end| end > now));
        }
        let at = self.issued;
        self.issued += 1;
        Ok(self.cut.is_some_and(|cut| match self.aim {
            Aim::Any | Aim::Adverse | Aim::Exact => cut.at == at,
            aim => cut.at <= at && (aim == kind || at - cut.at >= PATIENCE),
        }))
    }

    /// Whether an erase at `now` overtakes operations of other blocks as [`Aim`] requires.
    fn overtakes(&self, now: Nanos, block: Pbn) -> bool {
        self.in_flight.iter().any(|op| {
            let counts = match op.undo {
                Undo::Reprogram { .. } => self.aim != Aim::OverErase,
                Undo::Program { .. } => self.aim == Aim::Overtaking,
                Undo::Erase { .. } => self.aim == Aim::OverErase,
            };
            let is_safe = op.waited.is_some_and(|end| end <= now);
            counts && op.block != block && op.issued <= now && !is_safe
        })
    }

    /// Records an operation that was just executed, and cuts the power if the cut falls on it.
    fn keep(
        &mut self,
        now: Nanos,
        done: Nanos,
        block: Pbn,
        undo: Undo,
        fails: bool,
    ) -> Result<Nanos, FlashError> {
        let mut op = InFlight {
            block,
            issued: now,
            done,
            waited: None,
            undo,
        };
        for earlier in &self.in_flight {
            if earlier.issued > op.issued && earlier.block == block && orders(earlier, &op) {
                op.issued = earlier.issued;
            }
        }
        self.in_flight.push(op);
        if fails {
            self.note_cut(now);
            let cut = self.cut.expect("a cut is armed");
            self.land(now, cut.dice, cut.torn);
            return Err(FlashError::PowerLost);
        }
        Ok(done)
    }

    /// Decides what has landed. Walks back in time: if a later operation of a block has landed, an
    /// earlier one has landed too where the order requires it.
    fn land(&mut self, now: Nanos, dice: u64, torn: bool) {
        self.off = true;
        let mut ops = std::mem::take(&mut self.in_flight);
        ops.retain(|op| op.waited.is_none_or(|end| end > now));
        let mut bits = Dice(dice);
        let mut landed = match self.aim {
            Aim::Adverse => lands_adversely(&ops, now, &mut bits),
            Aim::Exact => landing::named(&ops, now, dice),
            aim => lands(&ops, now, aim, &mut bits),
        };
        landing::close(&ops, &mut landed);
        let candidates = landing::can_be_torn(&ops, now, &landed);
        // The operation that the aim tears: the one at the cut, if it can be torn.
        let aimed_at = || match self.aim {
            Aim::Any | Aim::Adverse => None,
            Aim::Exact => candidates.get(landing::torn(dice) % candidates.len().max(1)),
            aim if aim.overtakes() => None,
            _ => candidates.last().filter(|&&last| last + 1 == ops.len()),
        };
        let victim = (torn && !candidates.is_empty()).then(|| {
            let any = candidates[bits.next() as usize % candidates.len()];
            aimed_at().copied().unwrap_or(any)
        });
        if self.tell {
            let fate = |(i, op): (usize, &InFlight)| Fate {
                what: op.undo.describe(op.block),
                landed: landed[i],
                torn: victim == Some(i),
            };
            self.fates = ops.iter().enumerate().map(fate).collect();
        }
        for (i, op) in ops.into_iter().enumerate().rev() {
            if !landed[i] {
                self.disturb(&op, now, &mut bits);
                self.take_back(op, (victim == Some(i)).then_some(&mut bits));
            }
        }
    }

    /// Undoes an operation that has not landed. With `torn`, a part of it stays; the bits decide
    /// which.
    fn take_back(&mut self, op: InFlight, torn: Option<&mut Dice>) {
        match (op.undo, torn) {
            (Undo::Program { at, was }, None) => self.chip.unprogram(at, was),
            (Undo::Program { at, .. }, Some(bits)) => {
                if bits.next() & 1 == 0 {
                    self.chip.unprogram(at, Some(Damage::Weak));
                } else {
                    self.chip.set_damage(at, Some(Damage::Unreadable));
                }
            }
            (
                Undo::Reprogram {
                    at,
                    offset,
                    old,
                    new,
                    programs,
                },
                torn,
            ) => {
                let (bytes, programs) = match torn {
                    None => (old, programs),
                    Some(bits) => {
                        let mixed = old
                            .iter()
                            .zip(&new)
                            .map(|(&o, &n)| n | (o & bits.next() as u8));
                        let mixed: Vec<u8> = mixed.collect();
                        // A pulse that cleared no bit leaves no trace, and is not counted.
                        let pulses = u8::from(mixed != old);
                        (mixed, programs + pulses)
                    }
                };
                self.chip.unreprogram(at, offset, &bytes, programs);
            }
            (Undo::Erase { saved }, None) => self.chip.restore_block(*saved),
            (Undo::Erase { .. }, Some(bits)) => {
                let geometry = *self.chip.geometry();
                for page in 0..geometry.pages_per_block {
                    let damage = if bits.next() & 1 == 0 {
                        Damage::Weak
                    } else {
                        Damage::Unreadable
                    };
                    self.chip
                        .set_damage(geometry.page(op.block, page), Some(damage));
                }
            }
        }
    }
}

impl AsMut<Chip> for PowerCut {
    fn as_mut(&mut self) -> &mut Chip {
        &mut self.chip
    }
}

/// Decides which operations have landed, before their order is enforced. The first number of `bits`
/// modulo 8: 0 or 1 lands nothing or everything; otherwise each operation lands with probability
/// 1/2. After half of the cuts at an overtaking erase only that erase has landed.
fn lands(ops: &[InFlight], now: Nanos, aim: Aim, bits: &mut Dice) -> Vec<bool> {
    let bias = bits.next() % 8;
    let alone = aim.overtakes() && bias >= 4;
    let last = ops.len().wrapping_sub(1);
    let lands = |(i, op): (usize, &InFlight)| match bias {
        _ if op.issued > now => false,
        _ if alone => i == last,
        0 => false,
        1 => true,
        _ => bits.next() & 1 == 1,
    };
    ops.iter().enumerate().map(lands).collect()
}

/// [`lands`] for [`Aim::Adverse`], which defines the meaning of the dice.
fn lands_adversely(ops: &[InFlight], now: Nanos, bits: &mut Dice) -> Vec<bool> {
    let mode = bits.0 % 4;
    let last = ops.len().wrapping_sub(1);
    let lands = |(i, op): (usize, &InFlight)| {
        let is_erase = matches!(op.undo, Undo::Erase { .. });
        let lands = match mode {
            0 => i == last,
            1 => is_erase,
            2 => bits.next() & 1 == 1 && is_erase,
            _ => bits.next() & 1 == 1,
        };
        lands && op.issued <= now
    };
    ops.iter().enumerate().map(lands).collect()
}

/// Whether `later` can have landed only if `earlier` has.
fn orders(earlier: &InFlight, later: &InFlight) -> bool {
    match (&earlier.undo, &later.undo) {
        (Undo::Erase { .. }, _) | (_, Undo::Erase { .. }) => true,
        (
            Undo::Program { at: a, .. } | Undo::Reprogram { at: a, .. },
            Undo::Program { at: b, .. } | Undo::Reprogram { at: b, .. },
        ) => a == b,
    }
}

impl Flash for PowerCut {
    forward_flash!([chip] but read program reprogram erase sync reached);

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        if self.off {
            return Err(FlashError::PowerLost);
        }
        self.chip.read(now, at, data, spare)
    }

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        let fails = self.fails(now, Aim::Any)?;
        let undo = Undo::Program {
            at,
            was: self.chip.damage(at),
        };
        let done = self.chip.program(now, at, data, spare)?;
        let block = self.chip.geometry().block_of(at);
        self.keep(now, done, block, undo, fails)
    }

    fn reprogram(
        &mut self,
        now: Nanos,
        at: Ppn,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Nanos, FlashError> {
        let fails = self.fails(now, Aim::Reprogram)?;
        let old = self.chip.peek_spare(at)[offset..offset + bytes.len()].to_vec();
        let programs = self.chip.programs_of(at);
        let done = self.chip.reprogram(now, at, offset, bytes)?;
        let undo = Undo::Reprogram {
            at,
            offset,
            old,
            new: bytes.to_vec(),
            programs,
        };
        let block = self.chip.geometry().block_of(at);
        self.keep(now, done, block, undo, fails)
    }

    /// Saves the block and erases it. An erase may be the moment that the aim of the cut waits for,
    /// or one that is recorded.
    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        let kind = match self.aim {
            aim if aim.overtakes() && self.overtakes(now, block) => aim,
            _ => Aim::Erase,
        };
        let fails = self.fails(now, kind)?;
        let saved = Box::new(self.chip.save_block(block));
        let done = match self.chip.erase(now, block) {
            // The block is worn out, and its erase has changed nothing.
            Err(_) if fails => {
                self.note_cut(now);
                self.land(now, self.cut.map_or(0, |cut| cut.dice), false);
                return Err(FlashError::PowerLost);
            }
            outcome => outcome?,
        };
        let done = self.keep(now, done, block, Undo::Erase { saved }, fails)?;
        self.note_moment(now, block);
        Ok(done)
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        if self.off {
            return Err(FlashError::PowerLost);
        }
        let end = now.max(until);
        for op in &mut self.in_flight {
            if op.done <= until {
                op.waited = Some(op.waited.map_or(end, |earlier| earlier.min(end)));
            }
        }
        Ok(end)
    }
}
