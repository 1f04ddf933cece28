//! Whole stores in memory, with damage.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_store::fuzzing::store(bytes);
});
