"""Stores of tables: keys and values of bytes, changed in transactions that survive a power cut.

>>> import flagstone
>>> with flagstone.open("shop.flag") as store:
...     store["users"][b"ada"] = b"London"            # a transaction of its own, durable
...     with store.transaction():                     # all or nothing
...         store["users"][b"emmy"] = b"Erlangen"
...         store["visits"].add(b"emmy", 1)
...     list(store["users"].items())
1
[(b'ada', b'London'), (b'emmy', b'Erlangen')]
"""

from __future__ import annotations

import builtins
import os
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from . import _native
from .errors import UsageError

Kind = Literal["ordered", "hashed"]
Pair = tuple[bytes, bytes]

T = TypeVar("T")
V = TypeVar("V", bound="TableView", covariant=True)

#: Maximum number of pairs per read. A read of large values ends earlier.
_PART = 256

#: Number of pairs per insertion.
_INSERTED = 4096

_MISSING: Any = object()

#: Types of a key.
_BYTES = (bytes, bytearray, memoryview)


def open(
    path: str | os.PathLike[str],
    *,
    create: bool | Literal["force"] = True,
    read_only: bool = False,
    protocol: str | None = None,
    space: float | None = None,
    cache: int | None = None,
    key: bytes | None = None,
    key_file: str | os.PathLike[str] | None = None,
    passphrase: str | None = None,
) -> Store:
    """Opens a store in a file or on a block device, or creates one.

    A store is created if the file is missing or empty. Any other file that is not a store is refused
    and not changed, unless `create` is `"force"`: then its contents are overwritten by a new store. A
    block device is never empty, so creating a store on it needs `"force"`.

    `protocol` is the commit protocol of a new store (default `"seal"`). `space` limits the size of
    the store, as a multiple of its data: at that size garbage collection frees old versions (default
    1.5). `cache` is the size of the page cache in bytes (default 64 MiB).

    If a key is given, a new store is encrypted with it: 32 bytes (or 64 hexadecimal digits) as `key`
    or in `key_file`, or a `passphrase`. Opening the store later needs the same key.

    >>> import flagstone
    >>> flagstone.open("nothing.flag", create=False)
    Traceback (most recent call last):
    ...
    flagstone.errors.MissingError: ...
    >>> import pathlib, secrets
    >>> _ = pathlib.Path("shop.key").write_bytes(secrets.token_bytes(32))
    >>> with flagstone.open("secret.flag", key_file="shop.key") as store:
    ...     store["users"][b"ada"] = b"London"
    >>> flagstone.open("secret.flag")
    Traceback (most recent call last):
    ...
    flagstone.errors.WrongKeyError: ...
    """
    if create not in (True, False, "force"):
        raise UsageError(f"create={create!r}: use True, False or 'force'")
    native = _native.Store(
        path,
        create=bool(create),
        force=create == "force",
        read_only=read_only,
        protocol=protocol,
        space=space,
        cache=cache,
        key=_key(key, key_file),
        passphrase=passphrase,
    )
    return Store(native, path)


def rekey(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    key_file: str | os.PathLike[str] | None = None,
    passphrase: str | None = None,
    new_key: bytes | None = None,
    new_key_file: str | os.PathLike[str] | None = None,
    new_passphrase: str | None = None,
) -> None:
    """Changes the key of an encrypted store, which must not be open anywhere. Data is not rewritten,
    so the old key still opens earlier copies of the store.

    >>> import flagstone
    >>> flagstone.open("rekeyed.flag", key=b"1" * 32).close()
    >>> flagstone.rekey("rekeyed.flag", key=b"1" * 32, new_key=b"2" * 32)
    >>> flagstone.open("rekeyed.flag", key=b"2" * 32).close()
    """
    _native.rekey(path, _key(key, key_file), passphrase, _key(new_key, new_key_file), new_passphrase)


def _key(key: bytes | None, file: str | os.PathLike[str] | None) -> bytes | None:
    if file is None:
        return key
    if key is not None:
        raise UsageError("a store has one key: give the key or its file")
    try:
        with builtins.open(file, "rb") as opened:
            # A key is short. A longer file is not a key, and need not be read completely.
            return opened.read(4096)
    except OSError as error:
        raise UsageError(f"{os.fspath(file)}: {error.strerror}") from error


def _key_of_pair(pair: Pair) -> bytes:
    key = pair[0]
    if not isinstance(key, _BYTES):
        raise TypeError(f"a key must be bytes, not {type(key).__name__}")
    return bytes(key)


