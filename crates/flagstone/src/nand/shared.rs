//! A handle to a flash. The maker of the flash keeps one and gives another to a device. The device
//! may fail or be dropped, and the maker still has the flash.

use super::{Flash, FlashError, Geometry, Read};
use crate::units::{Nanos, Pbn, Ppn};
use std::cell::RefCell;
use std::rc::Rc;

/// A flash with several handles.
#[derive(Debug)]
pub struct Shared<F> {
    inner: Rc<RefCell<F>>,
    geometry: Geometry,
}

impl<F> Clone for Shared<F> {
    fn clone(&self) -> Self {
        Shared {
            inner: Rc::clone(&self.inner),
            geometry: self.geometry,
        }
    }
}

impl<F: Flash> Shared<F> {
    /// Shares a device.
    pub fn new(inner: F) -> Self {
        let geometry = *inner.geometry();
        Shared {
            inner: Rc::new(RefCell::new(inner)),
            geometry,
        }
    }

    /// Looks at the device.
    pub fn look<T>(&self, at: impl FnOnce(&F) -> T) -> T {
        at(&self.inner.borrow())
    }

    /// Takes the device back.
    ///
    /// # Panics
    /// Another handle still exists.
    pub fn take(self) -> F {
        let inner = Rc::try_unwrap(self.inner)
            .ok()
            .expect("nobody else holds the device");
        inner.into_inner()
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
        self.inner.borrow_mut().read(now, at, data, spare)
    }

    fn program(
        &mut self,
        now: Nanos,
        at: Ppn,
        data: &[u8],
        spare: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.inner.borrow_mut().program(now, at, data, spare)
    }

    fn reprogram(
        &mut self,
        now: Nanos,
        at: Ppn,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Nanos, FlashError> {
        self.inner.borrow_mut().reprogram(now, at, offset, bytes)
    }

    fn erase(&mut self, now: Nanos, block: Pbn) -> Result<Nanos, FlashError> {
        self.inner.borrow_mut().erase(now, block)
    }

    fn sync(&mut self, now: Nanos, until: Nanos) -> Result<Nanos, FlashError> {
        self.inner.borrow_mut().sync(now, until)
    }

    fn is_factory_bad(&self, block: Pbn) -> bool {
        self.inner.borrow().is_factory_bad(block)
    }

    fn peek(&self, at: Ppn, data: &mut [u8], spare: &mut [u8]) -> Option<usize> {
        self.inner.borrow().peek(at, data, spare)
    }
}
