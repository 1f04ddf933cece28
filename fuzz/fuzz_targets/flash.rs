//! Whole devices: a stack, and damage to what is on its flash.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_host::fuzzing::flash(bytes);
});
