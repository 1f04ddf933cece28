//! Pages of records, and what stands behind one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone::fuzzing::page(bytes);
});
