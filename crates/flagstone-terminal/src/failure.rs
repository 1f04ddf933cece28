//! Why a command did not do what was asked, and how it says so.
//!
//! All commands end alike: 0, it is done and all is well; 1, it is done and the verdict is bad;
//! 2, it could not be done. A [`Failure`] is the last of these, whatever the reason. On stderr it
//! looks as the parser of arguments has it: a line `error: …`, and `tip: …` where there is advice.

use crate::inside;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::process::ExitCode;

/// Exit code of a command that could not do what was asked.
pub const NOT_DONE: u8 = 2;

/// Why a command ended without doing its work: exit code 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The command was used wrongly.
    Usage(String),
    /// It failed on the way.
    Failed(String),
}

impl Failure {
    /// With a line of advice.
    #[must_use]
    pub fn tip(self, advice: impl fmt::Display) -> Failure {
        let with = |text: String| format!("{text}\n\n  tip: {advice}");
        match self {
            Failure::Usage(text) => Failure::Usage(with(text)),
            Failure::Failed(text) => Failure::Failed(with(text)),
        }
    }

    /// Why, in words that are safe to print.
    pub fn why(&self) -> String {
        let (Failure::Usage(text) | Failure::Failed(text)) = self;
        printable(text)
    }

    /// Says why on stderr and gives the exit code.
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

/// A message may quote a file that is no text: nothing of that is to reach a terminal as a command.
fn printable(text: &str) -> String {
    let odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    let shown = |c: char| if odd(c) { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
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

/// Prints a line to stderr. One that cannot be printed is no reason to stop.
pub fn note(line: &str) {
    if let Some(program) = inside::program() {
        return program.note(line);
    }
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints a line to stdout. A result that is lost ends the command; a reader that has gone away, as
/// `head` does, does not: the exit code is to say how the command ended.
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

/// What became of a result on its way to stdout. A reader that has gone away is no failure.
pub fn unless_closed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Failed(format!(
            "the result cannot be written to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// Characters of a line that is shown.
const EXCERPT_MAX: usize = 200;

/// The first line of a part of a text with its number, and the part underlined.
pub fn excerpt(text: &str, part: Range<usize>) -> String {
    let start = text[..part.start].rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    // A line that no editor shows whole would fill the screen.
    if line.chars().count() > EXCERPT_MAX {
        return format!("  in a line of {} characters", line.chars().count());
    }
    let number = text[..start].matches('\n').count() + 1;
    let before = text[start..part.start].chars().count();
    let end = part.end.min(start + line.len()).max(part.start);
    let under = text[part.start..end].chars().count().max(1);
    let margin = " ".repeat(number.to_string().len());
    // Tabs stay tabs, so that the mark is where the eye expects it.
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
