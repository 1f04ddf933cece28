//! Roots, their parts, and what protocols keep in them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone::fuzzing::root(bytes);
});
