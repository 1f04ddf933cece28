//! An nbdkit plugin that serves a Flagstone store, or a simulated device, as a disk.
//!
//! ```text
//!  plugin     callbacks of nbdkit: keys of its command line, connections, requests
//!  settings   the keys, and which combinations are valid
//!  service    the thread that owns the disk and serves the requests of all connections
//!  simulated  a simulated device as pages, and the virtual end time of each request
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
