//! Spare areas.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone::fuzzing::spare(bytes);
});
