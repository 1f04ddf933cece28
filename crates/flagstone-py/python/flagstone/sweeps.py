"""Sweeps: one configuration varied over several settings, in this process or on a cluster."""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from . import _native
from ._command import Progress, _Bar, run
from .errors import Error, FailedError, UsageError
from .records import Records

if TYPE_CHECKING:
    from distributed import Client

Grid = str | os.PathLike[str] | Mapping[str, Any]


def sweep(
    grid: Grid,
    *,
    client: Client | None = None,
    out: str | os.PathLike[str] = "sweep",
    threads: int | None = None,
    window: int | None = None,
    retries: int = 2,
    map: tuple[str, str] | None = None,
    html: str | os.PathLike[str] | None = None,
    progress: bool | Progress | None = None,
) -> Records:
    """Runs a configuration over a grid or a sample of its settings. A record is one task: the varied
    settings (`at`), and either the metrics or the reason why the task was refused.

    `grid` is a file in the format of `flagstone sweep`, or a mapping with the same keys. Each task has
    a result file in the folder `out`, named by a hash of its configuration and written atomically. So
    a sweep that was stopped can continue, here or elsewhere.

    Without `client`, the tasks run on `threads` threads of this process. With a client of
    dask.distributed (the extra `cluster` of this package), they run on its workers, which need this
    package and the input files of the tasks. At most `window` tasks are submitted at once (default:
    twice the threads of the cluster), so memory is bounded. If a worker dies, other workers run its
    tasks. A task that fails is retried `retries` times. Ctrl-C also stops the tasks on the workers.
    This process writes the results, so workers need no shared file system.

    `html` is the path of a page with a map of the winners, over the axes `map`, or over the axes that
    the grid names. To draw the map of a sweep that ran on a cluster, call again without the client:
    the kept results are used.

    >>> import flagstone
    >>> grid = {
    ...     "title": "clients",
    ...     "setting": {"engine": "replay", "workload": "uniform", "requests": 400, "fill": 0.1,
    ...                 "overwrite": False, "device": {"preset": "small"}},
    ...     "axis": [{"key": "protocol", "values": ["seal", "scc"]},
    ...              {"key": "clients", "values": [1, 4]}],
    ... }
    >>> [task["at"] for task in flagstone.sweep(grid, out="clients")]
    [{'clients': 1, 'protocol': 'seal'}, {'clients': 4, 'protocol': 'seal'}, ...]
    """
    with tempfile.TemporaryDirectory(prefix="flagstone-") as folder:
        path = grid
        if isinstance(grid, Mapping):
            path = os.path.join(folder, "sweep.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(f"{key} = {_toml(value)}\n" for key, value in grid.items())
        if client is None:
            options = {"out": out, "threads": threads, "map": map, "html": html}
            return run("sweep", options, [path], progress)[1]
        if map is not None or html is not None:
            raise UsageError("a map cannot be drawn with a client: call again without it; no task runs again")
        tasks = run("sweep", {"list": True}, [path])[1]
    return _on_cluster(client, tasks, os.fspath(out), window, retries, progress)


def run_task(task: str) -> bytes:
    """Runs one task, given as JSON, and returns the bytes of its result file. On a worker of a
    cluster it stops soon after the task was cancelled."""
    return _native.run_task(task, _wanted())


class _Cancelled(Exception):
    """The task was cancelled."""


def _wanted() -> Callable[[], None] | None:
    """A function that raises if the cluster task of this thread was cancelled; None outside of a
    cluster. The cluster does not interrupt a running task, so the task must check."""
    try:
        from distributed import get_worker

        worker = get_worker()
        key = worker.get_current_task()
    except (ImportError, ValueError, KeyError):
        return None

    def look() -> None:
        known = worker.state.tasks.get(key)
        if known is None or known.state == "cancelled":
            raise _Cancelled(key)

    return look


def _on_cluster(
    client: Client,
    tasks: Records,
    out: str,
    window: int | None,
    retries: int,
    progress: bool | Progress | None,
) -> Records:
    from distributed import as_completed

    os.makedirs(out, exist_ok=True)
    by_hash = {task["hash"]: json.dumps(task) for task in tasks}
    # Checks the kept results first: a damaged one is an error before any task runs.
    left = iter([name for name, task in by_hash.items() if _kept(out, name, task) is None])
    if window is not None and window < 1:
        raise UsageError(f"`window` is {window}: it must be at least 1")
    futures: dict[Any, str] = {}

    room = _Window(client, window)
    # Keys are unique per call, so that cancelled or failed tasks of an earlier sweep are not reused.
    this_call = uuid.uuid4().hex[:8]

    def submit() -> Iterator[Any]:
        for name in islice(left, max(0, room() - len(futures))):
            key = f"flagstone-{name}-{this_call}"
            future = client.submit(run_task, by_hash[name], key=key, pure=False, retries=retries)
            futures[future] = name
            yield future

    done, wanted = 0, sum(1 for name in by_hash if not os.path.exists(_file(out, name)))
    with _Bar(progress) as bar:
        try:
            completed = as_completed(list(submit()))
            for future in completed:
                name = futures.pop(future)
                _keep(out, name, _result(future, by_hash[name]))
                # The cluster keeps the result until its future is released.
                future.release()
                done += 1
                if bar is not None:
                    bar(done, wanted, "sweeping")
                for another in submit():
                    completed.add(another)
        finally:
            if futures:
                client.cancel(list(futures), force=True)
    records = Records()
    for task in tasks:
        result = _kept(out, task["hash"], by_hash[task["hash"]])
        assert result is not None, "each task has its result by now"
        records.append({"task": task["hash"], "at": task["at"], **result})
    return records


class _Window:
    """Maximum number of submitted tasks. It depends on the workers, which may come and go during a
    sweep, for example on a batch system."""

    def __init__(self, client: Client, fixed: int | None) -> None:
        self._client = client
        self._fixed = fixed
        self._threads = 0
        self._asked = float("-inf")

    def __call__(self) -> int:
        if self._fixed is not None:
            return self._fixed
        # Asks the scheduler at most once per second, since each question costs a message.
        if time.monotonic() - self._asked >= 1:
            self._threads = sum(self._client.nthreads().values())
            self._asked = time.monotonic()
        return 2 * max(1, self._threads)


def _result(future: Any, task: str) -> bytes:
    """The bytes of a result. Raises an error that names the task if it failed."""
    try:
        content: bytes = future.result()
    except Exception as error:
        kind = type(error) if isinstance(error, Error) else FailedError
        raise kind(f"the task with {json.loads(task)['at']}: {error}") from error
    return content


def _file(out: str, name: str) -> str:
    return os.path.join(out, f"{name}.json")


def _kept(out: str, name: str, task: str) -> dict[str, Any] | None:
    """The kept result of a task, or None."""
    path = _file(out, name)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    try:
        result: dict[str, Any] = json.loads(_native.read_result(task, content))
    except FailedError as error:
        raise FailedError(f"{path}: {error}; remove it to have the task run again") from None
    return result


def _keep(out: str, name: str, content: bytes) -> None:
    """Writes a result file atomically."""
    descriptor, draft = tempfile.mkstemp(prefix=f".{name}-", dir=out)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, _file(out, name))
    except BaseException:
        os.unlink(draft)
        raise


def _toml(value: Any) -> str:
    """A value as TOML on one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(str(key))} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # TOML has no surrogate pairs, which JSON escapes a character beyond U+FFFF as.
    text = json.dumps(os.fspath(value) if isinstance(value, os.PathLike) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")
