"""Records: the results of the functions of this package, convertible to data frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Records(list[dict[str, Any]]):
    """A list of records, which are dictionaries. `pandas.DataFrame` and `polars.DataFrame` accept it
    directly. A field may be a nested dictionary; `flat` turns nested fields into fields.

    >>> from flagstone import Records
    >>> Records([{"protocol": "seal", "response_ns": {"p50": 7, "p99": 9}}]).flat()
    [{'protocol': 'seal', 'response_ns.p50': 7, 'response_ns.p99': 9}]
    """

    def flat(self) -> Records:
        """The records with nested fields as fields with dotted names, such as `response_ns.p99`."""
        return Records(dict(_flat("", record)) for record in self)

    def to_pandas(self) -> pandas.DataFrame:
        """The flat records as a pandas DataFrame. Needs pandas.

        >>> from flagstone import Records
        >>> Records([{"a": {"b": 1}}, {"a": {"b": 2}}]).to_pandas()["a.b"].sum().item()
        3
        """
        import pandas

        return pandas.DataFrame(list(self.flat()))

    def to_polars(self) -> polars.DataFrame:
        """The flat records as a Polars DataFrame. Needs polars.

        >>> from flagstone import Records
        >>> Records([{"a": {"b": 1}}, {"a": {"b": 2}}]).to_polars()["a.b"].sum()
        3
        """
        import polars

        return polars.DataFrame(list(self.flat()), infer_schema_length=None)

    def to_arrow(self) -> pyarrow.Table:
        """The flat records as an Arrow table. Needs pyarrow."""
        import pyarrow

        flat = self.flat()
        names = dict.fromkeys(name for record in flat for name in record)
        return pyarrow.table({name: [record.get(name) for record in flat] for name in names})

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow stream of the flat records, for libraries such as Polars and DuckDB."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def _flat(before: str, record: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in record.items():
        if isinstance(value, Mapping):
            found.extend(_flat(f"{before}{name}.", value))
        else:
            found.append((before + name, value))
    return found
