//! Typed keys and values of tables.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_store::fuzzing::typed(bytes);
});
