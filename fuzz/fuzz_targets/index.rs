//! Indexes over damaged pages.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_index::fuzzing::index(bytes);
});
