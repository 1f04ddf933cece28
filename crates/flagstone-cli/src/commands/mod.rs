//! One file a command: its arguments, what it runs, what it prints.

pub mod break_;
pub mod compare;
pub mod device;
pub mod index;
mod notes;
mod progress;
pub mod protocols;
mod record;
pub mod replay;
pub mod reproduce;
pub mod trace;

use progress::{progress, progress_bar};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Why a command ended without doing its work.
#[derive(Debug)]
pub enum Failure {
    /// The command was used wrongly: exit code 2.
    Usage(String),
    /// A file that the user wrote is wrong, and the report shows where: exit code 2.
    Input(miette::Report),
    /// It failed on the way: exit code 1.
    Failed(miette::Report),
}

impl Failure {
    /// Says why on stderr and gives the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Failure::Usage(text) => {
                eprintln!("error: {text}");
                ExitCode::from(2)
            }
            Failure::Input(report) => {
                eprintln!("{report:?}");
                ExitCode::from(2)
            }
            Failure::Failed(report) => {
                eprintln!("{report:?}");
                ExitCode::FAILURE
            }
        }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Failed(miette::miette!("{}", chain(&error)))
    }
}

/// An error and its causes in one line; a cause that the text names already is left out.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let what = cause.to_string();
        if !text.contains(&what) {
            text.push_str(": ");
            text.push_str(&what);
        }
        source = cause.source();
    }
    text
}

/// Prints a line to stdout. A reader that has gone away is no failure; a result that is lost is.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(line.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("error: the result cannot be written to standard output: {error}");
            std::process::exit(1);
        }
    }
}

/// The protocols of a list like `cfc,afc` or `all`.
pub fn protocols_of(list: &str) -> Result<Vec<flagstone::commit::Kind>, Failure> {
    use flagstone::commit::Kind;
    if list == "all" {
        return Ok(Kind::ALL.to_vec());
    }
    list.split(',')
        .map(|name| {
            Kind::by_name(name.trim()).ok_or_else(|| {
                let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.info().name).collect();
                Failure::Usage(format!(
                    "there is no protocol `{name}`; there are {} and `all`",
                    names.join(", ")
                ))
            })
        })
        .collect()
}

/// A share of something, as an argument.
pub fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("it must be a number from 0 to 1".into()),
    }
}
