"""Stores of tables: bytes by name, in transactions that survive a power cut.

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

#: Pairs that are read at once.
_PART = 256

#: Pairs that are inserted at once.
_INSERTED = 4096

_MISSING: Any = object()

#: What a key may be.
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
    """Opens a store in a file or on a block device, and makes one where there is none.

    A store is made in a file that is missing or empty. Anything else that is no store is refused and
    stays as it is, unless `create` is `"force"`: then it is lost, and a store takes its place. A
    block device is never empty, so it needs that word.

    `protocol` is the commit protocol of a new store (`"seal"`), and `space` how much room it takes,
    as a multiple of what it holds, before old versions are collected (1.5). `cache` is the bytes of
    memory for pages (64 MiB).

    A new store is encrypted if it is given a key: 32 bytes (or 64 hexadecimal digits) as `key` or in
    `key_file`, or a `passphrase`. From then on only that key opens it.

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
    """Changes the key of an encrypted store that nobody has open. No data is written anew, so the
    old key still opens copies that were made before.

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
            # A key is short: what is longer is none, and not read as a whole.
            return opened.read(4096)
    except OSError as error:
        raise UsageError(f"{os.fspath(file)}: {error.strerror}") from error


def _key_of_pair(pair: Pair) -> bytes:
    key = pair[0]
    if not isinstance(key, _BYTES):
        raise TypeError(f"a key is bytes, and not {type(key).__name__}")
    return bytes(key)


class _Tables(Mapping[str, V]):
    """Tables by name, to be read."""

    # Writes through this object: an iteration looks again at what comes next when there was one.
    _changes = 0

    def _reader(self) -> AbstractContextManager[_native.ReadTx | _native.WriteTx]:
        raise NotImplementedError

    @overload
    def get(self, name: str, default: None = None, /) -> V | None: ...
    @overload
    def get(self, name: str, default: V | T, /) -> V | T: ...
    def get(self, name: str, default: Any = None, /) -> Any:
        """The table of a name, or `default` if there is none."""
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
        """The kind of each table, `"ordered"` or `"hashed"`, by its name."""
        with self._reader() as reader:
            return dict(reader.tables())


class TableView(Mapping[bytes, bytes]):
    """A table to read, as a mapping. A table that there is not is empty.

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
        """Its name."""
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
        """The value of a key, or `default`."""
        with self._tables._reader() as reader:
            value = reader.get(self._name, key)
        return default if value is None else value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The values of several keys at one moment, read side by side; None for those without."""
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
        """Its keys, in ascending order if the table is ordered."""
        return _Keys(self)

    def items(self) -> ItemsView[bytes, bytes]:
        """Its pairs. By ascending key, if the table is ordered."""
        return _Items(self)

    def values(self) -> ValuesView[bytes]:
        """Its values, in the order of their keys."""
        return _Values(self)

    def range(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Pair]:
        """The pairs from the key `low` to before `high`, by ascending key or in reverse. The table
        has to be ordered."""
        return self._pairs(low, high, reverse)

    def prefix(self, prefix: bytes, *, reverse: bool = False) -> Iterator[Pair]:
        """The pairs whose keys begin so. The table has to be ordered."""
        stem = prefix.rstrip(b"\xff")
        high = stem[:-1] + bytes([stem[-1] + 1]) if stem else None
        return self._pairs(prefix, high, reverse)

    def first(self) -> Pair | None:
        """The pair with the least key."""
        return next(self._pairs(None, None, False, 1), None)

    def last(self) -> Pair | None:
        """The pair with the greatest key."""
        return next(self._pairs(None, None, True, 1), None)

    def _pairs(
        self, low: bytes | None, high: bytes | None, reverse: bool, part: int = _PART
    ) -> Iterator[Pair]:
        with self._tables._reader() as reader:
            is_hashed = reader.kind(self._name) == "hashed"
            if is_hashed:
                # Its keys have no order in which one could go on: they are read at once.
                part = 1 << 62
            after = None
            while True:
                changes = self._tables._changes
                pairs = reader.pairs(self._name, low, high, after, reverse, part)
                for pair in pairs:
                    yield pair
                    after = pair[0]
                    if self._tables._changes != changes and not is_hashed:
                        # The own transaction may have changed what comes next.
                        break
                else:
                    if len(pairs) < part:
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
        # In one iteration: to look each key up would miss those that another thread takes away.
        return any(own == value for own in self)

    def __iter__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping._pairs(None, None, False))

    def __reversed__(self) -> Iterator[bytes]:
        return (value for _, value in self._mapping._pairs(None, None, True))


class Table(TableView, MutableMapping[bytes, bytes]):
    """A table of a store, as a mapping. A change is a transaction of its own and durable when it
    returns, unless it is made within :meth:`Store.transaction`. The first change makes the table.

    Reading sees the changes of the transaction that the caller is in. Outside of one, each call
    reads what is durable then; an iteration reads what was durable when it began.
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
        """Gives several keys their values, all or none of them: from a mapping or from pairs."""
        if more:
            raise TypeError("keys are bytes, and keywords are not")
        pairs = [(key, value) for key, value in (other.items() if isinstance(other, Mapping) else other)]
        if len(pairs) > _INSERTED:
            # By ascending key, as the native call does it: parts would visit all leaves each.
            pairs.sort(key=_key_of_pair)
        with self._tables.transaction(), self._tables._writer() as writer:
            # In parts, between which Ctrl-C is heard.
            for at in range(0, len(pairs), _INSERTED):
                writer.insert_all(self._name, pairs[at : at + _INSERTED])

    def add(self, key: bytes, by: int = 1) -> int:
        """Adds to a counter, and returns what it is then. A counter is a value of eight bytes, a
        little-endian number; a key without a value counts from 0.

        >>> import flagstone
        >>> with flagstone.open("count.flag") as store:
        ...     store["hits"].add(b"/"), store["hits"].add(b"/", 5)
        (1, 6)
        """
        with self._tables._writer() as writer:
            return writer.add(self._name, key, by)

    def clear(self) -> None:
        """Takes all keys away."""
        with self._tables._writer() as writer:
            writer.clear(self._name)

    def pop(self, key: bytes, default: Any = _MISSING) -> Any:
        """Takes a key away and returns its value, or `default`."""
        with self._tables.transaction():
            value = self.get(key)
            if value is not None:
                del self[key]
                return value
        if default is _MISSING:
            raise KeyError(key)
        return default

    def popitem(self) -> Pair:
        """Takes the pair with the greatest key away and returns it."""
        with self._tables.transaction():
            pair = self.last()
            if pair is None:
                raise KeyError("the table is empty")
            del self[pair[0]]
            return pair

    def setdefault(self, key: bytes, default: bytes = b"") -> bytes:
        """The value of a key, which is `default` from now on if it had none."""
        with self._tables.transaction():
            value = self.get(key)
            if value is None:
                self[key] = value = default
            return value


