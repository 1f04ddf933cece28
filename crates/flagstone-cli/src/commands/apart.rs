//! Commands that are separate programs. `flagstone trace record` and `flagstone sqlite` pass their
//! arguments on to them.
//!
//! These programs depend on a PostgreSQL client and on SQLite, which would take a third of the time
//! of a first build. So they are built only on request.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::{Failure, NOT_DONE};

/// A program that is built separately.
pub(crate) struct Program {
    /// The name of the executable.
    name: &'static str,
    /// The cargo package that contains the program.
    package: &'static str,
    /// The features that the program adds, for the message if it is missing.
    brings: &'static str,
}

/// Records traces from PostgreSQL.
pub(crate) const RECORD: Program = Program {
    name: "flagstone-record",
    package: "flagstone-record",
    brings: "a PostgreSQL client",
};

/// Copies SQLite databases into stores and back, and measures SQLite's speed on them.
pub(crate) const SQLITE: Program = Program {
    name: "flagstone-sqlite",
    package: "flagstone-sqlite-tools",
    brings: "SQLite",
};

/// The arguments of a separate program.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments for the program; `--help` lists them.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    arguments: Vec<OsString>,
}

/// Runs the program and returns its exit code.
pub(crate) fn run(program: &Program, args: &Args) -> Result<ExitCode, Failure> {
    let this = std::env::current_exe().unwrap_or_default();
    let path = program.beside(&this).unwrap_or_else(|| program.name.into());
    let status = Command::new(&path).args(&args.arguments).status();
    let status = status.map_err(|error| match error.kind() {
        ErrorKind::NotFound => program.missing(&this),
        _ => Failure::Failed(format!("{} cannot be run: {error}", path.display())),
    })?;
    // A program that was ended by a signal has no exit code.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(NOT_DONE)))
}

impl Program {
    /// The program in the folder of this executable, if it has been built or installed there.
    fn beside(&self, this: &Path) -> Option<PathBuf> {
        let name = format!("{}{}", self.name, std::env::consts::EXE_SUFFIX);
        Some(this.with_file_name(name)).filter(|path| path.is_file())
    }

    /// The error if the program is missing. Says how to build it.
    fn missing(&self, this: &Path) -> Failure {
        let parent = this.parent();
        let release = if parent.is_some_and(|folder| folder.ends_with("release")) {
            "--release "
        } else {
            ""
        };
        Failure::Failed(format!(
            "the program {} is missing; it contains {} and is built separately",
            self.name, self.brings
        ))
        .tip(format!(
            "run `cargo build {release}-p {}` in a clone of the repository: it builds the program \
             beside this one",
            self.package
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_said_how_to_build_for_this_profile() {
        let tip = |program: &Program, this: &str| {
            let Failure::Failed(text) = program.missing(Path::new(this)) else {
                panic!("not a matter of usage");
            };
            text
        };
        let said = tip(&RECORD, "/clone/target/release/flagstone");
        assert!(
            said.contains("`cargo build --release -p flagstone-record`"),
            "{said}"
        );
        let said = tip(&SQLITE, "/clone/target/debug/flagstone");
        assert!(
            said.contains("`cargo build -p flagstone-sqlite-tools`"),
            "{said}"
        );
    }
}
