//! Memory in large pages for commands that simulate gigabytes of flash.
//!
//! A simulated device is read at random, and finding a page of 4 KB in the processor's tables is
//! then a good part of the work: with pages of 2 MB, linear hashing on 10 million records takes
//! three quarters of its time. The C library asks the kernel for them if a variable says so when a
//! program starts, and only then.

use std::os::unix::process::CommandExt;

/// What the GNU C library looks at.
const VARIABLE: &str = "GLIBC_TUNABLES";

/// Starts the program anew with large pages, unless the user has set the variable. Goes on without
/// if that does not work: nothing depends on it but time.
pub fn ask() {
    if cfg!(all(target_os = "linux", target_env = "gnu")) && std::env::var_os(VARIABLE).is_none() {
        let Ok(program) = std::env::current_exe() else {
            return;
        };
        // It comes back only if it failed.
        let _ = std::process::Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, "glibc.malloc.hugetlb=1")
            .exec();
    }
}
