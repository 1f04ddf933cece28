//! Ends of journals, which may name a super-journal.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flagstone_sqlite::fuzzing::journal_end(bytes);
});
