//! Database files in a store, with damage under right checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_sqlite::fuzzing::database(bytes);
});
