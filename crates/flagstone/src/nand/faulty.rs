//! Middleware that injects faults other than power cuts into chosen operations of a [`Chip`].

use super::chip::Damage;
use super::{Chip, Flash, FlashError, Read};
use crate::forward_flash;
use crate::units::{Nanos, Pbn, Ppn};
use std::collections::BTreeMap;

/// A fault of the flash.
///
/// Example: [`Faulty`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The chip reports a failed program; the page is unreadable.
    ProgramFails,
    /// The chip reports a failed erase; this and every later erase of the block fails.
    EraseFails,
    /// Bits of a page flip. Up to the correctable count the ECC repairs them, beyond it the page
    /// cannot be read any more.
    BitErrors {
        /// How many bits.
        bits: u16,
    },
    /// From now on up to three bits in the data or spare area of a page are wrong, and the ECC does
    /// not notice. `dice` selects the bits.
    SilentFlips {
        /// Which bits.
        dice: u64,
    },
    /// From now on a page reads as the present contents of another page, without an error.
    SilentSwap {
        /// Selects the other page.
        dice: u64,
    },
}

/// What a page wrongly reads as, until its block is erased.
#[derive(Debug)]
enum Lie {
    Flips { in_data: bool, bits: Vec<usize> },
    Other { data: Vec<u8>, spare: Vec<u8> },
}

impl Lie {
    /// The effect of a fault on a page; `None` if nothing changes.
    fn new(fault: Fault, chip: &Chip, at: Ppn) -> Option<Lie> {
        let whole = |at| {
            let mut data = vec![0; chip.geometry().page_bytes as usize];
            let bytes = chip.peek(at, &mut data, &mut [])?;
            data.truncate(bytes);
            Some((data, chip.peek_spare(at).to_vec()))
        };
        match fault {
            Fault::SilentFlips { dice } => {
                let (data, spare) = whole(at)?;
                // The lowest bit of the dice selects data or spare area; the others, how many bits
                // flip, and the first of them.
                let in_data = dice & 1 == 0 && !data.is_empty();
                let all = 8 * if in_data { data.len() } else { spare.len() };
                let (first, count) = ((dice >> 3) as usize % all, (dice >> 1) as usize % 3 + 1);
                let bits = (0..count).map(|i| (first + i * (all / 3)) % all);
                let bits = bits.collect();
                Some(Lie::Flips { in_data, bits })
            }
            Fault::SilentSwap { dice } => {
                let pages = chip.geometry().pages();
                let from = (dice % u64::from(pages)) as u32;
                let mut others = (0..pages).map(|i| Ppn((from + i) % pages));
                let other = others.find(|&other| other != at && chip.is_programmed(other))?;
                let (data, spare) = whole(other)?;
                Some(Lie::Other { data, spare })
            }
            _ => None,
        }
    }

    /// Changes the result of a read. Returns the number of data bytes.
    fn tell(&self, data: &mut [u8], data_bytes: usize, spare: &mut [u8]) -> usize {
        match self {
            Lie::Flips { in_data, bits } => {
                let bytes = if *in_data {
                    &mut data[..data_bytes]
                } else {
                    spare
                };
                for bit in bits {
                    if let Some(byte) = bytes.get_mut(bit / 8) {
                        *byte ^= 1 << (bit % 8);
                    }
                }
                data_bytes
            }
            Lie::Other { data: of, spare: s } => {
                let (bytes, len) = (of.len().min(data.len()), s.len().min(spare.len()));
                data[..bytes].copy_from_slice(&of[..bytes]);
                spare[..len].copy_from_slice(&s[..len]);
                bytes
            }
        }
    }
}

/// Which operations fail. Programs, erases and reads are each counted from 0.
///
/// Example: [`Faulty`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FaultPlan {
    /// Faults, each with the number of the program, erase or read that it affects.
    pub faults: Vec<(u64, Fault)>,
    /// Maximum number of bit errors per page that the ECC corrects.
    pub correctable_bits: u16,
}

