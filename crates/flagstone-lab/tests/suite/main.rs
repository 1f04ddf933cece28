//! The lab's tests that need a whole device.

mod campaign;
mod fuzzing;
mod golden;
mod replay;
mod image;
mod life;
mod write_amplification;
