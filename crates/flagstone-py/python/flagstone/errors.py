"""The exceptions of flagstone: each says what is wrong, where, and what to do.

>>> import flagstone
>>> try:
...     flagstone.compare(protocols="seel", workload="uniform")
... except flagstone.UsageError as error:
...     print(error)
there is no protocol `seel`, did you mean `seal`? There are ...
"""


class Error(Exception):
    """Whatever flagstone could not do."""


class UsageError(Error, ValueError):
    """What was asked for is wrong or does not go together: an unknown name, say."""


class FailedError(Error, RuntimeError):
    """It failed on the way: a file that cannot be read, a device that is full."""


class StoreError(Error, OSError):
    """A store refused, or cannot go on: its medium fails, for example."""


class InUseError(StoreError):
    """Another process, or another part of this one, has the store open."""


class DamagedError(StoreError):
    """There is no store, or it is damaged."""


class WrongKeyError(StoreError):
    """The store is encrypted and the key is missing or another one, or it is not encrypted."""


class FullError(StoreError):
    """There is no room, on the medium or within the bound of the store. Nothing has changed."""


class MissingError(StoreError, FileNotFoundError):
    """There is no such file or folder."""


class SnapshotEndedError(StoreError):
    """A snapshot has ended, because its room was needed. Take another one."""


class InternalError(Error):
    """A defect of flagstone. Please report it."""
