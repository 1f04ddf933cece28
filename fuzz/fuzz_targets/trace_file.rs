//! Trace files (Parquet).
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_lab::fuzzing::trace_file(bytes);
});
