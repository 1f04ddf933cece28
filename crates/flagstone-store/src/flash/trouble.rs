//! Failures of the medium, and the flash that replaces one that found no room.

use super::MediumFlash;
use super::places::Places;
use crate::superblock::Superblock;
use flagstone::nand::FlashError;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The first failure of the medium, shared with the store above.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trouble(Arc<First>);

/// The first failure.
#[derive(Debug, Default)]
struct First {
    noted: Mutex<Option<Noted>>,
    /// [`NONE`], [`NO_ROOM`] or [`FAILED`]: one word, since another thread may clear the failure
    /// between two loads. Changes only while `noted` is locked.
    kind: AtomicU8,
}

const NONE: u8 = 0;
const NO_ROOM: u8 = 1;
const FAILED: u8 = 2;

#[derive(Debug)]
struct Noted {
    /// `None` once it was taken.
    error: Option<(&'static str, io::Error)>,
    why: String,
}

impl Trouble {
    pub(super) fn note(&self, what: &'static str, error: io::Error) -> FlashError {
        let kind = if is_no_room(&error) { NO_ROOM } else { FAILED };
        let mut noted = self.noted();
        if noted.is_none() {
            let why = format!("{what}: {error}");
            let error = Some((what, error));
            *noted = Some(Noted { error, why });
            self.0.kind.store(kind, Ordering::Release);
        }
        FlashError::PowerLost
    }

    /// Notes a failure from which the store does not recover. Replaces an earlier one.
    pub(crate) fn note_for_good(&self, why: String) {
        let mut noted = self.noted();
        *noted = Some(Noted { error: None, why });
        self.0.kind.store(FAILED, Ordering::Release);
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
        let mut noted = self.noted();
        *noted = None;
        self.0.kind.store(NONE, Ordering::Release);
    }

    fn kind(&self) -> u8 {
        self.0.kind.load(Ordering::Acquire)
    }

    /// Whether the failure is lack of space.
    pub(crate) fn is_for_room(&self) -> bool {
        self.kind() == NO_ROOM
    }

    /// Whether a failure is noted.
    pub(crate) fn is_noted(&self) -> bool {
        self.kind() != NONE
    }

    /// Whether a failure is noted from which the store does not recover. With `recovers` it
    /// recovers from lack of space.
    pub(crate) fn is_final(&self, recovers: bool) -> bool {
        match self.kind() {
            NONE => false,
            NO_ROOM => !recovers,
            _ => true,
        }
    }

    /// The description of a failure that [`Trouble::is_final`].
    pub(crate) fn why_final(&self, recovers: bool) -> Option<String> {
        if !self.is_final(recovers) {
            return None;
        }
        let noted = self.noted();
        let noted = noted.as_ref().filter(|_| self.is_final(recovers));
        noted.map(|it| it.why.clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread notes lack of room and clears it, as a store that reopens itself does. Another asks
    /// whether the store is broken.
    fn answers_broken(ask: impl Fn(&Trouble) -> bool) -> bool {
        const ROUNDS: u32 = 3_000_000;
        let (trouble, is_over) = (Trouble::default(), AtomicU8::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let full = io::Error::from(io::ErrorKind::StorageFull);
                    trouble.note("writing pages", full);
                    trouble.forget();
                    if is_over.load(Ordering::Relaxed) == 1 {
                        return;
                    }
                }
                is_over.store(1, Ordering::Relaxed);
            });
            let mut is_broken = false;
            while !is_broken && is_over.load(Ordering::Relaxed) == 0 {
                is_broken = ask(&trouble);
            }
            is_over.store(1, Ordering::Relaxed);
            is_broken
        })
    }

    #[test]
    fn lack_of_room_is_no_failure_while_another_thread_clears_it() {
        assert!(!answers_broken(|it| it.is_final(true)));
        assert!(!answers_broken(|it| it.why_final(true).is_some()));
        // The control asks twice: what is noted, and then of which kind it is.
        let asks_twice = |it: &Trouble| it.why_final(false).is_some() && !it.is_for_room();
        assert!(answers_broken(asks_twice));
    }
}
