//! Parsing of command-line arguments.

use crate::Failure;
use clap::{Arg, Command, Parser};
use std::ffi::OsString;

/// Parses the arguments of the process. On an error, prints it and exits with code 2.
pub fn arguments<T: Parser>() -> T {
    arguments_with(|command| command)
}

/// Like [`arguments`], for a modified command, for example with examples added.
pub fn arguments_with<T: Parser>(change: impl FnOnce(Command) -> Command) -> T {
    let matches = with_negative_numbers(change(T::command())).get_matches();
    T::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Parses a line that begins with the program's name, without exiting on errors.
///
/// # Errors
/// Invalid arguments; also requests other than commands, such as `--help`.
pub fn parsed<T: Parser>(line: impl IntoIterator<Item = OsString>) -> Result<T, Failure> {
    let usage = |error: clap::Error| {
        let text = error.render().to_string();
        Failure::Usage(
            text.strip_prefix("error: ")
                .unwrap_or(&text)
                .trim_end()
                .into(),
        )
    };
    let command = with_negative_numbers(T::command());
    let matches = command.try_get_matches_from(line).map_err(usage)?;
    T::from_arg_matches(&matches).map_err(usage)
}

/// Makes `--fill -1` an invalid share instead of an option `-1`.
fn with_negative_numbers(command: Command) -> Command {
    let negative = |arg: Arg| {
        if arg.is_positional() || !arg.get_action().takes_values() {
            arg
        } else {
            arg.allow_negative_numbers(true)
        }
    };
    command
        .mut_args(negative)
        .mut_subcommands(with_negative_numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    #[test]
    fn a_negative_number_is_a_value_also_of_a_command_below() {
        let number = || {
            Arg::new("n")
                .long("n")
                .value_parser(clap::value_parser!(u8))
        };
        let below = Command::new("below").arg(number());
        let command = with_negative_numbers(Command::new("above").arg(number()).subcommand(below));
        for line in [
            &["above", "--n", "-1"][..],
            &["above", "below", "--n", "-1"],
        ] {
            let error = command.clone().try_get_matches_from(line).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{error}");
        }
    }
}
