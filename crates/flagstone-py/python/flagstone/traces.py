"""Traces of transactions: files that `compare` replays, convertible from and to Arrow tables."""

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
    """A trace: the pages that transactions read, wrote and trimmed, with times. It is a Parquet file
    in the format of `docs/trace-format.md`.

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
        """Opens a trace file and checks it.

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
        """Makes a trace from a table with the columns `time_ns`, `transaction`, `op` and `page`: a
        `pyarrow.Table`, `polars.DataFrame`, `pandas.DataFrame`, or another Arrow table.

        `relations` are pairs of a name and a number of pages; their page ranges are consecutive. The
        trace is written to `path`, or to a temporary file that lives as long as the trace object.
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
            raise UsageError(f"a trace has {wanted}, and a column cannot be converted: {error}") from error
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
        """Converts the output of another program to a trace, like `flagstone trace import`, and with
        the same options. `format` is `"waldump"` (PostgreSQL), `"csv"`, `"disksim"`, `"msr"`,
        `"spc"`, `"blkparse"` or `"fio"`.
        """
        if format not in _FORMATS:
            raise UsageError(f"there is no format `{format}`; there are {', '.join(_FORMATS)}")
        options["output"] = path
        arguments = ["trace", "import", format, *_arguments(options), "--", os.fspath(source)]
        # The notes of the import are in `info`, with the counts of skipped lines.
        say(arguments, notes_are_warnings=False)
        return cls.open(path)

    @classmethod
    def _of(cls, path: str, keeps: object = None) -> Self:
        text = say(["trace", "info", "--json", "--", path])[1]
        return cls(path, json.loads(text), keeps)

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._path

    @property
    def info(self) -> dict[str, Any]:
        """Properties of the trace: transactions, pages, page size, relations, provenance."""
        return self._info

    def to_arrow(self) -> pyarrow.Table:
        """The events as an Arrow table. Needs pyarrow."""
        import pyarrow.parquet

        return pyarrow.parquet.read_table(self._path)

    def to_pandas(self) -> pandas.DataFrame:
        """The events as a pandas DataFrame. Needs pandas and pyarrow."""
        table: pandas.DataFrame = self.to_arrow().to_pandas()
        return table

    def to_polars(self) -> polars.DataFrame:
        """The events as a Polars DataFrame. Needs polars."""
        import polars

        return polars.read_parquet(self._path)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow stream of the events, for libraries such as Polars and DuckDB."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        info = self._info
        return f"<Trace {self._path}: {info['transactions']} transactions, {info['events']} events>"
