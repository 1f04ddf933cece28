//! Run ids.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_campaign::fuzzing::run_id(bytes);
});
