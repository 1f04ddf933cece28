//! Examples of all commands, for `--help` and the manual pages.
//!
//! A test checks that each command has examples and that the parser accepts each of them.

use flagstone_terminal::Examples;

/// The examples of this program. `flagstone store` uses those of `flagstone-store`.
pub(crate) fn examples() -> Examples {
    Examples::new("flagstone", EXAMPLES).below("store", flagstone_store_tools::EXAMPLES)
}

/// Pairs of lines: what the example does, then the command line without the name of the program.
const EXAMPLES: &str = "\
# the shipped trace on every protocol
compare
# a trace of your own, and which rows tie
compare mine.parquet --protocols seal,lighttx --seeds 5
# along a setting, drawn
compare --workload zipf:0.9 --over abort-ratio=0..0.5 --html page.html
# databases instead of devices
compare --stack wal,cfc-ex,force:seal
# power cuts among faults: nothing is lost
break --protocol seal --cuts 20000 --faults all
# a protocol as its paper prints it: finds a loss
break --protocol scc --as-published --cuts 4000
# a control, which must find something
break --protocol seal --sabotage sync-ignored --cuts 2000
# on small devices with the cells, planes and latencies of that one
break --protocol seal --device tlc --cuts 2000
# an example on a protocol, and its printed form, told here
explain scc
# on a page to play and step through
explain seal --html seal.html
# a run of break, by its run id
replay scc.published/g0/b0/w1x2/f1/s2268/n1/c0-70-n
# one paper's claims in some minutes, with a page
reproduce lighttx --quick --out report
# which protocol wins where
sweep crates/flagstone-papers/sweeps/clients-and-aborts.toml --html map.html
# the tasks as data, for machines of your own
sweep mine.toml --list --json
# what a paper leaves open, and within which bounds
sensitivity flagcommit --list
# what one figure hangs on; hours
sensitivity flagcommit.fig12a --climb 3 --samples 8
# all of them, with their settings
protocols
# the presets
device list
# a preset as a file to change
device show small
# for an editor that checks TOML
device schema
# a device to start comparisons from
device fill small --protocol cfc -o cfc.image
# a year on worn flash
device age worn --for 1y
# the control, which loses pages
device age worn --for 1y --no-scrub
# all of them
index list
# an index under a workload
index bench --index sal --workload ycsb-a --records 100000
# from what pg_waldump prints
trace import waldump - -o mine.parquet
# DiskSim's own times are in milliseconds
trace import disksim disk.trace --time-unit ms -o mine.parquet
# as it is published
trace import msr web_0.csv -o web.parquet
# a trace of the Storage Performance Council
trace import spc Financial1.spc -o financial.parquet
# any table of requests
trace import csv disk.csv --columns time:us,op,offset:sectors,bytes,volume -o mine.parquet
# each request alone
trace import blkparse blk.txt -o mine.parquet
# what lies between two flushes as a transaction
trace import blkparse blk.txt --commit-at flush -o mine.parquet
# what is written between two syncs as a transaction
trace import fio run.log --commit-at flush -o mine.parquet
# what is in it
trace info mine.parquet
# for a spreadsheet
trace export csv mine.parquet -o mine.csv
# commits of one page and of eight
store bench /var/tmp --pages 1,8
# what room costs, counted in memory
store bench --space 1.2,1.5,2,3
# power cuts under stores in memory
store break --cuts 100000
# under tables
store break --tables
# beside a simulated chip: a control that must fail
store break --on-chip --lie landings
# a process that is killed, again and again
store kill kill.flag --times 100 --tables
# all at once, for an hour
store soak /var/tmp/soak --for 1h
# its shape, its ECC and its bad blocks
mtd info /dev/mtd0
# erases a blank device
mtd create /dev/mtd0
# reads everything; exit code 1 if it is damaged
mtd check /dev/mtd0
# how long its blocks last
mtd wear /dev/mtd0 --rated 100000 --days 90
# transactions that verify knows
mtd load /dev/mtd0
# after a power cut, say
mtd verify /dev/mtd0
# to be sourced, or kept where bash looks for completions
completions bash
# then: man -l pages/flagstone-compare.1
man pages
";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_examples_that_can_be_typed() {
        // These run other programs.
        let apart = ["sqlite", "trace record"];
        let problems = examples().problems(&crate::Cli::command(), &apart);
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn help_ends_with_the_examples() {
        let mut command = examples().add_to(crate::Cli::command());
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
