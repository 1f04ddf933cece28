//! Examples of all commands, for `--help` and the manual pages.
//!
//! A test checks that each command has examples and that the parser accepts each of them.

use clap::Command;

/// Pairs of lines: what the example does, then the command line.
const EXAMPLES: &str = "\
# the shipped trace on every protocol
flagstone compare
# a trace of your own, and which rows tie
flagstone compare mine.parquet --protocols seal,lighttx --seeds 5
# along a setting, drawn
flagstone compare --workload zipf:0.9 --over abort-ratio=0..0.5 --html page.html
# databases instead of devices
flagstone compare --stack wal,cfc-ex,force:seal
# power cuts among faults: nothing is lost
flagstone break --protocol seal --cuts 20000 --faults all
# a protocol as its paper prints it: finds a loss
flagstone break --protocol scc --as-published --cuts 4000
# a control, which must find something
flagstone break --protocol seal --sabotage sync-ignored --cuts 2000
# on small devices with the cells, planes and latencies of that one
flagstone break --protocol seal --device tlc --cuts 2000
# an example on a protocol, and its printed form, told here
flagstone explain scc
# on a page to play and step through
flagstone explain seal --html seal.html
# a run of break, by its run id
flagstone replay scc.published/g0/b0/w1x2/f1/s3514/n1/c0-86-n
# one paper's claims in some minutes, with a page
flagstone reproduce lighttx --quick --out report
# which protocol wins where
flagstone sweep crates/flagstone-papers/sweeps/clients-and-aborts.toml --html map.html
# the tasks as data, for machines of your own
flagstone sweep mine.toml --list --json
# what a paper leaves open, and within which bounds
flagstone sensitivity flagcommit --list
# what one figure hangs on; hours
flagstone sensitivity flagcommit.fig12a --climb 3 --samples 8
# all of them, with their settings
flagstone protocols
# the presets
flagstone device list
# a preset as a file to change
flagstone device show small
# for an editor that checks TOML
flagstone device schema
# a device to start comparisons from
flagstone device fill small --protocol cfc -o cfc.image
# a year on worn flash
flagstone device age worn --for 1y
# the control, which loses pages
flagstone device age worn --for 1y --no-scrub
# all of them
flagstone index list
# an index under a workload
flagstone index bench --index sal --workload ycsb-a --records 100000
# from what pg_waldump prints
flagstone trace import waldump - -o mine.parquet
# DiskSim's own times are in milliseconds
flagstone trace import disksim disk.trace --time-unit ms -o mine.parquet
# as it is published
flagstone trace import msr web_0.csv -o web.parquet
# a trace of the Storage Performance Council
flagstone trace import spc Financial1.spc -o financial.parquet
# any table of requests
flagstone trace import csv disk.csv --columns time:us,op,offset:sectors,bytes,volume -o mine.parquet
# each request alone
flagstone trace import blkparse blk.txt -o mine.parquet
# what lies between two flushes as a transaction
flagstone trace import blkparse blk.txt --commit-at flush -o mine.parquet
# what is written between two syncs as a transaction
flagstone trace import fio run.log --commit-at flush -o mine.parquet
# what is in it
flagstone trace info mine.parquet
# for a spreadsheet
flagstone trace export csv mine.parquet -o mine.csv
# a store that grows
flagstone store create pages.flag
# on a block device
flagstone store create /dev/vdb
# what it is, and whether it was closed
flagstone store info pages.flag
# reads everything; exit code 1 if it is damaged
flagstone store check pages.flag
# the tables, with their keys
flagstone store tables shop.flag
# reads all of them
flagstone store tables shop.flag --check
# the value of a key
flagstone store get shop.flag users ada
# a row
flagstone store put shop.flag users ada London
# a value from a file
flagstone store put shop.flag photos ada <ada.jpg
# the first rows whose keys begin so
flagstone store scan shop.flag users --prefix a --limit 10
# how long the drive lasts at this rate
flagstone store wear pages.flag --endurance-tb 150
# a line a page
flagstone store dump pages.flag
# the bytes of one
flagstone store dump pages.flag --page 7
# what it would give back
flagstone store compact pages.flag --dry-run
# room for others, until the store needs it
flagstone store discard pages.flag
# a copy, compared
flagstone store backup pages.flag copy.flag
# what can be read, and what is lost
flagstone store repair damaged.flag salvaged.flag
# another key for an encrypted store
flagstone store rekey pages.flag --key-file old.key --new-key-file new.key
# commits of one page and of eight
flagstone store bench /var/tmp --pages 1,8
# what room costs, counted in memory
flagstone store bench --space 1.2,1.5,2,3
# power cuts under stores in memory
flagstone store break --cuts 100000
# under tables
flagstone store break --tables
# beside a simulated chip: a control that must fail
flagstone store break --on-chip --lie landings
# a process that is killed, again and again
flagstone store kill kill.flag --times 100 --tables
# all at once, for an hour
flagstone store soak /var/tmp/soak --for 1h
# its shape, its ECC and its bad blocks
flagstone mtd info /dev/mtd0
# erases a blank device
flagstone mtd create /dev/mtd0
# reads everything; exit code 1 if it is damaged
flagstone mtd check /dev/mtd0
# how long its blocks last
flagstone mtd wear /dev/mtd0 --rated 100000 --days 90
# transactions that verify knows
flagstone mtd load /dev/mtd0
# after a power cut, say
flagstone mtd verify /dev/mtd0
# to be sourced, or kept where bash looks for completions
flagstone completions bash
# then: man -l pages/flagstone-compare.1
flagstone man pages
";

/// The examples: what each does, and its command line.
fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = || EXAMPLES.lines();
    lines().step_by(2).zip(lines().skip(1).step_by(2))
}

/// The formatted examples of a command without subcommands. `path` is the command line behind
/// `flagstone`, without options.
pub(crate) fn of(command: &Command, path: &str) -> Option<String> {
    let words = format!("flagstone {path} ");
    let own = examples().filter(|(_, line)| format!("{line} ").starts_with(&words));
    let each: Vec<String> = own
        .map(|(what, line)| format!("  {what}\n  {line}"))
        .collect();
    let has_some = !command.has_subcommands() && !each.is_empty();
    has_some.then(|| format!("Examples:\n{}", each.join("\n")))
}

/// Appends examples to the help of a command and of all its subcommands.
pub(crate) fn with(command: Command) -> Command {
    below_with(command, "")
}

fn below_with(command: Command, path: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_string())
        .collect();
    let command = match of(&command, path) {
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
        command.mut_subcommand(&name, |below| below_with(below, path.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Collects all commands without subcommands, except those of separate programs.
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
            let leaf = Command::new("leaf");
            assert!(
                of(&leaf, path).is_some(),
                "`flagstone {path}` has no example"
            );
        }
        for (what, line) in examples() {
            assert!(what.starts_with("# "), "{what}");
            let taken = crate::Cli::command().try_get_matches_from(line.split(' '));
            assert!(taken.is_ok(), "{line}: {}", taken.unwrap_err());
        }
        assert_eq!(EXAMPLES.lines().count(), 2 * examples().count());
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