/// Injects the faults of a plan.
///
/// ```
/// use flagstone::nand::{Chip, Fault, FaultPlan, Faulty, Flash, FlashError};
/// use flagstone::units::{Nanos, Ppn};
///
/// let mut plan = FaultPlan::default();
/// plan.faults.push((1, Fault::ProgramFails));
/// let mut flash = Faulty::new(Chip::default(), plan);
/// let now = flash.program(Nanos::ZERO, Ppn(0), b"good", &[])?;
/// let failed = flash.program(now, Ppn(1), b"lost", &[]);
/// assert!(matches!(failed, Err(FlashError::ProgramFailed { at: Ppn(1), .. })));
/// # Ok::<(), FlashError>(())
/// ```
#[derive(Debug)]
pub struct Faulty<F> {
    inner: F,
    plan: FaultPlan,
    programs: u64,
    erases: u64,
    reads: u64,
    struck: u64,
    lies: BTreeMap<Ppn, Lie>,
}

impl<F: Flash + AsMut<Chip>> Faulty<F> {
    /// A device with the faults of `plan`.
    pub fn new(inner: F, plan: FaultPlan) -> Self {
        Faulty {
            inner,
            plan,
            programs: 0,
            erases: 0,
            reads: 0,
            struck: 0,
            lies: BTreeMap::new(),
        }
    }

    /// The device underneath.
    pub fn into_inner(self) -> F {
        self.inner
    }

    /// The device underneath, to look at.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// Number of faults that have been injected so far.
    pub fn struck(&self) -> u64 {
        self.struck
    }

    fn strikes(&self, at: u64, wanted: fn(&Fault) -> bool) -> Option<Fault> {
        self.plan
            .faults
            .iter()
            .find(|(n, fault)| *n == at && wanted(fault))
            .map(|&(_, f)| f)
    }
}

impl<F: AsMut<Chip>> AsMut<Chip> for Faulty<F> {
    fn as_mut(&mut self) -> &mut Chip {
        self.inner.as_mut()
    }
}

impl<F: AsRef<Chip>> AsRef<Chip> for Faulty<F> {
    fn as_ref(&self) -> &Chip {
        self.inner.as_ref()
    }
}

impl<F: Flash + AsMut<Chip>> Flash for Faulty<F> {
    forward_flash!([inner] but read program erase);

    /// Reads a page. Faults strike only pages that were programmed. From a silent fault on, the
    /// page reads as its lie says until its block is erased.
    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        let mut read = self.inner.read(now, at, data, spare)?;
        let n = self.reads;
        self.reads += 1;
        let is_read = |f: &Fault| matches!(f, Fault::BitErrors { .. });
        let programmed = self.inner.as_mut().is_programmed(at);
        if let Some(Fault::BitErrors { bits }) = self.strikes(n, is_read).filter(|_| programmed) {
            self.struck += 1;
            if bits > self.plan.correctable_bits {
                self.inner.as_mut().set_damage(at, Some(Damage::Unreadable));
                return Err(FlashError::Uncorrectable {
                    at,
                    done: read.done,
                });
            }
        }
        let is_silent =
            |f: &Fault| matches!(f, Fault::SilentFlips { .. } | Fault::SilentSwap { .. });
        if let Some(fault) = self.strikes(n, is_silent).filter(|_| programmed)
            && let Some(lie) = Lie::new(fault, self.inner.as_mut(), at)
        {
            self.struck += 1;
            self.lies.insert(at, lie);
        }
        if let Some(lie) = self.lies.get(&at) {
            read.data_bytes = lie.tell(data, read.data_bytes, spare);
        }
        Ok(read)
    }

    /// Programs a page. If the fault strikes, the page is unreadable although it was programmed.
    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        let done = self.inner.program(now, at, data, spare)?;
        let n = self.programs;
        self.programs += 1;
        if self.strikes(n, |f| *f == Fault::ProgramFails).is_some() {
            self.struck += 1;
            self.inner.as_mut().set_damage(at, Some(Damage::Unreadable));
            return Err(FlashError::ProgramFailed { at, done });
        }
        Ok(done)
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        let n = self.erases;
        self.erases += 1;
        if self.strikes(n, |f| *f == Fault::EraseFails).is_some() {
            self.struck += 1;
            self.inner.as_mut().wear_out(block);
        }
        let done = self.inner.erase(now, block)?;
        let geometry = *self.inner.geometry();
        self.lies.retain(|&at, _| geometry.block_of(at) != block);
        Ok(done)
    }
}
