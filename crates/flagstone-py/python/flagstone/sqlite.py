"""SQLite databases in stores, from Python: for `sqlite3`, and for SQLAlchemy, Django and other
libraries that use the `sqlite3` module of this interpreter."""

from __future__ import annotations

import ctypes
import importlib.util
import sqlite3

from . import _native
from .errors import FailedError


def sqlite_extension() -> str:
    """The path of the loadable extension of SQLite with the VFS `flagstone`.

    The extension is a part of this package, so only programs that run in Python can load it. If the
    SQLite of this Python cannot load extensions, use :func:`register_sqlite`.

    >>> import flagstone, sqlite3
    >>> loader = sqlite3.connect(":memory:")
    >>> if hasattr(loader, "enable_load_extension"):
    ...     loader.enable_load_extension(True)
    ...     loader.load_extension(flagstone.sqlite_extension())
    """
    path = _native.__file__
    assert path is not None, "the native part is a file"
    return path


def register_sqlite(default: bool = False) -> None:
    """Registers the VFS with the SQLite of this Python, for all connections opened later. With
    `default` it is also the VFS of connections that do not name one.

    >>> import flagstone, sqlite3
    >>> flagstone.register_sqlite()
    >>> db = sqlite3.connect("file:register.flag?vfs=flagstone", uri=True)
    >>> _ = db.execute("CREATE TABLE users (name TEXT)")
    >>> with db:
    ...     _ = db.execute("INSERT INTO users VALUES ('ada')")
    >>> db.execute("SELECT name FROM users").fetchone()
    ('ada',)
    >>> db.close()
    """
    name = "flagstone_sqlite_default_init" if default else "flagstone_sqlite_auto_extension"
    entry = ctypes.cast(getattr(ctypes.CDLL(sqlite_extension()), name), ctypes.c_void_p)
    sqlite = _sqlite_of_this_python()
    try:
        add, cancel = sqlite.sqlite3_auto_extension, sqlite.sqlite3_cancel_auto_extension
    except AttributeError:
        raise FailedError(
            "this Python hides its SQLite: load flagstone.sqlite_extension() with load_extension"
        ) from None
    if add(entry) != 0:
        raise FailedError("SQLite has no memory for another extension")
    try:
        # The first connection calls the entry point, which registers the VFS for all connections.
        sqlite3.connect(":memory:").close()
    except sqlite3.Error as error:
        # A library that stays loaded returns a code that only load_extension understands.
        if not default:
            raise FailedError(f"SQLite refused the VFS: {error}") from error
    finally:
        cancel(entry)


def _sqlite_of_this_python() -> ctypes.CDLL:
    """The SQLite library that the module `sqlite3` of this Python uses."""
    spec = importlib.util.find_spec("_sqlite3")
    built_in = spec is None or spec.origin in (None, "built-in")
    return ctypes.CDLL(None if built_in else spec.origin)  # type: ignore[union-attr]
