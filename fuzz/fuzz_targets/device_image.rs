//! Images of devices, checksum and all.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_lab::fuzzing::device_image(bytes);
});
