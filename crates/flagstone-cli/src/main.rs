//! The program `flagstone`. Its commands are in the library, for other programs to use.

use std::process::ExitCode;

fn main() -> ExitCode {
    flagstone_cli::main()
}
