//! A medium that fails on demand: a single call, or all calls from one on.
//!
//! The test chooses what a failed write or sync leaves: the sectors are those that the [`Recorded`]
//! medium below has not synced. [`Failing::calls`] lists all calls, so that a test can fail each
//! call of a history in turn.

use super::{Medium, Recorded};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// A kind of failure.
///
/// Example: [`Failing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This call fails with EIO.
    Error,
    /// This call fails with ENOSPC.
    NoRoom,
    /// This call and all later ones fail: the device is gone.
    Gone,
    /// This call does nothing and reports success: a control, which must lose data.
    Hidden,
}

impl Fault {
    fn error(self) -> io::Error {
        // Linux error numbers.
        io::Error::from_raw_os_error(match self {
            Fault::Error | Fault::Hidden => 5,
            Fault::NoRoom => 28,
            Fault::Gone => 19,
        })
    }
}

/// A call of a [`Medium`].
///
/// Example: [`Failing`].
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

/// A medium with fault injection. Clones share the medium.
///
/// ```
/// use flagstone_store::medium::{Call, Failing, Fault, Medium};
///
/// let medium = Failing::default();
/// medium.fail(Some((1, Fault::NoRoom)));
/// medium.write_at(0, &[7; 512])?;
/// let failed = medium.write_at(512, &[8; 512]);
/// assert!(failed.is_err_and(|error| error.raw_os_error() == Some(28)));
/// medium.sync()?;
/// assert_eq!(medium.calls(), [Call::Write, Call::Write, Call::Sync]);
/// assert!(medium.has_failed());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Failing {
    below: Recorded,
    plan: Arc<Mutex<Plan>>,
}

/// The outcome of a call.
enum Fate {
    Succeeds,
    Fails(io::Error),
    IsHidden,
}

impl Failing {
    /// A medium over `below`, without a fault.
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

    /// Lets the call of this number fail, counted from the beginning. `None`: no call fails.
    pub fn fail(&self, fault: Option<(u64, Fault)>) {
        self.plan().fault = fault;
    }

    /// All calls so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.plan().calls.clone()
    }

    /// Whether the fault has occurred.
    pub fn has_failed(&self) -> bool {
        self.plan().has_failed
    }

    /// Records a call, and decides by the planned fault whether it succeeds.
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

    /// A failed write may have written any of its sectors.
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
