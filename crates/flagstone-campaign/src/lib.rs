//! Power-cut tests of protocols, databases, indexes and stores.
//!
//! A [`campaign`] runs seeded clients on a simulated device, cuts the power at any operation, and
//! compares the recovered contents with an oracle. [`explain`] describes such a run step by step.
//! [`stores`] cuts and damages stores on a medium. A [`witness`] verifies what a machine had
//! committed before it lost its power.
//!
//! Some controls of campaigns are deliberate mistakes. They exist only in builds with the feature
//! `mistakes`.
#![forbid(unsafe_code)]

pub mod campaign;
pub mod explain;
pub mod stores;
pub mod witness;
mod payload;
#[doc(hidden)]
pub mod fuzzing;

use flagstone::mistakes::Mistaken;

/// Converts an optional mistake for the code that makes it. Without the feature `mistakes`, the
/// argument is always `None`.
fn made<M>(mistake: Option<M>) -> Mistaken<M> {
    let made = mistake.map(|one| Mistaken::making(one).expect("a name for it"));
    made.unwrap_or_default()
}
