"""The examples in docs/python.md run as they are printed, in order, and so do those of docs/cluster.md,
with stand-ins for the commands that begin programs elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

import flagstone


def blocks(page: str, language: str = "python") -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(found: list[str], folder: Path) -> subprocess.CompletedProcess:
    (folder / "data").symlink_to(ROOT / "data")
    # The cluster of an example needs the guard that programs of their own have.
    program = "if __name__ == '__main__':\n" + "".join(
        "    " + line for block in found for line in block.splitlines(keepends=True)
    )
    (folder / "document.py").write_text(program)
    return subprocess.run([sys.executable, "document.py"], cwd=folder, capture_output=True, text=True, timeout=600)


def test_the_document_runs_as_printed(tmp_path):
    found = blocks("python.md")
    assert len(found) >= 10
    done = run(found, tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_example_that_fails_is_seen(tmp_path):
    [*found, _] = blocks("python.md")[:3]
    done = run([*found, "assert list(store) == []\n"], tmp_path)
    assert done.returncode == 1 and "UsageError" in done.stderr


#: In place of the commands of the page: the rest of the line, here. Slurm starts as many as it has tasks.
STANDS_FOR = {
    "ssh": 'echo "$1" >>hosts\nshift\nexec "$@"',
    "srun": '"$@" & "$@" &\nwait',
}


@pytest.mark.parametrize("begins", STANDS_FOR)
def test_a_cluster_is_started_and_ended_as_printed(begins, tmp_path):
    [program] = blocks("cluster.md")
    [script] = [block for block in blocks("cluster.md", "sh") if begins in block]
    (tmp_path / "sweep.py").write_text(program)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / begins).write_text(f"#!/bin/sh\n{STANDS_FOR[begins]}\n")
    (tmp_path / "bin" / begins).chmod(0o755)
    path = [str(tmp_path / "bin"), os.path.dirname(sys.executable), os.environ["PATH"]]
    # It waits for all that it began: it ends only if all of that has ended.
    with open(tmp_path / "said", "w+") as said:
        code = subprocess.run(
            ["sh", "-euc", script], env=os.environ | {"PATH": ":".join(path)}, stdout=said, stderr=said, timeout=120
        ).returncode
        said.seek(0)
        assert code == 0, said.read()
    results = {file.name: file.read_bytes() for file in (tmp_path / "results").iterdir()}
    assert len(results) == 6 and len((tmp_path / "sweep.csv").read_text().splitlines()) == 7
    # They are begun side by side.
    assert begins != "ssh" or sorted((tmp_path / "hosts").read_text().split()) == ["node1", "node2"]
    environment: dict[str, object] = {"__name__": "sweep"}
    exec(program, environment)
    flagstone.sweep(environment["grid"], out="here")
    assert results == {file.name: file.read_bytes() for file in (tmp_path / "here").iterdir()}
