//! `flagstone trace record`: hands its arguments to the program `flagstone-record`.
//!
//! That program brings a PostgreSQL client, with which a third of the time of a first build would
//! go, so it is built when somebody wants it.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::{Failure, NOT_DONE};

const PROGRAM: &str = "flagstone-record";

/// What to record from, and how: `postgres --help` tells.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The arguments of flagstone-record.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

/// Runs the program, and ends as it ends.
pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let this = std::env::current_exe().unwrap_or_default();
    let program = beside(&this).unwrap_or_else(|| PROGRAM.into());
    let status = Command::new(&program).args(&args.arguments).status();
    let status = status.map_err(|error| match error.kind() {
        ErrorKind::NotFound => missing(&this),
        _ => Failure::Failed(format!("{} cannot be run: {error}", program.display())),
    })?;
    // A program that a signal ended has no code.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(NOT_DONE)))
}

/// The program as it was built or installed with this one.
fn beside(this: &Path) -> Option<PathBuf> {
    let name = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    Some(this.with_file_name(name)).filter(|path| path.is_file())
}

/// How to get it where it is missing.
fn missing(this: &Path) -> Failure {
    let release = this
        .parent()
        .is_some_and(|folder| folder.ends_with("release"));
    let release = if release { "--release " } else { "" };
    Failure::Failed(format!(
        "the program {PROGRAM} is missing; it brings a PostgreSQL client and is built apart"
    ))
    .tip(format!(
        "`cargo build {release}-p {PROGRAM}` in a clone puts it beside this program"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_said_how_to_build_for_this_profile() {
        let tip = |this: &str| {
            let Failure::Failed(text) = missing(Path::new(this)) else {
                panic!("not a matter of usage");
            };
            text
        };
        let said = tip("/clone/target/release/flagstone");
        assert!(
            said.contains("`cargo build --release -p flagstone-record`"),
            "{said}"
        );
        let said = tip("/clone/target/debug/flagstone");
        assert!(said.contains("`cargo build -p flagstone-record`"), "{said}");
    }
}
