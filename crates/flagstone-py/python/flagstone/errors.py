"""The exceptions of flagstone. Each message says what is wrong, where, and what to do.

>>> import flagstone
>>> try:
...     flagstone.compare(protocols="seel", workload="uniform")
... except flagstone.UsageError as error:
...     print(error)
there is no protocol `seel`, did you mean `seal`? There are ...
"""


class Error(Exception):
    """Base class of all errors of flagstone."""


class UsageError(Error, ValueError):
    """Invalid arguments, or a combination that is not allowed. An unknown name, for example."""


class FailedError(Error, RuntimeError):
    """The operation failed: a file cannot be read or a device is full, for example."""


class StoreError(Error, OSError):
    """A store refused an operation, or failed: its medium fails, for example."""


class InUseError(StoreError):
    """The store is already open, in another process or in this one."""


class DamagedError(StoreError):
    """There is no store, or it is damaged."""


class WrongKeyError(StoreError):
    """The store is encrypted and the key is missing or wrong, or the store is not encrypted."""


class FullError(StoreError):
    """No space is left, on the medium or within the size limit of the store. Nothing was changed."""


class MissingError(StoreError, FileNotFoundError):
    """The file or folder does not exist."""


class SnapshotEndedError(StoreError):
    """The snapshot was ended because its space was needed. Take another one."""


class InternalError(Error):
    """An internal error of flagstone. Please report it."""
