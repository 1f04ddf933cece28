//! Checks the database in a store by running the program `flagstone-sqlite`, since this program
//! does not contain SQLite.

use super::Of;
use flagstone_terminal::Failure;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};

const PROGRAM: &str = "flagstone-sqlite";

/// The problems that SQLite finds in the database; empty if there are none.
pub(super) fn wrong(of: &Of) -> Result<Vec<String>, Failure> {
    let key = of.key.arguments()?;
    let run = |program: PathBuf| {
        let mut command = Command::new(program);
        command.args(["check", "--json"]).args(&key);
        command.arg("--").arg(&of.store).output()
    };
    let beside = std::env::current_exe()?.with_file_name(PROGRAM);
    let ran = match run(beside) {
        Err(error) if error.kind() == ErrorKind::NotFound => run(PROGRAM.into()),
        ran => ran,
    };
    let out =
        ran.map_err(|error| {
            Failure::Failed(format!("cannot run {PROGRAM}, which contains SQLite: {error}")).tip(
            "build it with `cargo build --release -p flagstone-sqlite-tools`, and put it beside \
             this program or in a folder of PATH",
        )
        })?;
    read(&out).ok_or_else(|| {
        let said = String::from_utf8_lossy(&out.stderr);
        let said = said.trim().trim_start_matches("error: ");
        Failure::Failed(format!("{PROGRAM}: {said}"))
    })
}

/// Parses the findings that `flagstone-sqlite` prints.
fn read(out: &Output) -> Option<Vec<String>> {
    let verdict: Value = serde_json::from_slice(&out.stdout).ok()?;
    let wrong = verdict["wrong"].as_array()?.iter();
    let wrong: Vec<String> = wrong
        .map(|what| what.as_str().map(str::to_owned))
        .collect::<Option<_>>()?;
    (verdict["ok"] == wrong.is_empty()).then_some(wrong)
}
