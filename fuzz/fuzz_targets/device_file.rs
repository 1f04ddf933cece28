//! Device files (TOML).
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_lab::fuzzing::device_file(bytes);
});
