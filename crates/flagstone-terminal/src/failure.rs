//! Failures of commands, and how they are reported.
//!
//! All commands use the same exit codes. 0: done, no problem found; 1: done, a problem was found;
//! 2: could not be done. A [`Failure`] is the last of these, for any reason. On stderr it has the
//! format of the argument parser: a line `error: …`, and `tip: …` if there is advice.

use crate::inside;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::process::ExitCode;

/// Exit code of a command that could not do what was asked.
pub const NOT_DONE: u8 = 2;

/// Why a command did not do its work: exit code 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The command was used wrongly.
    Usage(String),
    /// It failed during execution.
    Failed(String),
}

impl Failure {
    /// Adds a line of advice.
    #[must_use]
    pub fn tip(self, advice: impl fmt::Display) -> Failure {
        let with = |text: String| format!("{text}\n\n  tip: {advice}");
        match self {
            Failure::Usage(text) => Failure::Usage(with(text)),
            Failure::Failed(text) => Failure::Failed(with(text)),
        }
    }

    /// The reason, safe to print on a terminal.
    pub fn why(&self) -> String {
        let (Failure::Usage(text) | Failure::Failed(text)) = self;
        printable(text)
    }

    /// Prints the reason to stderr and returns the exit code.
    pub fn report(self) -> ExitCode {
        note(&format!("error: {}", self.why()));
        ExitCode::from(NOT_DONE)
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Failed(chain(&error))
    }
}

/// Escapes control characters: a message may quote binary data, which must not reach a terminal.
fn printable(text: &str) -> String {
    let odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    let shown = |c: char| if odd(c) { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
}

/// An error and its causes in one line. Omits causes that the text contains already.
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

/// Prints a line to stderr. Ignores errors.
pub fn note(line: &str) {
    if let Some(program) = inside::program() {
        return program.note(line);
    }
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints a line to stdout. A write error ends the command, except if the reader has closed the
/// pipe (`head`): the exit code must tell how the command ended.
pub fn say(line: &str) {
    if let Some(program) = inside::program() {
        return program.say(line);
    }
    let mut out = io::stdout().lock();
    let written = out
        .write_all(line.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    drop(out);
    if let Err(failure) = unless_closed(written) {
        failure.report();
        std::process::exit(NOT_DONE.into());
    }
}

/// Converts the result of writing to stdout. A closed pipe is no failure.
pub fn unless_closed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Failed(format!(
            "cannot write the result to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// Maximum number of characters of an excerpt.
const EXCERPT_MAX: usize = 200;

/// The first line of a part of a text, with its number and the part underlined.
pub fn excerpt(text: &str, part: Range<usize>) -> String {
    let start = text[..part.start].rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    // A line too long for an editor would fill the screen.
    if line.chars().count() > EXCERPT_MAX {
        return format!("  in a line of {} characters", line.chars().count());
    }
    let number = text[..start].matches('\n').count() + 1;
    let before = text[start..part.start].chars().count();
    let end = part.end.min(start + line.len()).max(part.start);
    let under = text[part.start..end].chars().count().max(1);
    let margin = " ".repeat(number.to_string().len());
    // Keeps tabs, so that the underline is aligned.
    let indent: String = line
        .chars()
        .take(before)
        .map(|c| if c == '\t' { '\t' } else { ' ' })
        .collect();
    format!(
        "{margin} |\n{number} | {line}\n{margin} | {indent}{}",
        "^".repeat(under)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_a_line_of_its_own() {
        let failure = Failure::Usage("no".into()).tip("do this");
        assert_eq!(failure, Failure::Usage("no\n\n  tip: do this".into()));
    }

    #[test]
    fn a_cause_is_told_once() {
        let inner = io::Error::other("no room");
        let outer: Failure = io::Error::other(inner).into();
        assert_eq!(outer, Failure::Failed("no room".into()));
    }

    #[test]
    fn what_is_quoted_cannot_command_a_terminal() {
        let text = "a\u{1b}[2J\r\0b\n\tc\u{9b}";
        assert_eq!(
            printable(text),
            "a\u{fffd}[2J\u{fffd}\u{fffd}b\n\tc\u{fffd}"
        );
    }

    #[test]
    fn the_part_that_is_wrong_is_underlined() {
        let text = "one\ntwo = 3\nthree";
        assert_eq!(excerpt(text, 4..7), "  |\n2 | two = 3\n  | ^^^");
        assert_eq!(excerpt(text, 10..17), "  |\n2 | two = 3\n  |       ^");
        assert_eq!(excerpt(text, 17..17), "  |\n3 | three\n  |      ^");
        assert_eq!(excerpt("", 0..0), "  |\n1 | \n  | ^");
    }
}
