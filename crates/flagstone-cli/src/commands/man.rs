//! `flagstone man`: writes a manual page for each command, from the texts of `--help`.
//!
//! The pages are not kept in the repository, so they cannot be outdated. To read one: `flagstone
//! man FOLDER`, then `man -l FOLDER/flagstone-store-compact.1`.

use super::Failure;
use super::examples::examples;
use clap::{Arg, Command};
use flagstone_lab::output::{Output, make_folder};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write the manual pages of all commands into a folder.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder for the pages; created if it does not exist.
    folder: PathBuf,
}

pub(crate) fn run(args: &Args, command: Command, exit_codes: &str) -> Result<ExitCode, Failure> {
    make_folder(&args.folder)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let name = command.get_name().to_string();
    write_pages(&mut command, &name, &args.folder, exit_codes)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of a command and of its subcommands.
fn write_pages(
    command: &mut Command,
    name: &str,
    folder: &Path,
    exit_codes: &str,
) -> Result<(), Failure> {
    let page = page_of(command, name, exit_codes);
    Output::new(&folder.join(format!("{name}.1")), &[])?.write(page.as_bytes())?;
    for below in command.get_subcommands_mut() {
        if !below.is_hide_set() {
            let name = format!("{name}-{}", below.get_name());
            write_pages(below, &name, folder, exit_codes)?;
        }
    }
    Ok(())
}

/// Escapes text for roff: no line begins with a control character, and hyphens can be copied.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = escaped.trim_end().lines().map(|line| {
        if line.starts_with(['.', '\'']) {
            format!("\\&{line}")
        } else {
            line.to_string()
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The manual page of a command, in roff. `name` has the words of the command, joined by `-`.
fn page_of(command: &mut Command, name: &str, exit_codes: &str) -> String {
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let long = command.get_long_about().map(ToString::to_string);
    let usage = command.render_usage().to_string();
    let version = env!("CARGO_PKG_VERSION");
    let mut page = String::new();
    let mut section = |title: &str, text: &str| {
        let _ = writeln!(page, ".SH {title}\n{text}");
    };
    section("NAME", &format!("{} \\- {}", roff(name), roff(&about)));
    let usage = usage.trim_start_matches("Usage:").trim();
    section("SYNOPSIS", &format!(".nf\n{}\n.fi", roff(usage)));
    section("DESCRIPTION", &roff(&long.unwrap_or(about)));
    let shown = |arg: &&Arg| !arg.is_hide_set();
    let arguments: String = command
        .get_positionals()
        .filter(shown)
        .map(entry_of)
        .collect();
    if !arguments.is_empty() {
        section("ARGUMENTS", arguments.trim_end());
    }
    let options: String = command
        .get_opts()
        .chain(command.get_arguments().filter(is_flag))
        .filter(shown)
        .map(entry_of)
        .collect();
    if !options.is_empty() {
        section("OPTIONS", options.trim_end());
    }
    let mut below = String::new();
    for command in command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        let page = roff(&format!("{name}-{}", command.get_name()));
        let _ = writeln!(below, ".TP\n\\fB{page}\\fR(1)\n{}", roff(&about));
    }
    if !below.is_empty() {
        section("COMMANDS", below.trim_end());
    }
    let words = name.split_once('-').map_or("", |(_, words)| words);
    if let Some(examples) = examples().of(command, &words.replace('-', " ")) {
        let examples = examples.trim_start_matches("Examples:\n");
        section("EXAMPLES", &format!(".nf\n{}\n.fi", roff(examples)));
    }
    let codes = exit_codes
        .trim_start_matches("Exit codes:")
        .trim_matches('\n');
    section("EXIT STATUS", &format!(".nf\n{}\n.fi", roff(codes)));
    let title = name.to_uppercase();
    format!(
        ".TH {} 1 \"\" \"flagstone {version}\" \"Flagstone\"\n{page}",
        roff(&title)
    )
}

fn is_flag(arg: &&Arg) -> bool {
    !arg.is_positional() && !arg.get_action().takes_values()
}

/// An entry for an argument: its syntax, its meaning, and its default.
fn entry_of(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let values: Vec<String> = names
        .iter()
        .map(|name| format!("\\fI{}\\fR", roff(name)))
        .collect();
    let mut head = String::new();
    if let Some(short) = arg.get_short() {
        let _ = write!(head, "\\fB\\-{short}\\fR");
    }
    if let Some(long) = arg.get_long() {
        let comma = if head.is_empty() { "" } else { ", " };
        let _ = write!(head, "{comma}\\fB\\-\\-{}\\fR", roff(long));
    }
    if arg.is_positional() || arg.get_action().takes_values() {
        let space = if head.is_empty() { "" } else { " " };
        let _ = write!(head, "{space}{}", values.join(" "));
    }
    let help = arg.get_long_help().or(arg.get_help());
    let mut help = help.map(ToString::to_string).unwrap_or_default();
    if !help.is_empty() && !help.ends_with('.') {
        help.push('.');
    }
    let is_valued = arg.is_positional() || arg.get_action().takes_values();
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|it| it.to_string_lossy())
        .collect();
    if is_valued && !defaults.is_empty() {
        let _ = write!(help, "\nDefault: {}.", defaults.join(" "));
    }
    let possible = arg.get_possible_values();
    let possible: Vec<&str> = possible
        .iter()
        .map(clap::builder::PossibleValue::get_name)
        .collect();
    if is_valued && !possible.is_empty() {
        let _ = write!(help, "\nOne of: {}.", possible.join(", "));
    }
    format!(".TP\n{head}\n{}\n", roff(&help))
}
