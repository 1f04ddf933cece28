//! Tests of the library from outside: they use its public items only, so a change of the inside
//! leaves them alone. Each file has one subject. The tests of a protocol are in a file named after
//! the protocol or its family.
//!
//! Tests that need private items are in `src`, beside the code.

// What several files share.
mod laid;
mod layouts;
mod shown;
mod small_device;

// Below protocols.
mod checksums;
mod faulty;
mod paired_pages;
mod power_cut;

// All protocols.
mod end_of_life;
mod failing_meta;
mod growing;
mod large_roots;
mod long_lives;
mod requests;
mod rot;
mod settings;
mod show;
mod tables;

// A protocol, or a family.
mod afc;
mod cfc;
mod cyclic;
mod flag_chain;
mod lighttx;
mod map_cache;
mod mapping_log;
mod mhl_d;
mod plain;
mod records;
mod rest;
mod seal;
mod seal_r;
mod shadow_log;
mod snapshots;
mod steps;
mod trims;
