//! Faults other than power cuts, at chosen operations, around a [`Chip`].

use super::chip::Damage;
use super::{Chip, Flash, FlashError, Geometry, Read};
use crate::units::{Nanos, Pbn, Ppn};

/// What goes wrong.
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
}

/// Which operations fail. Programs, erases and reads are each counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FaultPlan {
    /// Faults by the number of the program, erase or read that they strike.
    pub faults: Vec<(u64, Fault)>,
    /// Bit errors a page that the ECC corrects.
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
}

impl<F: Flash + AsMut<Chip>> Faulty<F> {
    /// A device that fails as planned.
    pub fn new(inner: F, plan: FaultPlan) -> Self {
        Faulty {
            inner,
            plan,
            programs: 0,
            erases: 0,
            reads: 0,
            struck: 0,
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

    /// Faults that have struck so far.
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

impl<F: Flash + AsMut<Chip>> Flash for Faulty<F> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        let read = self.inner.read(now, at, data, spare)?;
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
        Ok(read)
    }

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

    fn reprogram(
        &mut self,
        now: Nanos,
        at: Ppn,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.inner.reprogram(now, at, offset, bytes)
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        let n = self.erases;
        self.erases += 1;
        if self.strikes(n, |f| *f == Fault::EraseFails).is_some() {
            self.struck += 1;
            self.inner.as_mut().wear_out(block);
        }
        self.inner.erase(now, block)
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        self.inner.sync(now, until)
    }

    fn is_factory_bad(&self, block: Pbn) -> bool {
        self.inner.is_factory_bad(block)
    }

    fn peek(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        self.inner.peek(at, data, spare)
    }
}
