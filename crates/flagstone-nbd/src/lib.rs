//! An nbdkit plugin that serves a Flagstone store, or a simulated device, as a disk.
//!
//! ```text
//!  plugin     what nbdkit calls: keys of its command line, connections, requests
//!  settings   the keys, and what they mean together
//!  service    one thread with the disk, which all connections send their requests to
//!  simulated  a simulated device as pages, and the instants at which it would be done
//! ```
//!
//! docs/disk.md says how to use it and what is promised.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(dead_code, reason = "tests are built without the plugin"))]

// These callbacks can only be linked into nbdkit.
#[cfg(not(test))]
mod plugin;
mod service;
mod settings;
mod simulated;
