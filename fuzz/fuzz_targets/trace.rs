//! Traces of other tools: an importer, and its text.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_lab::fuzzing::trace(bytes);
});
