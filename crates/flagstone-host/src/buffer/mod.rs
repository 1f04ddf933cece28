//! The buffer pool of a database: pages in frames of memory, and the choice of the page to evict.
//!
//! It has two parts. [`Pool`] keeps the frames: which page is where, which pages are dirty or
//! pinned, and how many accesses were hits. A [`Policy`] chooses the frame to evict and does
//! nothing else: no I/O, no counting. Each policy has a file; this file has the trait and the
//! registry. A further policy is a file and a line in `policies!`.
//!
//! The pool never writes. The caller decides whether a changed page is written at once
//! (write-through) or when it is evicted (write-back). A caller that writes through calls
//! [`Pool::set_dirty`] with `false` after each write, and then every victim is clean. The caller
//! also decides whether pages of live transactions may be evicted (steal), by its answers to
//! [`Pool::victim`].
//!
//! Every operation takes constant time, or the logarithm of the number of frames, amortised. A
//! choice looks at one more frame for each one that is pinned or refused and comes first.
//!
//! ```
//! use flagstone_host::buffer::{PolicyKind, Pool};
//! use flagstone::settings::Settings;
//! use flagstone::units::Lpn;
//!
//! let mut pool = Pool::new(2, PolicyKind::Lru, &Settings::new());
//! pool.insert(Lpn(1), "one", false);
//! pool.insert(Lpn(2), "two", true);
//! assert_eq!(pool.get(Lpn(1), false), Some(&mut "one"));
//!
//! // The pool is full. The owner writes the victim out if it is dirty, and then removes it.
//! let victim = pool.victim(&mut |_, _| true).expect("nothing is pinned");
//! assert!(victim == Lpn(2) && pool.is_dirty(victim));
//! pool.set_dirty(victim, false);
//! pool.remove(victim);
//! pool.insert(Lpn(3), "three", false);
//! assert_eq!(pool.stats().evicted().all(), 1);
//! ```

mod distances;
mod list;
#[cfg(test)]
mod history;
mod pool;
#[cfg(test)]
mod tests;

// One module per policy.
mod lru;
mod cflru;
mod cfdc;
mod fd_buffer;
mod clock;

pub use pool::{Evictions, Pool, PoolStats};

use flagstone::settings::{BadSetting, Setting, Settings, configurable, registry};
use flagstone::units::Lpn;

/// A frame: the slot of the pool that holds a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

impl FrameId {
    /// The number as an index into an array.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Chooses the frame to evict. [`Pool`] tells it about accesses, and asks for a victim.
pub trait Policy {
    /// A page was inserted into a free frame. The frame is dirty if `write` is set.
    fn inserted(&mut self, frame: FrameId, page: Lpn, write: bool);

    /// A page was accessed in its frame (a hit). After a write the frame is dirty.
    fn touched(&mut self, frame: FrameId, write: bool);

    /// The frame became dirty, or was written out, without an access.
    fn marked(&mut self, frame: FrameId, dirty: bool);

    /// The page left its frame, evicted or dropped.
    fn removed(&mut self, frame: FrameId);

    /// The frame to evict, among those for which `may` returns `true`; `None` if there is none. The
    /// caller need not evict it: only [`Policy::removed`] says that the page left.
    fn victim(&mut self, may: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId>;

    /// Checks the policy's invariants, in tests.
    ///
    /// # Errors
    /// Describes the violated invariant.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A description of a policy.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PolicyInfo {
    /// The name in commands and results; `-` becomes `_` in the file's name.
    pub name: &'static str,
    /// One line on what it evicts.
    pub idea: &'static str,
    /// Key of the paper, see docs/papers.md; `-` for policies older than papers on flash.
    pub paper: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
}

configurable!(PolicyInfo);

macro_rules! policies {
    ($($(#[$doc:meta])* $variant:ident => $module:ident;)+) => {
        registry! {
            /// The registry of eviction policies.
            PolicyKind: PolicyInfo {
                $($(#[$doc])* $variant => $module;)+
            }
        }

        impl PolicyKind {
            /// A policy for a pool of `frames` frames.
            ///
            /// # Errors
            /// An unknown setting, or an invalid value.
            pub fn start(
                self,
                frames: usize,
                settings: &Settings,
            ) -> Result<Box<dyn Policy>, BadSetting> {
                settings.check(self.info())?;
                match self {
                    $(PolicyKind::$variant => $module::start(frames, settings),)+
                }
            }
        }
    };
}

policies! {
    /// Least recently used.
    Lru => lru;
    /// Clean first within a window of the least recently used.
    Cflru => cflru;
    /// Clean first, dirty pages by cluster.
    Cfdc => cfdc;
    /// A clean and a dirty pool whose sizes follow the workload.
    FdBuffer => fd_buffer;
    /// Second chance.
    Clock => clock;
}