class _Tables(Mapping[str, V]):
    """Read access to tables by name."""

    # Number of writes and rolled-back savepoints of this object. After one, an iteration reads its next
    # pairs again.
    _changes = 0

    def _reader(self) -> AbstractContextManager[_native.ReadTx | _native.WriteTx]:
        raise NotImplementedError

    @overload
    def get(self, name: str, default: None = None, /) -> V | None: ...
    @overload
    def get(self, name: str, default: V | T, /) -> V | T: ...
    def get(self, name: str, default: Any = None, /) -> Any:
        """The table called `name`, or `default` if it does not exist."""
        return self[name] if name in self else default

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        with self._reader() as reader:
            return reader.kind(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds())

    def __len__(self) -> int:
        return len(self.kinds())

    def kinds(self) -> dict[str, str]:
        """The kind of each table by its name: `"ordered"` or `"hashed"`."""
        with self._reader() as reader:
            return dict(reader.tables())


class TableView(Mapping[bytes, bytes]):
    """Read access to a table, as a mapping. A missing table reads as empty.

    >>> import flagstone
    >>> with flagstone.open("view.flag") as store:
    ...     store["t"].update({b"a1": b"x", b"a2": b"y", b"b1": b"z"})
    ...     with store.snapshot() as then:
    ...         del store["t"][b"a1"]
    ...         len(then["t"]), len(store["t"])
    ...     list(store["t"].range(b"a", b"b")), list(store["t"].prefix(b"b", reverse=True))
    (3, 2)
    ([(b'a2', b'y')], [(b'b1', b'z')])
    """

    def __init__(self, tables: _Tables[Any], name: str) -> None:
        self._tables = tables
        self._name = name

    @property
    def name(self) -> str:
        """Name of the table."""
        return self._name

    def __getitem__(self, key: bytes) -> bytes:
        with self._tables._reader() as reader:
            value = reader.get(self._name, key)
        if value is None:
            raise KeyError(key)
        return value

    @overload
    def get(self, key: bytes, default: None = None, /) -> bytes | None: ...
    @overload
    def get(self, key: bytes, default: bytes | T, /) -> bytes | T: ...
    def get(self, key: bytes, default: Any = None, /) -> Any:
        """The value of `key`, or `default` if it has none."""
        with self._tables._reader() as reader:
            value = reader.get(self._name, key)
        return default if value is None else value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The values of several keys in one snapshot, read in parallel; None for missing keys."""
        with self._tables._reader() as reader:
            return reader.get_many(self._name, list(keys))

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, _BYTES):
            return False
        with self._tables._reader() as reader:
            return reader.contains(self._name, bytes(key))

    def __len__(self) -> int:
        with self._tables._reader() as reader:
            return reader.len(self._name)

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, _ in self._pairs(None, None, False))

    def __reversed__(self) -> Iterator[bytes]:
        return (key for key, _ in self._pairs(None, None, True))

    def keys(self) -> KeysView[bytes]:
        """The keys, in ascending order if the table is ordered."""
        return _Keys(self)

    def items(self) -> ItemsView[bytes, bytes]:
        """The pairs of key and value, by ascending key if the table is ordered."""
        return _Items(self)

    def values(self) -> ValuesView[bytes]:
        """The values, in the order of their keys."""
        return _Values(self)

    def range(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Pair]:
        """The pairs with keys from `low` up to but not including `high`, by ascending key, or by
        descending key if `reverse`. The table must be ordered."""
        return self._pairs(low, high, reverse)

    def prefix(self, prefix: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        """The pairs whose keys begin with `prefix`. The table must be ordered."""
        stem = prefix.rstrip(b"\xff")
        high = stem[:-1] + bytes([stem[-1] + 1]) if stem else None
        return self._pairs(prefix, high, reverse)

    def first(self) -> Pair | None:
        """The pair with the lowest key, or None."""
        return next(self._pairs(None, None, False, 1), None)

    def last(self) -> Pair | None:
        """The pair with the highest key, or None."""
        return next(self._pairs(None, None, True, 1), None)

    def _pairs(
        self, low: bytes | None, high: bytes | None, reverse: bool, part: int = _PART
    ) -> Iterator[Pair]:
        with self._tables._reader() as reader:
            is_hashed = reader.kind(self._name) == "hashed"
            if is_hashed and part > 1:
                # A read cannot continue after a key of a hashed table.
                if isinstance(reader, _native.ReadTx) and low is None and high is None:
                    rest = reader.all(self._name, reverse)
                    while pairs := rest.next(part):
                        yield from pairs
                    return
                # The transaction may change before the next read, so all pairs are read at once.
                part = 1 << 62
            after = None
            while True:
                changes = self._tables._changes
                pairs, goes_on = reader.pairs(self._name, low, high, after, reverse, part)
                for pair in pairs:
                    yield pair
                    after = pair[0]
                    if self._tables._changes != changes and not is_hashed:
                        # The caller's transaction may have changed the next pairs.
                        break
                else:
                    if not goes_on:
                        return

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"


class _Keys(KeysView[bytes]):
    _mapping: TableView

    def __reversed__(self) -> Iterator[bytes]:
        return reversed(self._mapping)


class _Items(ItemsView[bytes, bytes]):
    _mapping: TableView

    def __contains__(self, pair: object) -> bool:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], _BYTES):
            return False
        value = self._mapping.get(bytes(pair[0]))
        return value is not None and bool(value == pair[1])

    def __iter__(self) -> Iterator[Pair]:
        return self._mapping._pairs(None, None, False)

    def __reversed__(self) -> Iterator[Pair]:
        return self._mapping._pairs(None, None, True)


class _Values(ValuesView[bytes]):
    _mapping: TableView

    def __contains__(self, value: object) -> bool:
        # Iterates once. Looking up each key would miss keys that another thread removes meanwhile.
        return any(own == value for own in self)

    def __iter__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping._pairs(None, None, False))

    def __reversed__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping._pairs(None, None, True))


class Table(TableView, MutableMapping[bytes, bytes]):
    """A table of a store, as a mapping. Each change is its own transaction and durable when the call
    returns, except within :meth:`Store.transaction`. The first change creates the table.

    Within a transaction, reads see its changes. Outside of a transaction, each call reads the newest
    durable state, and an iteration reads the state that was durable when it began.
    """

    _tables: Store

    def __setitem__(self, key: bytes, value: bytes) -> None:
        with self._tables._writer() as writer:
            writer.insert(self._name, key, value)

    def __delitem__(self, key: bytes) -> None:
        with self._tables._writer() as writer:
            if not writer.remove(self._name, key):
                raise KeyError(key)

    def update(self, other: Any = (), /, **more: bytes) -> None:
        """Sets the values of several keys, given as a mapping or as pairs, in one transaction."""
        if more:
            raise TypeError("keys must be bytes, but keywords are strings")
        pairs = [(key, value) for key, value in (other.items() if isinstance(other, Mapping) else other)]
        if len(pairs) > _INSERTED:
            # Sorted by key, as in the native call. Otherwise each part would visit all leaves.
            pairs.sort(key=_key_of_pair)
        with self._tables.transaction(), self._tables._writer() as writer:
            # In parts, so that Ctrl-C can interrupt between them.
            for at in range(0, len(pairs), _INSERTED):
                writer.insert_all(self._name, pairs[at : at + _INSERTED])

    def add(self, key: bytes, by: int = 1) -> int:
        """Adds `by` to a counter and returns the new number. A counter is a value of eight bytes, a
        little-endian number. A key without a value counts from 0.

        >>> import flagstone
        >>> with flagstone.open("count.flag") as store:
        ...     store["hits"].add(b"/"), store["hits"].add(b"/", 5)
        (1, 6)
        """
        with self._tables._writer() as writer:
            return writer.add(self._name, key, by)

    def clear(self) -> None:
        """Removes all keys."""
        with self._tables._writer() as writer:
            writer.clear(self._name)

    def pop(self, key: bytes, default: Any = _MISSING) -> Any:
        """Removes `key` and returns its value; returns `default` if it has none."""
        with self._tables.transaction():
            value = self.get(key)
            if value is not None:
                del self[key]
                return value
        if default is _MISSING:
            raise KeyError(key)
        return default

    def popitem(self) -> Pair:
        """Removes the pair with the highest key and returns it."""
        with self._tables.transaction():
            pair = self.last()
            if pair is None:
                raise KeyError("the table is empty")
            del self[pair[0]]
            return pair

    def setdefault(self, key: bytes, default: bytes = b"") -> bytes:
        """The value of `key`. If it has none, sets it to `default` first."""
        with self._tables.transaction():
            value = self.get(key)
            if value is None:
                self[key] = value = default
            return value


class Snapshot(_Tables["TableView"]):
    """The tables at one moment. A snapshot neither waits for writers nor blocks them, but keeps old
    versions on the medium, so close it."""

    def __init__(self, reader: _native.ReadTx) -> None:
        self._of = reader

    def __getitem__(self, name: str) -> TableView:
        return TableView(self, name)

    @contextmanager
    def _reader(self) -> Iterator[_native.ReadTx]:
        yield self._of

    def close(self) -> None:
        """Ends the snapshot, so that the old versions that only it reads can be collected."""
        self._of.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Store(_Tables["Table"]):
    """A store of tables, opened by :func:`flagstone.open`. Any number of threads can use it. One
    thread writes at a time, and commits of several threads share the flushes of the medium.
    """

    def __init__(self, native: _native.Store, path: str | os.PathLike[str]) -> None:
        self._native = native
        self._path = os.fspath(path)

    def __getitem__(self, name: str) -> Table:
        return Table(self, name)

    def table(self, name: str, kind: Kind | None = None) -> Table:
        """The table called `name`. Creates it at once if it does not exist: `"ordered"` by key, the
        default and the kind that `store[name]` creates, or `"hashed"`, for lookups of single keys.

        >>> import flagstone
        >>> with flagstone.open("kinds.flag") as store:
        ...     store.table("sessions", "hashed")[b"k"] = b"v"
        ...     store.kinds()
        {'sessions': 'hashed'}
        """
        with self._writer() as writer:
            writer.make(name, kind)
        return self[name]

    def __delitem__(self, name: str) -> None:
        """Drops a table with all its keys."""
        with self._writer() as writer:
            if writer.kind(name) is None:
                raise KeyError(name)
            writer.drop_table(name)

    def transaction(self) -> AbstractContextManager[Store]:
        """Makes all changes to the store within the `with` block one transaction. It commits at the
        end of the block and is durable then. An exception rolls it back and propagates.

        Only one transaction writes at a time. A block within another one is a savepoint: an exception
        that leaves the inner block undoes only the changes made in it.

        A transaction belongs to the thread and the asyncio task that began it. Other threads and
        tasks read the durable state. Another thread that writes waits for the end of the transaction.
        A write raises :class:`UsageError` if that wait would never end: in another task of the same
        thread, and in a task or thread that was started within the block and inherits its context
        (`asyncio.create_task`, `asyncio.to_thread`).

        >>> import flagstone
        >>> store = flagstone.open("bank.flag")
        >>> store["accounts"].update({b"a": b"10", b"b": b"0"})
        >>> try:
        ...     with store.transaction():
        ...         store["accounts"][b"a"] = b"0"
        ...         raise RuntimeError("the power of argument")
        ... except RuntimeError:
        ...     store["accounts"][b"a"]
        b'10'
        >>> store.close()
        """
        # A native block, so that no signal handler can raise between its begin and the `with` body.
        return _native.Block(self._native, self)

    def snapshot(self) -> Snapshot:
        """A snapshot of the newest durable state of the tables. Use it in a `with` statement."""
        return Snapshot(self._native.read())

    @contextmanager
    def _reader(self) -> Iterator[_native.ReadTx | _native.WriteTx]:
        writer = self._native.inside()
        if writer is not None:
            yield writer
            return
        reader = self._native.read()
        try:
            yield reader
        finally:
            reader.close()

    def _writer(self) -> AbstractContextManager[_native.WriteTx]:
        self._changes += 1
        return _native.Block(self._native)

    @property
    def path(self) -> str:
        """Path of the store."""
        return self._path

    def compact(self) -> int:
        """Moves the tables to the lowest pages, in small transactions between those of other
        threads. Returns the number of pages from the first to the last one in use. A store has space
        for its highest page. So after this call, and once the store is closed, `flagstone store
        compact` makes the file as small as if the deleted data had never been stored.

        >>> import flagstone
        >>> with flagstone.open("large.flag") as store:
        ...     store["t"].update({b"%d" % n: bytes(3000) for n in range(500)})
        ...     store["u"][b"k"] = b"v"
        ...     store["t"].clear()
        ...     store.compact() < 10
        True
        """
        return self._native.compact()

    def close(self) -> None:
        """Closes the store. Open snapshots, transactions and iterations keep the file open until
        they end."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self._path}>"
