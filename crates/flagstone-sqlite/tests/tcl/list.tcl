# Prints the scripts of SQLite's own selection `veryquick`, one a line, relative to SQLite's folder
# `test`. Its argument is that folder. scripts/sqlite-suite runs it in SQLite's test program.
set folder [lindex $argv 0]
set argv0 [file join $folder veryquick.test]
set argv {}
source [file join $folder permutations.test]
array set veryquick $testspec(veryquick)
foreach file [lsort $veryquick(-files)] {
  regsub {^.*/ext/} $file {../ext/} file
  puts "suite: $file"
}
