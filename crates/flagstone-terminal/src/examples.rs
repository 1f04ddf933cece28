//! Examples of commands, for `--help` and manual pages.

use clap::Command;
use clap::builder::StyledStr;

/// Examples of the commands of one program.
#[derive(Debug, Clone)]
pub struct Examples {
    program: &'static str,
    all: Vec<Example>,
}

#[derive(Debug, Clone)]
struct Example {
    /// What the example does; a line that begins with `# `.
    what: &'static str,
    /// The command line.
    line: String,
}

impl Examples {
    /// Examples of `program`. `text` has pairs of lines: `# ` and what the example does, then the
    /// command line without the name of the program.
    pub fn new(program: &'static str, text: &'static str) -> Examples {
        let all = Vec::new();
        let mut examples = Examples { program, all };
        examples.add(program, text);
        examples
    }

    /// Adds examples of the subcommands of `command`. The lines of `text` leave out the names of
    /// the program and of `command`.
    #[must_use]
    pub fn below(mut self, command: &str, text: &'static str) -> Examples {
        self.add(&format!("{} {command}", self.program), text);
        self
    }

    fn add(&mut self, prefix: &str, text: &'static str) {
        let mut lines = text.lines();
        while let (Some(what), Some(line)) = (lines.next(), lines.next()) {
            let line = format!("{prefix} {line}");
            self.all.push(Example { what, line });
        }
    }

    /// Formats the examples of a command without subcommands. `path` is its command line without
    /// the name of the program and without options. Returns `None` if there are none.
    pub fn of(&self, command: &Command, path: &str) -> Option<String> {
        let words = format!("{} {path} ", self.program);
        let all = self.all.iter();
        let own = all.filter(|example| format!("{} ", example.line).starts_with(&words));
        let each: Vec<String> = own
            .map(|example| format!("  {}\n  {}", example.what, example.line))
            .collect();
        let has_some = !command.has_subcommands() && !each.is_empty();
        has_some.then(|| format!("Examples:\n{}", each.join("\n")))
    }

    /// Appends the examples to the help of a command and of all its subcommands.
    pub fn add_to(&self, command: Command) -> Command {
        self.add_below(command, "")
    }

    fn add_below(&self, command: Command, path: &str) -> Command {
        let names: Vec<String> = command
            .get_subcommands()
            .map(|below| below.get_name().to_string())
            .collect();
        let command = match self.of(&command, path) {
            None => command,
            Some(examples) => {
                let behind = |text: Option<&StyledStr>| match text {
                    Some(text) => format!("{text}\n\n{examples}"),
                    None => examples.clone(),
                };
                let short = behind(command.get_after_help());
                let long = behind(command.get_after_long_help().or(command.get_after_help()));
                command.after_help(short).after_long_help(long)
            }
        };
        names.into_iter().fold(command, |command, name| {
            let path = format!("{path} {name}");
            command.mut_subcommand(&name, |below| self.add_below(below, path.trim()))
        })
    }

    /// The problems of the examples, for tests: commands of `program` without an example, and
    /// examples that its parser refuses. Commands whose paths are in `except` need no example.
    pub fn problems(&self, program: &Command, except: &[&str]) -> Vec<String> {
        let mut paths = Vec::new();
        leaves(program, "", &mut paths);
        paths.retain(|path| !except.contains(&path.as_str()));
        let leaf = Command::new("leaf");
        let without = paths.iter().filter(|path| self.of(&leaf, path).is_none());
        let mut problems: Vec<String> = without
            .map(|path| format!("`{path}` has no example"))
            .collect();
        for Example { what, line } in &self.all {
            if !what.starts_with("# ") {
                problems.push(format!("`{what}` does not begin with `# `"));
            }
            if let Err(error) = program.clone().try_get_matches_from(line.split(' ')) {
                problems.push(format!("{line}: {error}"));
            }
        }
        problems
    }
}

/// Collects the paths of all commands without subcommands.
fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
    if !command.has_subcommands() {
        found.push(path.to_string());
    }
    for below in command.get_subcommands() {
        let path = format!("{path} {}", below.get_name());
        leaves(below, path.trim(), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn program() -> Command {
        let copy = Command::new("copy").arg(Arg::new("from").required(true));
        let lock = Command::new("lock");
        Command::new("tool").subcommand(Command::new("file").subcommand(copy).subcommand(lock))
    }

    #[test]
    fn help_ends_with_the_examples_of_its_command() {
        let examples = Examples::new("tool", "").below("file", "# a copy\ncopy a\n# b\nlock\n");
        let mut command = examples.add_to(program());
        let file = command.find_subcommand_mut("file").expect("there is one");
        let copy = file.find_subcommand_mut("copy").expect("there is one");
        for help in [copy.render_help(), copy.render_long_help()] {
            let help = help.to_string();
            assert!(
                help.ends_with("Examples:\n  # a copy\n  tool file copy a\n"),
                "{help}"
            );
        }
        assert_eq!(examples.problems(&program(), &[]), [""; 0]);
    }

    #[test]
    fn a_missing_example_and_a_wrong_one_are_problems() {
        let examples = Examples::new("tool", "a copy\nfile copy\n");
        let problems = examples.problems(&program(), &[]);
        assert_eq!(problems.len(), 3, "{problems:?}");
        let problems = examples.problems(&program(), &["file lock"]);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
