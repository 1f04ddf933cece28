"""The program's commands as functions: compare protocols, cut the power under them, reproduce the
papers' figures, measure indexes. Each returns :class:`~flagstone.Records`.

A keyword is an option of the command of the same name, and has its default there
(`docs/compare.md`, `flagstone compare --help`). Where the program takes several values separated by
commas, a list will do. All functions release the lock of the interpreter while they work, show
progress and stop at Ctrl-C.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ._command import Progress, run
from .records import Records
from .traces import Trace

Names = str | Iterable[str]
Path = str | os.PathLike[str]
Settings = Mapping[str, Any]


def compare(
    trace: Trace | Path | None = None,
    *,
    protocols: Names | None = None,
    device: Path = "small",
    isolation: str | None = None,
    abort_ratio: float | None = None,
    gc_threshold: float | None = None,
    paired_pages: str | None = None,
    fill: float | None = None,
    clients: int | None = None,
    speedup: float | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    repeat: int | None = None,
    workload: str | None = None,
    requests: int | None = None,
    warm_up: int | None = None,
    read_share: float | None = None,
    pages_per_transaction: int | None = None,
    over: Names | None = None,
    as_published: bool = False,
    settings: Settings | None = None,
    stack: Names | None = None,
    frames: int | None = None,
    policy: str | None = None,
    log_pages: int | None = None,
    threads: int | None = None,
    timing: bool = False,
    html: Path | None = None,
    latencies: Path | None = None,
    progress: bool | Progress | None = None,
) -> Records:
    """Replays transactions on commit protocols in virtual time; a record is one run.

    The transactions are those of a trace, or generated (`workload="uniform"`, `"zipf:0.9"`).
    Without either it is the trace that is shipped. With `stack` databases
    are compared that stand on the protocols, with `over` each point of a grid of settings. Equal
    arguments give equal records, on every machine and for any number of threads.

    `settings` are those that protocols declare: `{"zone_blocks": 64}` for all that have it,
    `{"lighttx.zone_blocks": 64}` for one. `html` is a file for a page that draws the comparison,
    and `latencies` one for the times of each transaction, in Parquet.

    >>> import flagstone
    >>> runs = flagstone.compare(
    ...     protocols=["seal", "aw"], workload="uniform", requests=2000, fill=0.1, clients=4)
    >>> [(run["protocol"], run["transactions_committed"]) for run in runs]
    [('seal', 250), ('aw', 250)]
    >>> fast, slow = (run["throughput_tps"] for run in runs)
    >>> fast > slow
    True
    """
    options = _given(locals(), "trace", "progress")
    path = [] if trace is None else [trace.path if isinstance(trace, Trace) else trace]
    return run("compare", options, path, progress)[1]


def campaign(
    protocol: Names = "all",
    *,
    stack: Names | None = None,
    index: Names | None = None,
    on: Names | None = None,
    device: Path | None = None,
    cuts: int | str | None = None,
    depth: int = 2,
    faults: Names = "torn",
    seed: int = 1,
    as_published: bool = False,
    sabotage: str | None = None,
    ahead: bool = False,
    unusual: bool = False,
    progress: bool | Progress | None = None,
) -> Records:
    """Cuts the power under protocols, databases or indexes at any flash operation, and checks what
    recovery brings back: `flagstone break`. A record is the campaign of one subject.

    What was violated is in the records and no exception: `violations` counts, and each of the first
    has its run id, which `flagstone replay` tells as a story. `device` is a preset or a file, for
    devices like that one. `unusual` gives databases settings that few use, and
    indexes stores that their keys fill.

    >>> import flagstone
    >>> [record] = flagstone.campaign("scc", cuts=200)
    >>> record["cuts"], record["violations"]
    (200, 0)

    The flash lies here, and the campaign has to find out:

    >>> [record] = flagstone.campaign("scc", cuts=2000, sabotage="sync-ignored")
    >>> record["violations"] > 0
    True
    """
    options = _given(locals(), "progress")
    if stack is not None or index is not None:
        if protocol == "all":
            del options["protocol"]
    return run("break", options, (), progress)[1]


def reproduce(
    names: Names = "all",
    *,
    full: bool = False,
    seeds: int | None = None,
    jobs: int | None = None,
    out: Path = "reproduction",
    experiment: Path | None = None,
    record: Path | None = None,
    progress: bool | Progress | None = None,
) -> Records:
    """Runs the papers' experiments and holds what comes out against what they publish. A record is a
    claim with its verdict.

    `names` are papers (`"lighttx"`), figures (`"lighttx.fig7"`), claims, or all. Results are kept
    below `out`, and a call that was stopped goes on from there. The report is `out`/index.html.
    With `seeds` each run is made with so many seeds, and a claim that only some of them have is a
    tie. `record` is a file of verdicts, in which those on these claims are replaced.

    >>> import flagstone, tempfile
    >>> claims = flagstone.reproduce("sal.fig3.worst", out=tempfile.mkdtemp())
    >>> [(claim["id"], claim["published"], claim["verdict"]) for claim in claims]
    [('sal.fig3.worst', 0.5, 'holds')]
    """
    options = _given(locals(), "names", "progress")
    each = [names] if isinstance(names, str) else list(names)
    return run("reproduce", options, each, progress)[1]


def index_bench(
    index: str,
    *,
    workload: str = "ycsb-a",
    store: str = "sim",
    device: Path | None = None,
    protocol: str | None = None,
    records: int = 1_000_000,
    operations: int | None = None,
    keys: str | None = None,
    searches: Iterable[float] | None = None,
    locality: Iterable[float] | None = None,
    scattered: bool = False,
    memory: int | None = None,
    settings: Settings | None = None,
    page_bytes: int | None = None,
    in_flight: int | None = None,
    buffered: bool = False,
    seed: int = 1,
    progress: bool | Progress | None = None,
) -> Records:
    """Loads an index and measures operations on it: pages read and written, virtual time, memory. A
    record is a window of operations, with the settings of the run.

    >>> import flagstone
    >>> [window] = flagstone.index_bench("bptree", workload="ycsb-c", records=5000, operations=2000)
    >>> window["index"], window["operations"], window["writes"]
    ('bptree', 2000, 0)
    """
    [record] = run("index bench", _given(locals(), "progress"), (), progress)[1]
    windows = record.pop("windows")
    return Records({**record, **window} for window in windows)


def protocols() -> Records:
    """The commit protocols: what they cost and promise, and their settings.

    >>> import flagstone
    >>> "seal" in [protocol["name"] for protocol in flagstone.protocols()]
    True
    """
    return run("protocols", {})[1]


def indexes() -> Records:
    """The indexes: what they cost, and their settings.

    >>> import flagstone
    >>> "bptree" in [index["name"] for index in flagstone.indexes()]
    True
    """
    return run("index list", {})[1]


def _given(arguments: Mapping[str, Any], *besides: str) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in besides}
