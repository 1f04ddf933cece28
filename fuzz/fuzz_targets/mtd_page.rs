//! Ends of pages of raw NAND.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_mtd::fuzzing::mtd_page(bytes);
});
