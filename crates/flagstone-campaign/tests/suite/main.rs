//! Campaigns on whole devices, and the golden devices and stores.

mod aging;
mod campaign;
mod campaign_device;
mod databases;
mod golden;
mod golden_disk;
#[cfg(feature = "encryption")]
mod golden_encrypted;
mod golden_files;
mod golden_store;
mod golden_tables;
mod landings;
mod paired;
