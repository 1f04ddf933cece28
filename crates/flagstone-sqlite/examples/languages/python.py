"""A store from Python's sqlite3: writes, rolls back, opens again, verifies.

    python.py LIBRARY FILE      LIBRARY is libflagstone_sqlite, with its folder and without .so

Python's sqlite3 loads extensions if it was built with --enable-loadable-sqlite-extensions, as that
of Debian was.
"""

import sqlite3
import sys

library, path = sys.argv[1:]

# Once a process: the library stays loaded when this connection is closed.
loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension(library)
loader.close()


def connect():
    return sqlite3.connect(f"file:{path}?vfs=flagstone", uri=True)


db = connect()
with db:
    db.execute("CREATE TABLE IF NOT EXISTS t (language, number, text)")
    rows = (("python", number, f"{number:0500}") for number in range(1, 1001))
    db.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
db.execute("DELETE FROM t")
db.rollback()
db.close()

db = connect()
found = db.execute(
    "SELECT count(*), sum(number), sum(length(text)) FROM t WHERE language = 'python'"
).fetchone()
assert found == (1000, 500500, 500000), found
assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
# The other way out of a store: SQLite's backup API.
plain = sqlite3.connect(":memory:")
db.backup(plain)
assert plain.execute("SELECT count(*) FROM t WHERE language = 'python'").fetchone() == (1000,)
db.close()
