"""Sweeps in this process and on a real cluster of two workers, one of which is killed: the same
files, byte for byte."""

import os
import signal
import time
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

import flagstone


def grid(clients: int, requests: int = 400) -> dict:
    return {
        "title": "clients",
        "setting": {
            "engine": "replay",
            "workload": "uniform",
            "requests": requests,
            "fill": 0.1,
            "overwrite": False,
            "device": {"preset": "small"},
        },
        "axis": [
            {"key": "protocol", "values": ["seal", "scc"]},
            {"key": "clients", "values": list(range(1, clients + 1))},
        ],
    }


def files(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            yield client


def test_a_sweep_is_a_record_and_a_file_for_each_task():
    records = flagstone.sweep(grid(3), out="local")
    assert len(records) == 6 == len(files("local"))
    assert records[0]["at"] == {"protocol": "seal", "clients": 1}
    assert records[0]["metrics"]["committed"] == 50
    assert {f"{record['task']}.json" for record in records} == set(files("local"))


def test_a_cluster_gives_the_same_files_and_goes_on_where_it_was(cluster):
    here = flagstone.sweep(grid(3), out="local")
    there = flagstone.sweep(grid(2), out="cluster", client=cluster)
    assert len(there) == 4
    times = {name: os.stat(f"cluster/{name}").st_mtime_ns for name in files("cluster")}
    told = []
    there = flagstone.sweep(grid(3), out="cluster", client=cluster, progress=lambda *so_far: told.append(so_far))
    assert there == here and files("cluster") == files("local")
    # Only what was not there was run.
    assert told[-1][:2] == (2, 2)
    assert all(os.stat(f"cluster/{name}").st_mtime_ns == at for name, at in times.items())


def test_a_worker_dies_and_nothing_is_lost():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            killed = []

            def kill(done, of, what):
                if not killed:
                    pid = client.run(os.getpid).popitem()[1]
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

            records = flagstone.sweep(grid(10, 20_000), out="killed", client=client, window=4, progress=kill)
            assert killed and killed[0] not in client.run(os.getpid).values()
    assert len(records) == 20
    assert records == flagstone.sweep(grid(10, 20_000), out="local")
    assert files("killed") == files("local")


def test_a_thousand_tasks_are_never_with_the_cluster_at_once(cluster):
    most = 0

    def look(done, of, what):
        nonlocal most
        most = max(most, len(cluster.futures))

    records = flagstone.sweep(grid(500, 40), out="many", client=cluster, window=8, progress=look)
    assert len(records) == 1000 == len(files("many"))
    assert 0 < most <= 8
    # The control: with a wide window there are more at once.
    most = 0
    flagstone.sweep(grid(60, 48), out="wide", client=cluster, window=100, progress=look)
    assert most > 50


def test_a_result_that_was_changed_is_an_error_before_anything_runs(cluster):
    [first, *_] = flagstone.sweep(grid(1), out="out")
    path = Path("out") / f"{first['task']}.json"
    path.write_bytes(path.read_bytes().replace(b"committed", b"comitted", 1))
    for client in (None, cluster):
        with pytest.raises(flagstone.Error, match="remove it"):
            flagstone.sweep(grid(2), out="out", client=client)
    assert len(files("out")) == 2


def test_a_sweep_that_is_stopped_leaves_whole_files(cluster):
    def enough(done, of, what):
        if done == 3:
            raise LookupError

    with pytest.raises(LookupError):
        flagstone.sweep(grid(20, 20_000), out="out", client=cluster, progress=enough)
    assert len(files("out")) == 3
    # Its tasks are gone from the cluster.
    begun = time.monotonic()
    while cluster.processing() and any(cluster.processing().values()):
        assert time.monotonic() - begun < 60
        time.sleep(0.1)


def test_what_cannot_be_run_says_why(cluster):
    wrong = grid(1)
    wrong["setting"]["protcol"] = "seal"
    with pytest.raises(flagstone.UsageError, match="protcol"):
        flagstone.sweep(wrong, out="out", client=cluster)
