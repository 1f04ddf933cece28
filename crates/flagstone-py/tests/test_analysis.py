"""Comparisons, campaigns, indexes and reproductions: the same figures as the program's, in records
that tables of data take."""

import inspect
import re
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import pandas
import polars
import pyarrow
import pytest
from conftest import ROOT

import flagstone
from flagstone import _native

SMALL = {"workload": "uniform", "requests": 2000, "fill": 0.1, "clients": 4}


def rows_of_the_document() -> dict[str, list[str]]:
    text = (ROOT / "docs/compare.md").read_text(encoding="utf-8")
    table = re.search(r"\n protocol .*?\n\n", text, re.DOTALL).group()
    rows = [line.split() for line in table.strip().splitlines()[1:]]
    return {row[0]: row[1:] for row in rows}


def test_figures_are_those_of_the_document(shipped_trace):
    published = rows_of_the_document()
    runs = flagstone.compare(shipped_trace, protocols=["seal", "scc", "mhl-d"])
    assert {run["protocol"] for run in runs} == {"seal", "scc", "mhl-d"}
    for run in runs:
        isolation, rate, response, tail = published[run["protocol"]][:4]
        assert run["isolation"] == isolation
        assert f"{run['throughput_tps']:.0f}" == rate
        assert f"{run['response_ns']['mean'] / 1e6:.1f}" == response
        assert f"{run['response_ns']['p99'] / 1e6:.1f}" == tail


def test_equal_arguments_give_equal_records_for_any_number_of_threads():
    one = flagstone.compare(protocols="all", threads=1, **SMALL)
    two = flagstone.compare(protocols="all", threads=2, **SMALL)
    assert len(one) == 13 and one == two
    assert one != flagstone.compare(protocols="all", seed=2, **SMALL)


def test_tables_of_data_take_records_as_they_are():
    runs = flagstone.compare(protocols=["seal", "aw"], **SMALL)
    assert list(pandas.DataFrame(runs)["protocol"]) == ["seal", "aw"]
    assert polars.DataFrame(runs, infer_schema_length=None)["protocol"].to_list() == ["seal", "aw"]
    for table in (runs.to_pandas(), runs.to_polars()):
        assert list(table["response_ns.p99"]) == [run["response_ns"]["p99"] for run in runs]
    streamed = pyarrow.table(pyarrow.RecordBatchReader.from_stream(runs).read_all())
    assert streamed["protocol"].to_pylist() == ["seal", "aw"]


GRID = {name: value for name, value in SMALL.items() if name != "clients"}

RECORDS = {
    "compare": lambda: flagstone.compare(protocols=["seal", "aw"], **SMALL),
    "compare, databases": lambda: flagstone.compare(stack=["wal", "force:seal"], frames=64, **SMALL),
    "compare, a grid": lambda: flagstone.compare(protocols=["seal", "aw"], over=["clients=1:4:2", "abort-ratio=0..0.5:2"], **GRID),
    "campaign": lambda: flagstone.campaign(["scc", "seal"], cuts=200),
    "reproduce": lambda: flagstone.reproduce("sal.fig3.worst"),
    "index_bench": lambda: flagstone.index_bench("bptree", workload="ycsb-c", records=5000, operations=2000),
    "protocols": flagstone.protocols,
    "indexes": flagstone.indexes,
}


@pytest.mark.parametrize("function", RECORDS.values(), ids=RECORDS.keys())
def test_tables_of_data_take_the_records_of_each_function(function):
    records = function()
    assert len(records) >= 1 and all(isinstance(record, dict) for record in records)
    for table in (pandas.DataFrame(records), polars.DataFrame(records, infer_schema_length=None)):
        assert len(table) == len(records) and set(table.columns) == {name for record in records for name in record}
    flat = records.flat()
    columns = {name for record in flat for name in record}
    for table in (records.to_pandas(), records.to_polars(), polars.DataFrame(records.to_arrow())):
        assert len(table) == len(records) and set(table.columns) == columns
    for record, row in zip(flat, records.to_polars().to_dicts(), strict=True):
        assert {name: row[name] for name in record} == record


def test_databases_are_compared_too():
    [run] = flagstone.compare(stack="wal", frames=64, **SMALL)
    assert run["stack"] == "wal"


def test_settings_reach_the_protocol_that_has_them():
    [default] = flagstone.compare(protocols="lighttx", **SMALL)
    [other] = flagstone.compare(protocols="lighttx", settings={"lighttx.zone_blocks": 4}, **SMALL)
    assert default != other


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"protocols": "seel"}, "there is no protocol `seel`, did you mean `seal`"),
        ({"protocols": "seal", "fill": 2}, "must be a number from 0 to 1"),
        ({"protocols": "seal", "settings": {"zoen": 1}}, "no setting `zoen`"),
        ({"requests": 10}, "`requests` applies only to generated transactions"),
        ({"protocols": "seal", "frames": 3}, "`frames` applies only to databases"),
    ],
)
def test_a_mistake_is_a_clear_exception_and_names_keywords(arguments, message):
    with pytest.raises(flagstone.UsageError) as caught:
        flagstone.compare(**arguments)
    assert message in str(caught.value)
    assert "--" not in str(caught.value)
    assert isinstance(caught.value, (flagstone.Error, ValueError))


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(flagstone.FailedError, match="none.parquet"):
        flagstone.compare("none.parquet")


