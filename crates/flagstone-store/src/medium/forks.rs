//! Descriptors of locked files, which a process that is forked lets go of.
//!
//! A lock of a file (`flock`) lasts until the last descriptor of that opening is closed, those
//! included that forked processes inherit. A daemon would hold the lock of its parent for as long
//! as it lives, and could not open the store itself. So a forked process replaces each inherited
//! descriptor by one that can neither be read nor written (`O_PATH`). The number stays taken: what
//! still has it gets an error (EBADF), and its close closes no other file.
//!
//! `unsafe`: the handler is one of `pthread_atfork`. It runs in a process that may have been forked
//! while another thread had any lock, so it allocates nothing, takes no lock, and calls `dup3`
//! alone.

#![allow(unsafe_code, reason = "there is no other way to hear of a fork")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// No descriptor.
const FREE: i32 = -1;

/// A place for a descriptor, in a list that grows and never shrinks.
struct Slot {
    descriptor: AtomicI32,
    next: *const Slot,
}

/// The first place of the list.
static FIRST: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// What inherited descriptors are replaced by.
static VOID: AtomicI32 = AtomicI32::new(FREE);

/// A descriptor that forked processes let go of, until this is dropped. Drop it before the file is
/// closed: another file may get the number of the descriptor.
#[derive(Debug)]
pub(crate) struct LetGo(&'static AtomicI32);

impl LetGo {
    /// Has processes that are forked from now on let go of an open file.
    pub(crate) fn new(file: &File) -> LetGo {
        static READY: Once = Once::new();
        READY.call_once(|| {
            let mut options = File::options();
            options.read(true).custom_flags(libc::O_PATH);
            if let Ok(void) = options.open("/") {
                VOID.store(void.as_raw_fd(), Ordering::SeqCst);
                // It stays open as long as the process lives.
                std::mem::forget(void);
                // SAFETY: the handler does what such handlers may do.
                unsafe { libc::pthread_atfork(None, None, Some(let_go)) };
            }
        });
        let descriptor = file.as_raw_fd();
        let free = slots().find(|slot| {
            let order = (Ordering::SeqCst, Ordering::SeqCst);
            let taken = slot
                .descriptor
                .compare_exchange(FREE, descriptor, order.0, order.1);
            taken.is_ok()
        });
        let slot = free.unwrap_or_else(|| {
            let slot = Box::leak(Box::new(Slot {
                descriptor: AtomicI32::new(descriptor),
                next: ptr::null(),
            }));
            let slot: *mut Slot = slot;
            let mut first = FIRST.load(Ordering::SeqCst);
            loop {
                // SAFETY: the place was just made and is in no list yet.
                unsafe { (*slot).next = first };
                match FIRST.compare_exchange(first, slot, Ordering::SeqCst, Ordering::SeqCst) {
                    // SAFETY: it is never freed, and changed through its atomic alone from now on.
                    Ok(_) => break unsafe { &*slot },
                    Err(newer) => first = newer,
                }
            }
        });
        LetGo(&slot.descriptor)
    }
}

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.store(FREE, Ordering::SeqCst);
    }
}

/// All places.
fn slots() -> impl Iterator<Item = &'static Slot> {
    let mut next: *const Slot = FIRST.load(Ordering::SeqCst);
    std::iter::from_fn(move || {
        // SAFETY: places are never freed, and are whole before they are in the list.
        let slot = unsafe { next.as_ref() }?;
        next = slot.next;
        Some(slot)
    })
}

/// Runs in a process that was just forked.
unsafe extern "C" fn let_go() {
    let void = VOID.load(Ordering::SeqCst);
    for slot in slots() {
        let descriptor = slot.descriptor.load(Ordering::SeqCst);
        if descriptor != FREE {
            // SAFETY: the descriptor is that of an open file of this crate, which nobody but the
            // parent uses.
            unsafe { libc::dup3(void, descriptor, libc::O_CLOEXEC) };
        }
    }
}
