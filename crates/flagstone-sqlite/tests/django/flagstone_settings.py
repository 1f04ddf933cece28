"""Settings for Django's own tests: its SQLite backend as it is, on database files.

With FLAGSTONE_LIBRARY the library is loaded and its VFS becomes the default one, so that each file
is a store. Without it the files are SQLite's own. FLAGSTONE_FOLDER is where they are made.
"""

import os
import sqlite3

folder = os.environ["FLAGSTONE_FOLDER"]
library = os.environ.get("FLAGSTONE_LIBRARY")

if library:
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    # Of Python 3.11's functions, only that of SQL takes the name of an entry point.
    loader.execute("SELECT load_extension(?, 'flagstone_sqlite_default_init')", [library])
    loader.close()
    # What a name alone makes from now on is a store.
    probe = os.path.join(folder, "probe.sqlite3")
    with sqlite3.connect(probe) as db:
        db.execute("CREATE TABLE t (a)")
    db.close()
    with open(probe, "rb") as file:
        if file.read(16) == b"SQLite format 3\0":
            raise RuntimeError("the VFS is not the default one: " + probe + " is a plain database")
    os.remove(probe)


def database(name):
    path = os.path.join(folder, name)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path + ".sqlite3",
        "TEST": {"NAME": path + "-test.sqlite3"},
    }


DATABASES = {"default": database("default"), "other": database("other")}

SECRET_KEY = "only for tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