def test_what_is_left_out_is_a_warning():
    with pytest.warns(flagstone.Note, match="left out"):
        flagstone.compare(protocols=["seal", "aw"], isolation="serializable", **SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flagstone.compare(protocols="seal", **SMALL)


def test_a_campaign_finds_nothing_and_its_control_does():
    [right] = flagstone.campaign("scc", cuts=500)
    assert (right["cuts"], right["violations"]) == (500, 0)
    [wrong] = flagstone.campaign("scc", cuts=5000, sabotage="sync-ignored")
    assert wrong["violations"] > 0 and wrong["first_run_id"]


#: What has no keyword: ways to print, what belongs to other commands or to nights of the program
#: (images, long campaigns), and single tasks.
LEFT_OUT = {"help", "json", "csv", "markdown", "wide", "image", "long", "list", "quick", "only"}


@pytest.mark.parametrize(
    ("command", "function"),
    [
        ("compare", flagstone.compare),
        ("break", flagstone.campaign),
        ("reproduce", flagstone.reproduce),
        ("index bench", flagstone.index_bench),
        ("sweep", flagstone.sweep),
    ],
)
def test_each_option_of_a_command_is_a_keyword(command, function):
    with pytest.raises(flagstone.UsageError) as caught:
        _native.command([*command.split(), "--help"])
    options = {name.replace("-", "_") for name in re.findall(r"^ +(?:-\w, )?--([a-z-]+)", str(caught.value), re.M)}
    keywords = set(inspect.signature(function).parameters)
    assert len(options) > 5 and options - LEFT_OUT - {"set"} <= keywords
    assert keywords & LEFT_OUT == set() and ("settings" in keywords) == ("set" in options)


def test_an_index_is_measured_by_windows():
    windows = flagstone.index_bench("bptree", workload="ycsb-c", records=5000, operations=2000)
    assert [window["operations"] for window in windows] == [2000]


def test_claims_are_reproduced_and_kept(tmp_path):
    first = flagstone.reproduce("sal.fig3.worst", out="out")
    assert [claim["id"] for claim in first] == ["sal.fig3.worst"] and Path("out/index.html").exists()
    kept = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.json")}
    assert kept and flagstone.reproduce("sal.fig3.worst", out="out") == first
    # The runs were not made again.
    assert kept == {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.json")}


def test_progress_is_told_and_may_end_the_call():
    told = []
    flagstone.campaign("scc", cuts=20_000, progress=lambda *so_far: told.append(so_far))
    done = [done for done, _, _ in told]
    assert done and done == sorted(done)

    def no(done, of, what):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        flagstone.campaign("scc", cuts=10**12, progress=no)


def bar(arguments: str, before: str = "") -> str:
    """What a campaign writes to standard error in a Python of its own."""
    program = f"{before}\nimport flagstone; flagstone.campaign('scc', cuts=5000{arguments})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_tqdm_shows_progress_where_it_is_asked_for_or_somebody_looks():
    shown = bar(", progress=True")
    assert "%|" in shown and "/5000" in shown
    assert bar("") == "" == bar(", progress=False")
    # Without tqdm nothing is shown, and nothing fails.
    assert bar(", progress=True) if not __import__('sys').modules.update(tqdm=None) else print(") == ""


def test_two_calls_at_once_do_not_mix():
    alone = {name: flagstone.compare(protocols=name, **SMALL) for name in ("seal", "scc")}
    together, told = {}, {"seal": [], "scc": []}

    def call(name):
        progress = lambda done, of, what: told[name].append(of)
        flagstone.campaign(name, cuts=4000 if name == "seal" else 6000, progress=progress)
        together[name] = flagstone.compare(protocols=name, **SMALL)

    threads = [threading.Thread(target=call, args=(name,)) for name in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone
    assert set(told["seal"]) == {4000} and set(told["scc"]) == {6000}


def test_other_threads_go_on_meanwhile():
    counted = 0
    over = threading.Event()

    def count():
        nonlocal counted
        while not over.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    begun = time.monotonic()
    thread.start()
    flagstone.compare(protocols="all", **{**SMALL, "requests": 200_000})
    took = time.monotonic() - begun
    over.set()
    thread.join()
    # With the lock held it would be a handful.
    assert counted > 20 * took > 2


INTERRUPTED = {
    "a campaign": 'flagstone.campaign("scc", cuts=10**15)',
    "every landing": 'flagstone.campaign("scc", cuts="landings:1000000")',
    "a replay": 'flagstone.compare(protocols="scc", workload="uniform", requests=30_000_000)',
    "a database": 'flagstone.compare(stack="wal", workload="uniform", requests=30_000_000)',
    "an index": 'flagstone.index_bench("bptree", store="mem", records=200_000_000)',
    "a sweep": '''flagstone.sweep({"title": "long", "setting": {"engine": "replay", "workload": "uniform",
        "requests": 30_000_000, "fill": 0.1, "overwrite": False, "device": {"preset": "small"}},
        "axis": [{"key": "protocol", "values": ["seal", "scc"]}]}, out="out")''',
    "a reproduction": 'flagstone.reproduce("flagcommit", full=True, out="out")',
}


@pytest.mark.parametrize("call", INTERRUPTED.values(), ids=INTERRUPTED.keys())
def test_control_c_stops_the_call_and_not_the_interpreter(call):
    program = f"""
        import flagstone, time
        begun = time.monotonic()
        print("ready", flush=True)
        try:
            {call}
        except KeyboardInterrupt:
            pass
        else:
            print("not stopped")
        # What was stopped does nothing any more.
        cpu = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - cpu < 0.2
        [record] = flagstone.campaign("scc", cuts=100)
        print("goes on", record["cuts"])
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(2)
    process.send_signal(2)
    try:
        assert process.communicate(timeout=60)[0] == "goes on 100\n"
    finally:
        process.kill()
