//! The lab's tests that need a whole device.

mod aging;
mod bare;
mod campaign;
mod campaign_device;
mod databases;
mod fuzzing;
mod golden;
mod golden_disk;
mod golden_files;
#[cfg(feature = "encryption")]
mod golden_encrypted;
mod golden_store;
mod golden_tables;
mod replay;
mod image;
mod landings;
mod life;
mod paired;
mod write_amplification;
