//! Examples of the commands, for `--help` and manual pages.

/// Pairs of lines: what the example does, then the command line without the name of the program.
pub const EXAMPLES: &str = "# a store that grows
create pages.flag
# on a block device, whose contents are lost
create \
                            /dev/vdb --force
# what it holds, and whether it was closed
info pages.flag
# \
                            reads everything; exit code 1 if it is damaged
check pages.flag
# list \
                            the tables and their numbers of keys
tables shop.flag
# check the \
                            tables
tables shop.flag --check
# the value of a key
get shop.flag \
                            users ada
# store a row
put shop.flag users ada London
# store a value \
                            from a file
put shop.flag photos ada <ada.jpg
# the first 10 rows \
                            whose keys begin with a
scan shop.flag users --prefix a --limit 10
# \
                            how long the drive lasts at the current rate
wear pages.flag \
                            --endurance-tb 150
# one line per page
dump pages.flag
# the bytes of \
                            one page
dump pages.flag --page 7
# how much smaller the store would \
                            become
compact pages.flag --dry-run
# give free blocks back to the \
                            file system
discard pages.flag
# copy, then compare the copy
backup \
                            pages.flag copy.flag
# copy what can be read, and list what is \
                            lost
repair damaged.flag salvaged.flag
# change the key of an \
                            encrypted store
rekey pages.flag --key-file old.key --new-key-file \
                            new.key
";
