"""Traces in and out: nothing is lost, and what is no trace is refused."""

import pandas
import polars
import pyarrow
import pytest

import flagstone


@pytest.fixture(scope="module")
def trace():
    from conftest import TRACE

    return flagstone.Trace.open(TRACE)


def test_the_shipped_trace_is_described(trace):
    assert trace.info["transactions"] == 27_597
    assert "27597 transactions" in repr(trace)
    assert trace.to_arrow().num_rows == trace.info["events"]


def test_a_trace_survives_the_way_through_arrow(trace, tmp_path):
    relations = [(relation["name"], relation["pages"]) for relation in trace.info["relations"]]
    for events in (trace, trace.to_arrow(), trace.to_pandas(), trace.to_polars()):
        again = flagstone.Trace.from_arrow(
            events,
            page_bytes=trace.info["page_bytes"],
            pages=trace.info["pages"],
            relations=relations,
            provenance=trace.info["provenance"],
            path=tmp_path / "again.parquet",
        )
        own = {"trace", "trace_sha256"}
        for name in trace.info.keys() - own:
            assert again.info[name] == trace.info[name]
        for name in trace.to_arrow().column_names:
            assert again.to_arrow()[name].equals(trace.to_arrow()[name])


def test_a_cut_trace_is_replayed(trace):
    events = trace.to_polars().filter(polars.col("transaction") < 500)
    part = flagstone.Trace.from_polars(events, page_bytes=8192, pages=trace.info["pages"])
    [run] = flagstone.compare(part, protocols="seal")
    assert run["transactions_committed"] + run["transactions_aborted"] == 500


def test_arrow_streams_are_taken_by_others(trace):
    assert polars.DataFrame(trace).height == trace.info["events"]
    assert pyarrow.RecordBatchReader.from_stream(trace).schema.names[0] == "time_ns"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op": ["read", "write", "comit"]}, "row 2"),
        ({"transaction": [0, 0, 1]}, "transaction"),
        ({"time_ns": [5, 4, 6]}, "row 1"),
        ({"page": [7, None, 0]}, "row 1"),
        ({"page": [7, 1 << 40, 0]}, "page as int32.*1099511627776"),
        ({"op": [b"\xff", b"write", b"commit"]}, "cannot be converted"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_its_row(change, message):
    events = {
        "time_ns": [0, 1, 2],
        "transaction": [0, 0, 0],
        "op": ["read", "write", "commit"],
        "page": [7, 7, 0],
    }
    flagstone.Trace.from_arrow(pyarrow.table(events), page_bytes=4096)
    with pytest.raises(flagstone.Error, match=message):
        flagstone.Trace.from_arrow(pyarrow.table(events | change), page_bytes=4096)


def test_a_missing_column_is_named():
    with pytest.raises(flagstone.UsageError, match="page, time_ns is missing"):
        flagstone.Trace.from_pandas(pandas.DataFrame({"op": ["commit"], "transaction": [0]}), page_bytes=4096)


def test_other_formats_become_traces(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("128166372003061629,host,0,Write,4096,8192,1\n128166372003061729,host,0,Read,0,4096,1\n")
    trace = flagstone.Trace.convert("msr", log, tmp_path / "msr.parquet")
    assert (trace.info["transactions"], trace.info["writes"], trace.info["reads"]) == (2, 2, 1)
    with pytest.raises(flagstone.UsageError, match="there is no format"):
        flagstone.Trace.convert("tpc", log, tmp_path / "other.parquet")
