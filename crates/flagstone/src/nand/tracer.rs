//! Middleware that records every operation.

use super::{Flash, FlashError, Read};
use crate::forward_flash;
use crate::units::{Nanos, Pbn, Ppn};
use std::sync::{Arc, Mutex};

/// An operation, with its arguments.
///
/// Example: [`Tracer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpKind {
    /// A page read.
    Read {
        /// The page.
        at: Ppn,
    },
    /// A program, with the programmed bytes.
    Program {
        /// The page.
        at: Ppn,
        /// The page's spare area.
        spare: Vec<u8>,
        /// The page's data, as given by the caller.
        data: Vec<u8>,
    },
    /// Bits of a spare area cleared.
    Reprogram {
        /// The page.
        at: Ppn,
        /// Offset in the spare area.
        offset: usize,
        /// The new bytes.
        bytes: Vec<u8>,
    },
    /// A block erase.
    Erase {
        /// The block.
        block: Pbn,
    },
    /// A wait until everything up to an instant is durable.
    Sync {
        /// The instant up to which operations are durable.
        until: Nanos,
    },
    /// A note by the caller.
    Note(String),
}

/// A recorded operation.
///
/// Example: [`Tracer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// When it was issued.
    pub now: Nanos,
    /// What it was.
    pub kind: OpKind,
    /// How it failed, if it did.
    pub error: Option<FlashError>,
}

/// Writes every operation into a list that the caller shares.
///
/// ```
/// use flagstone::nand::{Chip, Flash, FlashError, OpKind, Tracer};
/// use flagstone::units::{Nanos, Ppn};
///
/// let story = Default::default();
/// let mut flash = Tracer::new(Chip::default(), std::sync::Arc::clone(&story));
/// flash.program(Nanos::ZERO, Ppn(0), b"data", &[])?;
/// let told = story.lock().expect("no thread panics here");
/// assert!(matches!(told[0].kind, OpKind::Program { at: Ppn(0), .. }));
/// # Ok::<(), FlashError>(())
/// ```
#[derive(Debug)]
pub struct Tracer<F> {
    inner: F,
    story: Arc<Mutex<Vec<Traced>>>,
}

impl<F: Flash> Tracer<F> {
    /// Traces `inner` into `story`.
    pub fn new(inner: F, story: Arc<Mutex<Vec<Traced>>>) -> Self {
        Tracer { inner, story }
    }

    /// The device underneath.
    pub fn into_inner(self) -> F {
        self.inner
    }

    fn tell(&self, now: Nanos, kind: OpKind, error: Option<FlashError>) {
        let mut story = self.story.lock().expect("no thread panics here");
        story.push(Traced { now, kind, error });
    }
}

impl<F: Flash> Flash for Tracer<F> {
    forward_flash!([inner] but read program reprogram erase sync);

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        let result = self.inner.read(now, at, data, spare);
        self.tell(now, OpKind::Read { at }, result.err());
        result
    }

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        let result = self.inner.program(now, at, data, spare);
        let (spare, data) = (spare.to_vec(), data.to_vec());
        self.tell(now, OpKind::Program { at, spare, data }, result.err());
        result
    }

    fn reprogram(
        &mut self,
        now: Nanos,
        at: Ppn,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Nanos, FlashError> {
        let result = self.inner.reprogram(now, at, offset, bytes);
        let bytes = bytes.to_vec();
        self.tell(now, OpKind::Reprogram { at, offset, bytes }, result.err());
        result
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        let result = self.inner.erase(now, block);
        self.tell(now, OpKind::Erase { block }, result.err());
        result
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        let result = self.inner.sync(now, until);
        self.tell(now, OpKind::Sync { until }, result.err());
        result
    }
}
