//! A medium that fails on demand: one call of a run, or all from one call on.
//!
//! A test draws what a failed write or sync leaves: the sectors of the write are those of a
//! [`Recorded`] medium, which has not synced them. [`Failing::calls`] says what was called, so that
//! a test can fail each call of a history in turn.

use super::{Medium, Recorded};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// How calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This one call fails with EIO.
    Error,
    /// This one call fails for want of room.
    NoRoom,
    /// This call and all that follow fail: the device is gone.
    Gone,
    /// This one call does nothing and says that it succeeded: a control, which loses data.
    Hidden,
}

impl Fault {
    fn error(self) -> io::Error {
        // The numbers that Linux uses.
        io::Error::from_raw_os_error(match self {
            Fault::Error | Fault::Hidden => 5,
            Fault::NoRoom => 28,
            Fault::Gone => 19,
        })
    }
}

/// A call of a [`Medium`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Medium::read_at`].
    Read,
    /// [`Medium::write_at`].
    Write,
    /// [`Medium::sync`].
    Sync,
    /// [`Medium::bytes`].
    Bytes,
    /// [`Medium::reserve`].
    Reserve,
    /// [`Medium::shorten`].
    Shorten,
    /// [`Medium::prepare`].
    Prepare,
    /// [`Medium::refresh`].
    Refresh,
}

#[derive(Debug, Default)]
struct Plan {
    calls: Vec<Call>,
    fault: Option<(u64, Fault)>,
    has_failed: bool,
}

/// A medium that fails as it is told. Copies are of the same medium.
#[derive(Clone, Default)]
pub struct Failing {
    below: Recorded,
    plan: Arc<Mutex<Plan>>,
}

/// What becomes of a call.
enum Fate {
    Succeeds,
    Fails(io::Error),
    IsHidden,
}

impl Failing {
    /// On this medium, without a fault.
    pub fn on(below: Recorded) -> Failing {
        Failing {
            below,
            plan: Arc::default(),
        }
    }

    /// The medium below.
    pub fn below(&self) -> &Recorded {
        &self.below
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().expect("no thread panics here")
    }

    /// Lets a call fail, by its number from the beginning; or none.
    pub fn fail(&self, fault: Option<(u64, Fault)>) {
        self.plan().fault = fault;
    }

    /// All calls so far, in their order.
    pub fn calls(&self) -> Vec<Call> {
        self.plan().calls.clone()
    }

    /// Whether the fault has come.
    pub fn has_failed(&self) -> bool {
        self.plan().has_failed
    }

    fn fate(&self, call: Call) -> Fate {
        let mut plan = self.plan();
        let number = plan.calls.len() as u64;
        plan.calls.push(call);
        let Some((at, fault)) = plan.fault else {
            return Fate::Succeeds;
        };
        let is_it = match fault {
            Fault::Gone => number >= at,
            _ => number == at,
        };
        plan.has_failed |= is_it;
        match (is_it, fault) {
            (false, _) => Fate::Succeeds,
            (true, Fault::Hidden) => Fate::IsHidden,
            (true, fault) => Fate::Fails(fault.error()),
        }
    }

    fn answer<T: Default>(
        &self,
        call: Call,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match self.fate(call) {
            Fate::Succeeds => work(),
            Fate::Fails(error) => Err(error),
            Fate::IsHidden => Ok(T::default()),
        }
    }
}

impl Medium for Failing {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.answer(Call::Read, || self.below.read_at(offset, into))
    }

    /// One that fails may have written some of its sectors, or all.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.fate(Call::Write) {
            Fate::Succeeds => self.below.write_at(offset, bytes),
            Fate::IsHidden => Ok(()),
            Fate::Fails(error) => {
                self.below.write_at(offset, bytes)?;
                Err(error)
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.answer(Call::Sync, || self.below.sync())
    }

    fn most(&self) -> Option<u64> {
        self.below.most()
    }

    fn bytes(&self) -> io::Result<u64> {
        self.answer(Call::Bytes, || self.below.bytes())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.answer(Call::Reserve, || self.below.reserve(bytes))
    }

    fn can_shorten(&self) -> bool {
        self.below.can_shorten()
    }

    fn shorten(&self, bytes: u64) -> io::Result<()> {
        self.answer(Call::Shorten, || self.below.shorten(bytes))
    }

    fn prepare(&self, offset: u64, bytes: usize) -> io::Result<u64> {
        self.answer(Call::Prepare, || self.below.prepare(offset, bytes))
    }

    fn refresh(&self) -> io::Result<()> {
        self.answer(Call::Refresh, || self.below.refresh())
    }
}