class Snapshot(_Tables["TableView"]):
    """The tables as they were at one moment. It waits for no writer and holds none up, but keeps old
    versions on the medium: close it."""

    def __init__(self, reader: _native.ReadTx) -> None:
        self._of = reader

    def __getitem__(self, name: str) -> TableView:
        return TableView(self, name)

    @contextmanager
    def _reader(self) -> Iterator[_native.ReadTx]:
        yield self._of

    def close(self) -> None:
        """Lets what it alone still reads be collected."""
        self._of.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Store(_Tables["Table"]):
    """A store of tables, which :func:`flagstone.open` opens. Any number of threads use one; of those
    that write, one at a time works and all share the flushes of the medium.
    """

    def __init__(self, native: _native.Store, path: str | os.PathLike[str]) -> None:
        self._native = native
        self._path = os.fspath(path)

    def __getitem__(self, name: str) -> Table:
        return Table(self, name)

    def table(self, name: str, kind: Kind | None = None) -> Table:
        """A table, which is made at once where there is none: `"ordered"` by key, which is what
        `store[name]` makes as well, or `"hashed"`, where only single keys are looked up.

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
        """Drops a table with all that it holds."""
        with self._writer() as writer:
            if writer.kind(name) is None:
                raise KeyError(name)
            writer.drop_table(name)

    def transaction(self) -> AbstractContextManager[Store]:
        """All that is done to the store until the end of the `with` block, as one transaction. It
        commits at the end and is durable then. An exception rolls it back, and goes on.

        Transactions that write take turns. A block within another one is a savepoint: an exception
        that leaves it undoes what was done in it, and no more.

        A transaction belongs to the thread and the asyncio task that began it. Others read what is
        durable. Another thread that writes waits for its turn. A write raises :class:`UsageError`
        where that wait could never end: in another task of the same thread, and in a task or thread
        that was made within the block and inherits its context (`asyncio.create_task`,
        `asyncio.to_thread`).

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
        # A native block: no handler of a signal can raise between its begin and the `with` body.
        return _native.Block(self._native, self)

    def snapshot(self) -> Snapshot:
        """The tables as they are: what is durable now. Use it in a `with`."""
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
        """Where it lies."""
        return self._path

    def compact(self) -> int:
        """Gives the tables the lowest pages, by transactions of its own between those of others, and
        returns how many pages there are then from the first to the last. A store has room for its
        highest page: after this `flagstone store compact`, once the store is closed, makes a file of
        which most was deleted as small as one that never had it.

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
        """Closes the store. Snapshots, transactions and iterations that live keep the file until they
        end."""
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
