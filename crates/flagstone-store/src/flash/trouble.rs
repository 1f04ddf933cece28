//! What went wrong with the medium, and a flash that takes the place of one that found no room.

use super::MediumFlash;
use super::places::Places;
use crate::superblock::Superblock;
use flagstone::nand::FlashError;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What went wrong with the medium, for the store above.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trouble(Arc<First>);

/// The first failure.
#[derive(Debug, Default)]
struct First {
    noted: Mutex<Option<Noted>>,
    /// Whether one is noted.
    is_noted: AtomicBool,
    is_for_room: AtomicBool,
}

#[derive(Debug)]
struct Noted {
    /// Present until it is taken.
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

    /// Notes a failure for good, in place of one that was noted before.
    pub(crate) fn note_for_good(&self, why: String) {
        *self.noted() = Some(Noted { error: None, why });
        self.0.is_for_room.store(false, Ordering::Release);
        self.0.is_noted.store(true, Ordering::Release);
    }

    fn noted(&self) -> MutexGuard<'_, Option<Noted>> {
        self.0.noted.lock().expect("no thread panics here")
    }

    /// The first failure, once.
    pub(crate) fn take(&self) -> Option<(&'static str, io::Error)> {
        self.noted().as_mut()?.error.take()
    }

    /// Forgets the failure: what it has left half done was thrown away.
    pub(crate) fn forget(&self) {
        *self.noted() = None;
        self.0.is_noted.store(false, Ordering::Release);
        self.0.is_for_room.store(false, Ordering::Release);
    }

    /// Whether it was that there is no room.
    pub(crate) fn is_for_room(&self) -> bool {
        self.0.is_for_room.load(Ordering::Acquire)
    }

    /// Whether anything has failed.
    pub(crate) fn is_noted(&self) -> bool {
        self.0.is_noted.load(Ordering::Acquire)
    }

    /// What it was, as long as the flash is used.
    pub(crate) fn why(&self) -> Option<String> {
        if !self.is_noted() {
            return None;
        }
        self.noted().as_ref().map(|noted| noted.why.clone())
    }
}

/// Whether a system has refused for want of room: the medium is well.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

impl MediumFlash {
    /// Takes the place of another flash over the same medium, which has found no room for a write,
    /// and is not used any more. What that one has not written is forgotten.
    ///
    /// The number of its opening is a new one, whether or not the other one has come to write its
    /// own: a generation never comes twice.
    pub(crate) fn again(places: Arc<Places>, superblock: Superblock) -> MediumFlash {
        let mut superblock = superblock;
        let boot = &places.notes.boot;
        superblock.boot = superblock.boot.max(boot.load(Ordering::Relaxed));
        boot.store(superblock.boot + 1, Ordering::Relaxed);
        places.begin_anew(superblock.blocks);
        MediumFlash::over(places, superblock, false)
    }

    /// Whether no other flash has taken its place.
    pub(super) fn is_current(&self) -> bool {
        self.epoch == self.places.epoch()
    }
}
