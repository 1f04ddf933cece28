"""The program's commands as functions: compare protocols, cut the power under them, reproduce the
papers' figures, measure indexes. Each returns :class:`~flagstone.Records`.

A keyword argument is the command-line option of the same name and has the same default
(`docs/compare.md`, `flagstone compare --help`). Where an option takes values separated by commas, a
list is accepted. All functions release the GIL while they work, show progress, and stop at Ctrl-C.
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
    """Replays transactions on commit protocols in virtual time. A record is one run.

    The transactions come from a trace, or are generated (`workload="uniform"`, `"zipf:0.9"`). The
    default is the shipped trace. `stack` compares databases on top of the protocols instead, and
    `over` compares at each point of a grid of settings. Equal arguments give equal records, on every
    machine and for any number of threads.

    `settings` are settings of protocols: `{"zone_blocks": 64}` for all protocols that have it,
    `{"lighttx.zone_blocks": 64}` for one. `html` is the path of a page with charts of the comparison.
    `latencies` is the path of a Parquet file with the times of each transaction.

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
    """Cuts the power under protocols, databases or indexes at any flash operation, and checks the
    recovered state (`flagstone break`). A record is the campaign of one subject.

    Violations are returned in the records, not raised: `violations` is their number, and the first
    ones are listed with their run ids, which `flagstone replay` explains. `device` is a preset or a
    file; the simulated devices are like that one. `unusual` uses rare settings for databases, and
    nearly full stores for indexes.

    >>> import flagstone
    >>> [record] = flagstone.campaign("scc", cuts=200)
    >>> record["cuts"], record["violations"]
    (200, 0)

    Control: the flash ignores syncs, and the campaign must detect it:

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
    """Runs the papers' experiments and compares the results with the published ones. A record is a
    claim with its verdict.

    `names` are papers (`"lighttx"`), figures (`"lighttx.fig7"`), claims, or `"all"`. Results are kept
    in the folder `out`, and a call that was stopped continues from them. The report is
    `out`/index.html. `seeds` is the number of seeds of each run; a claim that holds only for some
    seeds is a tie. `record` is a file of verdicts in which the verdicts of these claims are replaced.

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
    """Loads an index and measures operations on it: pages read and written, virtual time, memory.
    A record is a window of operations, with the settings of the run.

    >>> import flagstone
    >>> [window] = flagstone.index_bench("bptree", workload="ycsb-c", records=5000, operations=2000)
    >>> window["index"], window["operations"], window["writes"]
    ('bptree', 2000, 0)
    """
    [record] = run("index bench", _given(locals(), "progress"), (), progress)[1]
    windows = record.pop("windows")
    return Records({**record, **window} for window in windows)


def protocols() -> Records:
    """The commit protocols with their costs, guarantees and settings.

    >>> import flagstone
    >>> "seal" in [protocol["name"] for protocol in flagstone.protocols()]
    True
    """
    return run("protocols", {})[1]


def indexes() -> Records:
    """The indexes with their costs and settings.

    >>> import flagstone
    >>> "bptree" in [index["name"] for index in flagstone.indexes()]
    True
    """
    return run("index list", {})[1]


def _given(arguments: Mapping[str, Any], *besides: str) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in besides}
