"""Traces of transactions: files that `compare` replays, to and from tables of Arrow."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from ._command import _arguments, say
from .errors import UsageError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_FORMATS = ("waldump", "csv", "disksim", "msr", "spc", "blkparse", "fio")


class Trace:
    """A trace: which pages transactions read, wrote and trimmed, and when. It is a Parquet file, and
    `docs/trace-format.md` is its contract.

    >>> import flagstone, pyarrow
    >>> events = pyarrow.table({
    ...     "time_ns":     [0, 1000, 2000],
    ...     "transaction": [0, 0, 0],
    ...     "op":          ["read", "write", "commit"],
    ...     "page":        [7, 7, None],
    ... })
    >>> trace = flagstone.Trace.from_arrow(events, page_bytes=4096)
    >>> trace.info["transactions"], trace.info["pages"]
    (1, 8)
    >>> trace.to_arrow()["op"].to_pylist()
    ['read', 'write', 'commit']
    >>> [run] = flagstone.compare(trace, protocols="seal", fill=0.0)
    >>> run["transactions_committed"]
    1
    """

    def __init__(self, path: str, info: Mapping[str, Any], keeps: object = None) -> None:
        self._path = path
        self._info = dict(info)
        self._keeps = keeps

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """The trace in a file, which is checked.

        >>> import flagstone
        >>> try:
        ...     flagstone.Trace.open("none.parquet")
        ... except flagstone.FailedError as error:
        ...     print(error)
        none.parquet: ...
        """
        return cls._of(os.fspath(path))

    @classmethod
    def from_arrow(
        cls,
        events: Any,
        *,
        page_bytes: int,
        pages: int | None = None,
        relations: Iterable[tuple[str, int]] | None = None,
        provenance: Mapping[str, str] | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> Self:
        """A trace of a table: anything that speaks Arrow (`pyarrow.Table`, `polars.DataFrame`,
        `pandas.DataFrame`) with the columns `time_ns`, `transaction`, `op` and `page`.

        `relations` are names with their numbers of pages, one range of pages after the other. The
        trace is written to `path`, or to a file that is there as long as the trace.
        """
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table(events)
        types = {"time_ns": "int64", "transaction": "int32", "op": "string", "page": "int32"}
        missing = types.keys() - set(table.column_names)
        if missing:
            raise UsageError(f"a trace has the columns {', '.join(types)}: {', '.join(sorted(missing))} is missing")
        arrow = {name: getattr(pyarrow, kind)() for name, kind in types.items()}
        try:
            table = table.select(list(types)).cast(pyarrow.schema(list(arrow.items())))
        except pyarrow.ArrowException as error:
            wanted = ", ".join(f"{name} as {kind}" for name, kind in types.items())
            raise UsageError(f"a trace has {wanted}, and a column does not become that: {error}") from error
        metadata = {"flagstone.format": "trace", "flagstone.version": "1", "flagstone.page_bytes": str(page_bytes)}
        if pages is not None:
            metadata["flagstone.pages"] = str(pages)
        if relations is not None:
            named = [{"name": name, "pages": count} for name, count in relations]
            metadata["flagstone.relations"] = json.dumps(named)
        for name, value in (provenance or {}).items():
            metadata[f"flagstone.provenance.{name}"] = value
        keeps = None
        if path is None:
            keeps = tempfile.TemporaryDirectory(prefix="flagstone-")
            path = os.path.join(keeps.name, "trace.parquet")
        table = table.replace_schema_metadata(metadata)
        pyarrow.parquet.write_table(table, os.fspath(path), compression="zstd")
        return cls._of(os.fspath(path), keeps)

    from_pandas = from_arrow
    from_polars = from_arrow

    @classmethod
    def convert(
        cls, format: str, source: str | os.PathLike[str], path: str | os.PathLike[str], **options: Any
    ) -> Self:
        """A trace of what another program wrote: `"waldump"` (PostgreSQL), `"csv"`, `"disksim"`,
        `"msr"`, `"spc"`, `"blkparse"` or `"fio"`, as `flagstone trace import` makes it. Options are those of the
        command.
        """
        if format not in _FORMATS:
            raise UsageError(f"there is no format `{format}`; there are {', '.join(_FORMATS)}")
        options["output"] = path
        arguments = ["trace", "import", format, *_arguments(options), "--", os.fspath(source)]
        # What it notes is in `info`, with the counts of what was skipped.
        say(arguments, notes_are_warnings=False)
        return cls.open(path)

    @classmethod
    def _of(cls, path: str, keeps: object = None) -> Self:
        text = say(["trace", "info", "--json", "--", path])[1]
        return cls(path, json.loads(text), keeps)

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    @property
    def info(self) -> dict[str, Any]:
        """The trace in numbers: transactions, pages, their sizes, relations, provenance."""
        return self._info

    def to_arrow(self) -> pyarrow.Table:
        """Its events as a table; pyarrow has to be installed."""
        import pyarrow.parquet

        return pyarrow.parquet.read_table(self._path)

    def to_pandas(self) -> pandas.DataFrame:
        """Its events as a table of pandas, which has to be installed, with pyarrow."""
        table: pandas.DataFrame = self.to_arrow().to_pandas()
        return table

    def to_polars(self) -> polars.DataFrame:
        """Its events as a table of Polars, which has to be installed."""
        import polars

        return polars.read_parquet(self._path)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """For any library that takes Arrow's streams (`polars.DataFrame`, DuckDB and others)."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        info = self._info
        return f"<Trace {self._path}: {info['transactions']} transactions, {info['events']} events>"
