//! Marks of blocks and pages of a store, as they are and with right checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_store::fuzzing::page(bytes);
});
