"""Makes the VFS the default one of each Python process that has this folder in PYTHONPATH.

FLAGSTONE_LIBRARY names the library. Without it nothing happens: that is the run on plain files.
FLAGSTONE_MODULE names the module whose SQLite loads it: sqlite3 or apsw. The file is a plugin of
pytest as well (`-p sitecustomize`): a test of apsw shuts SQLite down, which makes SQLite's own VFS
the default one again, so each test begins with a look at what a file that has only a name is.
"""

import os
import tempfile

library = os.environ.get("FLAGSTONE_LIBRARY")
entry = "flagstone_sqlite_default_init"


def load():
    if os.environ.get("FLAGSTONE_MODULE") == "apsw":
        import apsw

        loader = apsw.Connection(":memory:")
        loader.enable_load_extension(True)
        loader.load_extension(library, entry)
    else:
        import sqlite3

        loader = sqlite3.connect(":memory:")
        loader.enable_load_extension(True)
        # Of Python 3.11's functions, only that of SQL takes the name of an entry point.
        loader.execute("SELECT load_extension(?, ?)", [library, entry])
    loader.close()


def is_default():
    if os.environ.get("FLAGSTONE_MODULE") == "apsw":
        import apsw

        return apsw.vfs_names()[0] == "flagstone"
    import sqlite3

    with tempfile.TemporaryDirectory() as folder:
        probe = os.path.join(folder, "probe.db")
        db = sqlite3.connect(probe)
        db.execute("CREATE TABLE t (a)")
        db.close()
        with open(probe, "rb") as file:
            return file.read(8) == b"Flagston"


if library:
    load()
    if not is_default():
        raise RuntimeError("the VFS is not the default one")

    def pytest_runtest_setup():
        if os.environ.get("FLAGSTONE_MODULE") == "apsw" and not is_default():
            load()

    def pytest_sessionfinish():
        if not is_default():
            raise RuntimeError("the VFS is no longer the default one")
