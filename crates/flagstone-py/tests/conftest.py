"""What all tests share: each runs in a folder of its own, as the examples of the package do."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TRACE = ROOT / "data" / "tpcc-postgres.parquet"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shipped_trace() -> Path:
    return TRACE
