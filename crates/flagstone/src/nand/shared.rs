//! A shared handle to a flash. The creator of the flash keeps one handle and gives another to a
//! device. When the device fails or is dropped, the creator still has the flash.

use super::{Flash, Geometry};
use crate::forward_flash;
use std::sync::{Arc, Mutex, MutexGuard};

/// A flash with several handles.
///
/// ```
/// use flagstone::nand::{Chip, Flash, FlashError, PowerCut, Shared};
/// use flagstone::units::{Nanos, Ppn};
///
/// let mut flash = Shared::new(PowerCut::new(Chip::default()));
/// let handle = flash.clone();
/// flash.program(Nanos::ZERO, Ppn(0), b"data", &[])?;
/// assert_eq!(handle.look(|power| power.issued()), 1);
///
/// // Once the other handles are dropped, the flash can be taken back.
/// drop(flash);
/// assert!(handle.take().into_chip().is_programmed(Ppn(0)));
/// # Ok::<(), FlashError>(())
/// ```
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

    /// Inspects the device. Other handles must not be used meanwhile.
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
    // The handles keep the geometry, so the device does not grow.
    forward_flash!([inner()] but geometry grow);

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
}
