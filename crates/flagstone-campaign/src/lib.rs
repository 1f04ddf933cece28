//! Power cuts: under protocols, databases, indexes and stores.
//!
//! A [`campaign`] runs seeded clients on a simulated device, cuts the power at any operation, and
//! compares what a restart finds with an oracle. [`explain`] tells such a run as a story.
//! [`stores`] cuts and damages stores on a medium. A [`witness`] tells what a machine had committed
//! before it lost its power.
//!
//! Some controls of campaigns are mistakes made on purpose. A build without the feature `mistakes`
//! does not have these.
#![forbid(unsafe_code)]

pub mod campaign;
pub mod explain;
pub mod stores;
pub mod witness;
#[doc(hidden)]
pub mod fuzzing;

use flagstone::mistakes::Mistaken;

/// Makes a mistake, if there is one. In a build without mistakes none has a name to ask for.
fn made<M>(mistake: Option<M>) -> Mistaken<M> {
    let made = mistake.map(|one| Mistaken::making(one).expect("a name for it"));
    made.unwrap_or_default()
}
