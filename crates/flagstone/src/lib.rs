//! Flagstone: a transactional storage stack for flash.
//!
//! The modules are listed in the order in which data rises through them; none names one that comes
//! after it, and a test holds them to that.
#![forbid(unsafe_code)]

#[cfg(test)]
mod cases;
#[cfg(test)]
mod dice;

pub mod units;
pub mod layout;
pub mod settings;
pub mod nand;
pub mod ftl;
pub mod page;
pub mod commit;
pub mod buffer;
pub mod host;
pub mod index;
#[doc(hidden)]
pub mod fuzzing;
