//! The lab's tests that need a whole device.

mod bare;
mod image;
mod life;
mod replay;
mod write_amplification;
