"""The examples in docs/python.md run as they are printed, in order."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT

BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(program: str, folder) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=600)


def test_the_document_runs_as_printed(tmp_path):
    blocks = BLOCKS.findall((ROOT / "docs" / "python.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 5
    (tmp_path / "data").symlink_to(ROOT / "data")
    # The cluster of an example needs the guard that programs of their own have.
    program = "if __name__ == '__main__':\n" + "".join(
        "    " + line for block in blocks for line in block.splitlines(keepends=True)
    )
    (tmp_path / "document.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "document.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


def test_a_block_that_fails_would_be_seen(tmp_path):
    [block] = BLOCKS.findall("text\n```python\nassert 1 == 2\n```\n")
    assert run(block, tmp_path).returncode == 1
