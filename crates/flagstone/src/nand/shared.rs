//! A handle to a flash. The maker of the flash keeps one and gives another to a device. The device
//! may fail or be dropped, and the maker still has the flash.

use super::{Flash, FlashError, Geometry, Read};
use crate::units::{Nanos, Pbn, Ppn};
use std::sync::{Arc, Mutex, MutexGuard};

/// A flash with several handles.
#[derive(Debug)]
pub struct Shared<F> {
    inner: Arc<Mutex<F>>,
    geometry: Geometry,
}

impl<F> Clone for Shared<F> {
    fn clone(&self) -> Self {
        Shared {
            inner: Arc::clone(&self.inner),
            geometry: self.geometry,
        }
    }
}

impl<F: Flash> Shared<F> {
    /// Shares a device.
    pub fn new(inner: F) -> Self {
        let geometry = *inner.geometry();
        Shared {
            inner: Arc::new(Mutex::new(inner)),
            geometry,
        }
    }

    fn inner(&self) -> MutexGuard<'_, F> {
        self.inner.lock().expect("no thread panics here")
    }

    /// Looks at the device. Other handles must not be used meanwhile.
    pub fn look<T>(&self, at: impl FnOnce(&F) -> T) -> T {
        at(&self.inner())
    }

    /// Takes the device back.
    ///
    /// # Panics
    /// Another handle still exists.
    pub fn take(self) -> F {
        let inner = Arc::try_unwrap(self.inner)
            .ok()
            .expect("nobody else holds the device");
        inner.into_inner().expect("no thread panics here")
    }
}

impl<F: Flash> Flash for Shared<F> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<Read, FlashError> {
        self.inner().read(now, at, data, spare)
    }

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.inner().program(now, at, data, spare)
    }

    fn reprogram(
        &mut self,
        now: Nanos,
        at: Ppn,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.inner().reprogram(now, at, offset, bytes)
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        self.inner().erase(now, block)
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        self.inner().sync(now, until)
    }

    fn is_factory_bad(&self, block: Pbn) -> bool {
        self.inner().is_factory_bad(block)
    }

    fn peek(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        self.inner().peek(at, data, spare)
    }
}
