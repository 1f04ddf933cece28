//! The program `flagstone-store`. Its commands are in the library, which `flagstone store` also
//! uses.

use std::process::ExitCode;

fn main() -> ExitCode {
    flagstone_store_tools::main()
}
