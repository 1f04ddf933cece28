"""Transactional storage on flash: stores, SQLite databases in stores, comparisons of commit
protocols, power-cut campaigns, reproduction of papers, traces.

>>> import flagstone
>>> [run] = flagstone.compare(protocols="seal", workload="uniform", requests=800, fill=0.1)
>>> run["transactions_committed"]
100
"""

from ._command import Note
from ._native import VERSION as __version__
from .analysis import campaign, compare, index_bench, indexes, protocols, reproduce
from .errors import (
    DamagedError,
    Error,
    FailedError,
    FullError,
    InternalError,
    InUseError,
    MissingError,
    SnapshotEndedError,
    StoreError,
    UsageError,
    WrongKeyError,
)
from .records import Records
from .sqlite import register_sqlite, sqlite_extension
from .store import Snapshot, Store, Table, TableView, open, rekey
from .sweeps import sweep
from .traces import Trace

__all__ = [
    "DamagedError",
    "Error",
    "FailedError",
    "FullError",
    "InUseError",
    "InternalError",
    "MissingError",
    "Note",
    "Records",
    "Snapshot",
    "SnapshotEndedError",
    "Store",
    "StoreError",
    "Table",
    "TableView",
    "Trace",
    "UsageError",
    "WrongKeyError",
    "__version__",
    "campaign",
    "compare",
    "index_bench",
    "indexes",
    "open",
    "protocols",
    "register_sqlite",
    "rekey",
    "reproduce",
    "sqlite_extension",
    "sweep",
]
