//! Pages of the protocols' logs, and records of the host's log.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone::fuzzing::log(bytes);
    flagstone_host::fuzzing::log(bytes);
});
