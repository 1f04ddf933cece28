//! Examples of every command, for `--help` and the manual pages.
//!
//! A test holds that each command has some, and that each is one that the parser takes.

use clap::Command;

/// By the words behind `flagstone`: lines to type, and what they do.
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "compare",
        &[
            ("compare", "the shipped trace on every protocol"),
            (
                "compare mine.parquet --protocols seal,lighttx --seeds 5",
                "a trace of your own, and which rows tie",
            ),
            (
                "compare --workload zipf:0.9 --over abort-ratio=0..0.5 --html page.html",
                "along a setting, drawn",
            ),
            (
                "compare --stack wal,cfc-ex,force:seal",
                "databases instead of devices",
            ),
        ],
    ),
    (
        "break",
        &[
            (
                "break --protocol seal --cuts 20000 --faults all",
                "power cuts among faults: nothing is lost",
            ),
            (
                "break --protocol scc --as-published --cuts 4000",
                "a protocol as its paper prints it: finds a loss",
            ),
            (
                "break --protocol seal --sabotage sync-ignored --cuts 2000",
                "a control, which must find something",
            ),
            (
                "break --protocol seal --device tlc --cuts 2000",
                "on small devices with the cells, planes and latencies of that one",
            ),
        ],
    ),
    (
        "explain",
        &[
            (
                "explain scc",
                "an example on a protocol, and its printed form, told here",
            ),
            (
                "explain seal --html seal.html",
                "on a page to play and step through",
            ),
        ],
    ),
    (
        "replay",
        &[(
            "replay scc.published/g0/b0/w1x2/f1/s3514/n1/c0-86-n",
            "a run of break, by its run id",
        )],
    ),
    (
        "reproduce",
        &[(
            "reproduce lighttx --quick --out report",
            "one paper's claims in some minutes, with a page",
        )],
    ),
    (
        "sweep",
        &[
            (
                "sweep crates/flagstone-lab/sweeps/clients-and-aborts.toml --html map.html",
                "which protocol wins where",
            ),
            (
                "sweep mine.toml --list --json",
                "the tasks as data, for machines of your own",
            ),
        ],
    ),
    (
        "sensitivity",
        &[
            (
                "sensitivity flagcommit --list",
                "what a paper leaves open, and within which bounds",
            ),
            (
                "sensitivity flagcommit.fig12a --climb 3 --samples 8",
                "what one figure hangs on; hours",
            ),
        ],
    ),
    (
        "protocols",
        &[("protocols", "all of them, with their settings")],
    ),
    ("device list", &[("device list", "the presets")]),
    (
        "device show",
        &[("device show small", "a preset as a file to change")],
    ),
    (
        "device schema",
        &[("device schema", "for an editor that checks TOML")],
    ),
    (
        "device fill",
        &[(
            "device fill small --protocol cfc -o cfc.image",
            "a device to start comparisons from",
        )],
    ),
    (
        "device age",
        &[
            ("device age worn --for 1y", "a year on worn flash"),
            (
                "device age worn --for 1y --no-scrub",
                "the control, which loses pages",
            ),
        ],
    ),
    ("index list", &[("index list", "all of them")]),
    (
        "index bench",
        &[(
            "index bench --index sal --workload ycsb-a --records 100000",
            "an index under a workload",
        )],
    ),
    (
        "trace import waldump",
        &[(
            "trace import waldump - -o mine.parquet",
            "from what pg_waldump prints",
        )],
    ),
    (
        "trace import disksim",
        &[(
            "trace import disksim disk.trace --time-unit ms -o mine.parquet",
            "DiskSim's own times are in milliseconds",
        )],
    ),
    (
        "trace import msr",
        &[(
            "trace import msr web_0.csv -o web.parquet",
            "as it is published",
        )],
    ),
    (
        "trace import blkparse",
        &[
            (
                "trace import blkparse blk.txt -o mine.parquet",
                "each request alone",
            ),
            (
                "trace import blkparse blk.txt --commit-at flush -o mine.parquet",
                "what lies between two flushes as a transaction",
            ),
        ],
    ),
    (
        "trace import fio",
        &[(
            "trace import fio run.log --commit-at flush -o mine.parquet",
            "what is written between two syncs as a transaction",
        )],
    ),
    (
        "trace info",
        &[("trace info mine.parquet", "what is in it")],
    ),
    (
        "trace export csv",
        &[(
            "trace export csv mine.parquet -o mine.csv",
            "for a spreadsheet",
        )],
    ),
    (
        "store create",
        &[
            ("store create pages.flag", "a store that grows"),
            ("store create /dev/vdb", "on a block device"),
        ],
    ),
    (
        "store info",
        &[(
            "store info pages.flag",
            "what it is, and whether it was closed",
        )],
    ),
    (
        "store check",
        &[(
            "store check pages.flag",
            "reads everything; exit code 1 if it is damaged",
        )],
    ),
    (
        "store tables",
        &[
            ("store tables shop.flag", "the tables, with their keys"),
            ("store tables shop.flag --check", "reads all of them"),
        ],
    ),
    (
        "store get",
        &[("store get shop.flag users ada", "the value of a key")],
    ),
    (
        "store put",
        &[
            ("store put shop.flag users ada London", "a row"),
            (
                "store put shop.flag photos ada <ada.jpg",
                "a value from a file",
            ),
        ],
    ),
    (
        "store scan",
        &[(
            "store scan shop.flag users --prefix a --limit 10",
            "the first rows whose keys begin so",
        )],
    ),
    (
        "store wear",
        &[(
            "store wear pages.flag --endurance-tb 150",
            "how long the drive lasts at this rate",
        )],
    ),
    (
        "store dump",
        &[
            ("store dump pages.flag", "a line a page"),
            ("store dump pages.flag --page 7", "the bytes of one"),
        ],
    ),
    (
        "store compact",
        &[(
            "store compact pages.flag --dry-run",
            "what it would give back",
        )],
    ),
    (
        "store discard",
        &[(
            "store discard pages.flag",
            "room for others, until the store needs it",
        )],
    ),
    (
        "store backup",
        &[("store backup pages.flag copy.flag", "a copy, compared")],
    ),
    (
        "store repair",
        &[(
            "store repair damaged.flag salvaged.flag",
            "what can be read, and what is lost",
        )],
    ),
    (
        "store rekey",
        &[(
            "store rekey pages.flag --key-file old.key --new-key-file new.key",
            "another key for an encrypted store",
        )],
    ),
    (
        "store bench",
        &[
            (
                "store bench /var/tmp --pages 1,8",
                "commits of one page and of eight",
            ),
            (
                "store bench --space 1.2,1.5,2,3",
                "what room costs, counted in memory",
            ),
        ],
    ),
    (
        "store break",
        &[
            (
                "store break --cuts 100000",
                "power cuts under stores in memory",
            ),
            ("store break --tables", "under tables"),
            (
                "store break --on-chip --lie landings",
                "beside a simulated chip: a control that must fail",
            ),
        ],
    ),
    (
        "store kill",
        &[(
            "store kill kill.flag --times 100 --tables",
            "a process that is killed, again and again",
        )],
    ),
    (
        "store soak",
        &[(
            "store soak /var/tmp/soak --for 1h",
            "all at once, for an hour",
        )],
    ),
    (
        "mtd info",
        &[(
            "mtd info /dev/mtd0",
            "its shape, its ECC and its bad blocks",
        )],
    ),
    (
        "mtd create",
        &[("mtd create /dev/mtd0", "erases a blank device")],
    ),
    (
        "mtd check",
        &[(
            "mtd check /dev/mtd0",
            "reads everything; exit code 1 if it is damaged",
        )],
    ),
    (
        "mtd wear",
        &[(
            "mtd wear /dev/mtd0 --rated 100000 --days 90",
            "how long its blocks last",
        )],
    ),
    (
        "mtd load",
        &[("mtd load /dev/mtd0", "transactions that verify knows")],
    ),
    (
        "mtd verify",
        &[("mtd verify /dev/mtd0", "after a power cut, say")],
    ),
    (
        "completions",
        &[(
            "completions bash",
            "to be sourced, or kept where bash looks for completions",
        )],
    ),
    (
        "man",
        &[("man pages", "then: man -l pages/flagstone-compare.1")],
    ),
];

