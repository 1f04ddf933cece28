//! Examples of the commands, for `--help` and manual pages.

/// Pairs of lines: what the example does, then the command line without the name of the program.
pub const EXAMPLES: &str = "\
# a store that grows
create pages.flag
# on a block device
create /dev/vdb
# what it is, and whether it was closed
info pages.flag
# reads everything; exit code 1 if it is damaged
check pages.flag
# the tables, with their keys
tables shop.flag
# reads all of them
tables shop.flag --check
# the value of a key
get shop.flag users ada
# a row
put shop.flag users ada London
# a value from a file
put shop.flag photos ada <ada.jpg
# the first rows whose keys begin so
scan shop.flag users --prefix a --limit 10
# how long the drive lasts at this rate
wear pages.flag --endurance-tb 150
# a line a page
dump pages.flag
# the bytes of one
dump pages.flag --page 7
# what it would give back
compact pages.flag --dry-run
# room for others, until the store needs it
discard pages.flag
# a copy, compared
backup pages.flag copy.flag
# what can be read, and what is lost
repair damaged.flag salvaged.flag
# another key for an encrypted store
rekey pages.flag --key-file old.key --new-key-file new.key
";
