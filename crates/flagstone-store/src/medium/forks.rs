//! Releases locked files in forked processes.
//!
//! A file lock (`flock`) lasts until the last descriptor of that opening is closed, including those
//! inherited by forked processes. A daemon would hold its parent's lock as long as it lives, and
//! could not open the store itself. So a forked process replaces each inherited descriptor by an
//! `O_PATH` descriptor, which can be neither read nor written. The number stays in use: code that
//! still uses it gets EBADF, and closing it closes no other file.
//!
//! `unsafe`: the handler is registered with `pthread_atfork`. It runs in a process that may have
//! been forked while another thread held any lock. So it does not allocate, takes no lock, and
//! calls only `dup3`.

#![allow(unsafe_code, reason = "there is no other way to hear of a fork")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Marks an unused slot.
const FREE: i32 = -1;

/// A slot for a descriptor, in a list that never shrinks.
struct Slot {
    descriptor: AtomicI32,
    next: *const Slot,
}

/// The head of the list.
static FIRST: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// The `O_PATH` descriptor that replaces inherited ones.
static VOID: AtomicI32 = AtomicI32::new(FREE);

/// Registers a descriptor to be replaced in forked processes until this is dropped. Drop it before
/// the file is closed, since another file may get the same number.
#[derive(Debug)]
pub(crate) struct LetGo(&'static AtomicI32);

impl LetGo {
    /// Registers an open file for processes that are forked from now on.
    pub(crate) fn new(file: &File) -> LetGo {
        static READY: Once = Once::new();
        READY.call_once(|| {
            let mut options = File::options();
            options.read(true).custom_flags(libc::O_PATH);
            if let Ok(void) = options.open("/") {
                VOID.store(void.as_raw_fd(), Ordering::SeqCst);
                // The descriptor stays open for the life of the process.
                std::mem::forget(void);
                // SAFETY: the handler does only what is allowed in such a handler.
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
                // SAFETY: the slot was just allocated and is not in the list yet.
                unsafe { (*slot).next = first };
                match FIRST.compare_exchange(first, slot, Ordering::SeqCst, Ordering::SeqCst) {
                    // SAFETY: a slot is never freed; only its atomic changes from now on.
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

/// All slots.
fn slots() -> impl Iterator<Item = &'static Slot> {
    let mut next: *const Slot = FIRST.load(Ordering::SeqCst);
    std::iter::from_fn(move || {
        // SAFETY: slots are never freed, and are initialised before they are in the list.
        let slot = unsafe { next.as_ref() }?;
        next = slot.next;
        Some(slot)
    })
}

/// Runs in the child process directly after a fork.
unsafe extern "C" fn let_go() {
    let void = VOID.load(Ordering::SeqCst);
    for slot in slots() {
        let descriptor = slot.descriptor.load(Ordering::SeqCst);
        if descriptor != FREE {
            // SAFETY: the descriptor belongs to an open file of this crate, which only the parent
            // uses.
            unsafe { libc::dup3(void, descriptor, libc::O_CLOEXEC) };
        }
    }
}
