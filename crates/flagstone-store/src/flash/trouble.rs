//! Failures of the medium, and the flash that replaces one that found no room.

use super::MediumFlash;
use super::places::Places;
use crate::superblock::Superblock;
use flagstone::nand::FlashError;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The first failure of the medium, shared with the store above.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trouble(Arc<First>);

/// The first failure.
#[derive(Debug, Default)]
struct First {
    noted: Mutex<Option<Noted>>,
    /// Whether a failure is noted.
    is_noted: AtomicBool,
    is_for_room: AtomicBool,
}

#[derive(Debug)]
struct Noted {
    /// `None` once it was taken.
    error: Option<(&'static str, io::Error)>,
    why: String,
}

impl Trouble {
    pub(super) fn note(&self, what: &'static str, error: io::Error) -> FlashError {
        let is_for_room = is_no_room(&error);
        let mut noted = self.noted();
        if noted.is_none() {
            let why = format!("{what}: {error}");
            let error = Some((what, error));
            *noted = Some(Noted { error, why });
            self.0.is_for_room.store(is_for_room, Ordering::Release);
            self.0.is_noted.store(true, Ordering::Release);
        }
        FlashError::PowerLost
    }

    /// Notes a failure from which the store does not recover. Replaces an earlier one.
    pub(crate) fn note_for_good(&self, why: String) {
        *self.noted() = Some(Noted { error: None, why });
        self.0.is_for_room.store(false, Ordering::Release);
        self.0.is_noted.store(true, Ordering::Release);
    }

    fn noted(&self) -> MutexGuard<'_, Option<Noted>> {
        self.0.noted.lock().expect("no thread panics here")
    }

    /// Takes the first failure. Later calls return `None`.
    pub(crate) fn take(&self) -> Option<(&'static str, io::Error)> {
        self.noted().as_mut()?.error.take()
    }

    /// Clears the failure, after incomplete writes were dropped.
    pub(crate) fn forget(&self) {
        *self.noted() = None;
        self.0.is_noted.store(false, Ordering::Release);
        self.0.is_for_room.store(false, Ordering::Release);
    }

    /// Whether the failure is lack of space.
    pub(crate) fn is_for_room(&self) -> bool {
        self.0.is_for_room.load(Ordering::Acquire)
    }

    /// Whether a failure is noted.
    pub(crate) fn is_noted(&self) -> bool {
        self.0.is_noted.load(Ordering::Acquire)
    }

    /// The description of the failure, until it is cleared.
    pub(crate) fn why(&self) -> Option<String> {
        if !self.is_noted() {
            return None;
        }
        self.noted().as_ref().map(|noted| noted.why.clone())
    }
}

/// Whether a system error means lack of space. The medium is not at fault.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

impl MediumFlash {
    /// Replaces a flash that found no room for a write and is no longer used. Writes of that flash
    /// that are not on the medium are dropped.
    ///
    /// Gets a new opening number, whether or not the other flash has written its own: a generation
    /// is never used twice. Only an opening that the medium counts has restored lost marks.
    pub(crate) fn again(places: Arc<Places>, superblock: Superblock) -> MediumFlash {
        let boot = &places.notes.boot;
        let number = superblock.boot.max(boot.load(Ordering::Relaxed));
        boot.store(number + 1, Ordering::Relaxed);
        places.begin_anew(superblock.blocks);
        let mut flash = MediumFlash::over(places, superblock, false);
        flash.superblock.boot = number;
        flash
    }

    /// Whether no other flash has replaced this one.
    pub(super) fn is_current(&self) -> bool {
        self.epoch == self.places.epoch()
    }
}
