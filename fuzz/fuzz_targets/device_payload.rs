//! What the checksum of an image guards.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_lab::fuzzing::device_payload(bytes);
});
