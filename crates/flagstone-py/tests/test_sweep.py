"""Sweeps in this process and on a real cluster of two workers, one of which is killed: the same
files, byte for byte."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
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
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
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


def test_a_map_is_drawn_of_what_a_cluster_has_made(cluster):
    wide = grid(2)
    wide["axis"].append({"key": "seed", "values": [1, 2]})
    there = flagstone.sweep(wide, out="out", client=cluster)
    times = {name: os.stat(f"out/{name}").st_mtime_ns for name in files("out")}
    here = flagstone.sweep(wide, out="out", html="map.html", map=("clients", "seed"))
    assert len(here) == 8 and here == there
    assert "over clients and seed</title>" in Path("map.html").read_text()
    assert times == {name: os.stat(f"out/{name}").st_mtime_ns for name in files("out")}
    with pytest.raises(flagstone.UsageError, match="with a client: call again without it"):
        flagstone.sweep(wide, out="out", html="map.html", client=cluster)


def test_a_worker_dies_and_nothing_is_lost():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            killed = []

            def kill(done, of, what):
                if not killed:
                    pid = client.run(os.getpid).popitem()[1]
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

            records = flagstone.sweep(grid(5, 20_000), out="killed", client=client, window=4, progress=kill)
            assert killed and killed[0] not in client.run(os.getpid).values()
    assert len(records) == 10
    assert records == flagstone.sweep(grid(5, 20_000), out="local")
    assert files("killed") == files("local")


def known_to_the_scheduler(client: Client) -> int:
    return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


def test_a_thousand_tasks_are_never_with_the_cluster_at_once(cluster):
    most = {"client": 0, "scheduler": 0}

    def look(done, of, what):
        most["client"] = max(most["client"], len(cluster.futures))
        if done % 50 < 3:
            most["scheduler"] = max(most["scheduler"], known_to_the_scheduler(cluster))

    records = flagstone.sweep(grid(500, 40), out="many", client=cluster, window=8, progress=look)
    assert len(records) == 1000 == len(files("many"))
    # What has ended is with nobody any more, but for a few that the scheduler is just forgetting.
    assert 0 < most["client"] <= 8 and 0 < most["scheduler"] <= 32
    # The control: with a wide window there are more at once.
    most = {"client": 0, "scheduler": 0}
    flagstone.sweep(grid(60, 48), out="wide", client=cluster, window=120, progress=look)
    assert most["client"] > 32 and most["scheduler"] > 32


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
    # It goes on at once, although the cluster may still be at what was cancelled.
    assert len(flagstone.sweep(grid(20, 20_000), out="out", client=cluster)) == 40 == len(files("out"))


def test_control_c_ends_a_sweep_on_a_cluster_and_it_goes_on_later():
    program = f"""
        import flagstone, sys
        from distributed import Client, LocalCluster

        def say(done, of, what):
            print(done, of, flush=True)

        if __name__ == "__main__":
            cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
            with cluster, Client(cluster) as client:
                try:
                    flagstone.sweep({grid(20, 20_000)!r}, out="out", client=client, progress=say)
                except KeyboardInterrupt:
                    print("stopped", flush=True)
    """
    Path("program.py").write_text(textwrap.dedent(program))
    process = subprocess.Popen([sys.executable, "program.py"], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("3 "):
            process.send_signal(signal.SIGINT)
            break
    said = process.communicate(timeout=120)[0].splitlines()
    assert process.returncode == 0 and said[-1] == "stopped", said
    kept = files("out")
    assert 3 <= len(kept) < 40
    told = []
    flagstone.sweep(grid(20, 20_000), out="out", progress=lambda *so_far: told.append(so_far))
    assert len(files("out")) == 40 and kept.items() <= files("out").items()


def at_work(client: Client) -> int:
    """Tasks that threads of the workers are at, wanted or not."""
    return sum(client.run(lambda dask_worker: len(dask_worker.active_threads)).values())


def within(seconds: float, holds) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.1)
    return holds()


def test_values_of_a_sweep_are_toml_whatever_their_characters():
    import flagstone.sweeps as sweeps

    values = {"a \U0001f600": ["\U0001f600 \x7f \"\\ \n \x01 é", 1, 2.5, True, {"b": "c"}]}
    assert tomllib.loads(f"values = {sweeps._toml(values)}") == {"values": values}


def look_no_more() -> None:
    """Has tasks of this worker run on whatever becomes of them."""
    import flagstone.sweeps as sweeps

    sweeps._wanted = lambda: None


@pytest.mark.parametrize("looks", [True, False])
def test_control_c_ends_what_runs_on_the_workers(looks):
    program = f"""
        import flagstone, sys
        from distributed import Client

        with Client(sys.argv[1]) as client:
            try:
                flagstone.sweep({grid(2, 10_000_000)!r}, out="out", client=client)
            except KeyboardInterrupt:
                print("stopped", flush=True)
    """
    Path("program.py").write_text(textwrap.dedent(program))
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            if not looks:
                client.run(look_no_more)
            command = [sys.executable, "program.py", cluster.scheduler_address]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert within(60, lambda: at_work(client) == 2)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[0]
            assert process.returncode == 0 and said == "stopped\n"
            # The control: a task that does not look is still at work, and would be for long.
            assert within(4, lambda: at_work(client) == 0) == looks
    assert not os.path.exists("out") or files("out") == {}


def fail_at_first(times: int) -> None:
    """Has each task of this worker fail so many times before it runs."""
    import flagstone._native as native

    runs, failed = native.run_task, {}

    def run_task(task: str, look) -> bytes:
        failed[task] = failed.get(task, 0) + 1
        if failed[task] <= times:
            raise RuntimeError(f"failure {failed[task]}")
        return runs(task, look)

    native.run_task = run_task


def test_a_task_that_fails_is_tried_again_and_named_in_the_end():
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            client.run(fail_at_first, 2)
            with pytest.raises(flagstone.FailedError, match="'clients': 1.*failure 2"):
                flagstone.sweep(grid(1), out="once", client=client, retries=1)
            assert files("once") == {}
            # The worker counts on, and some have all their failures still to come.
            assert len(flagstone.sweep(grid(2), out="twice", client=client, retries=2)) == 4
    assert flagstone.sweep(grid(2), out="local") and files("twice") == files("local")


def test_workers_that_come_later_are_used():
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            most = {1: 0, 3: 0}

            def look(done, of, what):
                if done == 5:
                    cluster.scale(3)
                    client.wait_for_workers(3)
                    time.sleep(1)
                most[1 if done <= 5 else 3] = max(most[1 if done <= 5 else 3], len(client.futures))

            flagstone.sweep(grid(20), out="out", client=client, progress=look)
    # Two for each thread.
    assert most == {1: 2, 3: 6}


def test_what_cannot_be_run_says_why(cluster):
    wrong = grid(1)
    wrong["setting"]["protcol"] = "seal"
    with pytest.raises(flagstone.UsageError, match="protcol"):
        flagstone.sweep(wrong, out="out", client=cluster)