/// The examples of a command, as they are printed.
pub(crate) fn of(path: &str) -> Option<String> {
    let (_, examples) = EXAMPLES.iter().find(|(words, _)| *words == path)?;
    let each = examples
        .iter()
        .map(|(line, what)| format!("  # {what}\n  flagstone {line}"));
    Some(format!(
        "Examples:\n{}",
        each.collect::<Vec<_>>().join("\n")
    ))
}

/// The command and all below it, each with its examples at the end of its help.
pub(crate) fn with(command: Command) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_string())
        .collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(&name, |below| below_with(below, &name))
    })
}

fn below_with(command: Command, path: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_string())
        .collect();
    let command = match of(path) {
        None => command,
        Some(examples) => {
            let behind = |text: Option<&clap::builder::StyledStr>| match text {
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
        command.mut_subcommand(&name, |below| below_with(below, &path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// The words of all commands that have none below them, but for those that other programs run.
    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        let below: Vec<&Command> = command.get_subcommands().collect();
        if below.is_empty() && !["sqlite", "trace record"].contains(&path) {
            found.push(path.to_string());
        }
        for command in below {
            let path = format!("{path} {}", command.get_name());
            leaves(command, path.trim(), found);
        }
    }

    #[test]
    fn every_command_has_examples_that_can_be_typed() {
        let mut all = Vec::new();
        leaves(&crate::Cli::command(), "", &mut all);
        for path in &all {
            assert!(of(path).is_some(), "`flagstone {path}` has no example");
        }
        for (path, examples) in EXAMPLES {
            assert!(
                all.iter().any(|leaf| leaf == path),
                "there is no `flagstone {path}`"
            );
            for (line, _) in *examples {
                let words = std::iter::once("flagstone").chain(line.split(' '));
                let taken = crate::Cli::command().try_get_matches_from(words);
                assert!(line.starts_with(path), "{line}");
                assert!(taken.is_ok(), "{line}: {}", taken.unwrap_err());
            }
        }
    }

    #[test]
    fn help_ends_with_the_examples() {
        let mut command = with(crate::Cli::command());
        let store = command.find_subcommand_mut("store").expect("it is there");
        let check = store.find_subcommand_mut("check").expect("it is there");
        let help = check.render_long_help().to_string();
        assert!(
            help.contains("Examples:\n") && help.contains("store check pages.flag"),
            "{help}"
        );
        let compare = command.find_subcommand_mut("compare").expect("it is there");
        let help = compare.render_long_help().to_string();
        assert!(
            help.contains("Columns for databases") && help.contains("Examples:"),
            "{help}"
        );
    }
}
