//! Files and words of experiments: claims, open settings, sweeps, tasks, workloads.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_papers::fuzzing::sweep(bytes);
});
