//! The program `flagstone`. Its commands are in the library beside it, for other programs as well.

use std::process::ExitCode;

fn main() -> ExitCode {
    flagstone_cli::main()
}
