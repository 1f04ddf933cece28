"""SQLite on a store by way of `sqlite3`, SQLAlchemy and Django, in two lines each."""

import os
import sqlite3
import subprocess
import sys
import textwrap

import pytest

import flagstone


def run(program: str, python: str = sys.executable) -> str:
    """What a program prints in a Python of its own: the VFS stays registered in a process."""
    done = subprocess.run(
        [python, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sqlite3_uses_a_store_by_name():
    program = """
        import sqlite3, flagstone
        flagstone.register_sqlite()
        db = sqlite3.connect("file:app.flag?vfs=flagstone", uri=True)
        db.execute("CREATE TABLE t (a)")
        with db:
            db.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(1000)])
        try:
            with db:
                db.execute("DELETE FROM t")
                raise ValueError
        except ValueError:
            pass
        db.close()
        db = sqlite3.connect("file:app.flag?vfs=flagstone", uri=True)
        print(db.execute("SELECT count(*), sum(a) FROM t").fetchone())
        print(db.execute("PRAGMA journal_mode").fetchone())
        # Others go on as before.
        plain = sqlite3.connect("plain.db")
        plain.execute("CREATE TABLE t (a)")
        print(open("plain.db", "rb").read(6), open("app.flag", "rb").read(6) != b"SQLite")
    """
    assert run(program).splitlines() == ["(1000, 499500)", "('memory',)", "b'SQLite' True"]


def test_the_store_of_sqlite_is_one_and_needs_the_vfs():
    run("""
        import sqlite3, flagstone
        flagstone.register_sqlite()
        db = sqlite3.connect("file:app.flag?vfs=flagstone", uri=True)
        db.execute("CREATE TABLE t (a)")
    """)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        sqlite3.connect("file:app.flag", uri=True).execute("SELECT * FROM t")


def python_that_loads() -> str | None:
    """A Python that loads extensions: this one, or that of the system, which takes the same package."""
    test = "import sqlite3, sys; sys.exit(not hasattr(sqlite3.Connection, 'enable_load_extension'))"
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", test]).returncode == 0:
            return python
    return None


def test_the_extension_is_loaded_by_its_path():
    python = python_that_loads()
    if python is None:
        pytest.skip("there is no Python that loads extensions")
    program = """
        import sqlite3, flagstone
        loader = sqlite3.connect(":memory:"); loader.enable_load_extension(True)
        loader.load_extension(flagstone.sqlite_extension())
        db = sqlite3.connect("file:app.flag?vfs=flagstone", uri=True)
        db.execute("CREATE TABLE t (a)")
        print(open("app.flag", "rb").read(6) != b"SQLite")
    """
    # The package alone, and no other of this environment.
    os.symlink(os.path.dirname(flagstone.__file__), "flagstone")
    assert run(program, python) == "True\n"


def test_sqlalchemy_uses_a_store():
    program = """
        import flagstone, sqlalchemy as sa
        flagstone.register_sqlite()
        engine = sa.create_engine("sqlite:///file:app.flag?vfs=flagstone&uri=true")
        with engine.begin() as db:
            db.execute(sa.text("CREATE TABLE t (a)"))
            db.execute(sa.text("INSERT INTO t VALUES (7)"))
        with engine.connect() as db:
            print(db.execute(sa.text("SELECT a FROM t")).scalar_one())
        print(open("app.flag", "rb").read(6) != b"SQLite")
    """
    assert run(program).split() == ["7", "True"]


def test_django_uses_a_store():
    program = """
        import flagstone
        flagstone.register_sqlite(default=True)
        import django
        from django.conf import settings
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "app.flag"}})
        django.setup()
        from django.db import connection, transaction
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("CREATE TABLE t (a)")
            cursor.execute("INSERT INTO t VALUES (%s)", [7])
        with connection.cursor() as cursor:
            cursor.execute("SELECT a FROM t")
            print(cursor.fetchone()[0], open("app.flag", "rb").read(6) != b"SQLite")
    """
    assert run(program).split() == ["7", "True"]


def test_django_uses_a_store_by_its_name_beside_plain_databases():
    program = """
        import flagstone
        flagstone.register_sqlite()
        import django
        from django.conf import settings
        settings.configure(DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:app.flag?vfs=flagstone"},
            "plain": {"ENGINE": "django.db.backends.sqlite3", "NAME": "plain.db"},
        })
        django.setup()
        from django.db import connections
        for name in ("default", "plain"):
            with connections[name].cursor() as cursor:
                cursor.execute("CREATE TABLE t (a)")
        print(open("app.flag", "rb").read(6) != b"SQLite", open("plain.db", "rb").read(6))
    """
    assert run(program) == "True b'SQLite'\n"


def test_the_path_is_a_file():
    assert flagstone.sqlite_extension().endswith(".so")
