//! The program `flagstone-store`. Its commands are in the library, for `flagstone store` as well.

use std::process::ExitCode;

fn main() -> ExitCode {
    flagstone_store_tools::main()
}
