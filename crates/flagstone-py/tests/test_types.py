"""The package is typed, and the stubs say what the native part has."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SETTINGS = f"--config-file={Path(__file__).parents[1] / 'pyproject.toml'}"


#: What mypy has learnt of other packages, for the next run.
CACHE = tempfile.TemporaryDirectory()


def run(*arguments: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"MYPY_CACHE_DIR": CACHE.name}
    return subprocess.run(
        [sys.executable, "-m", *arguments], env=environment, capture_output=True, text=True, timeout=600
    )


def test_the_package_is_strictly_typed():
    done = run("mypy", "--strict", SETTINGS, "-p", "flagstone")
    assert done.returncode == 0, done.stdout


def test_the_stubs_are_those_of_the_native_part():
    done = run("mypy.stubtest", "flagstone._native", "--ignore-disjoint-bases")
    assert done.returncode == 0, done.stdout


def test_a_program_of_a_user_is_checked(tmp_path):
    right = "import flagstone\nstore = flagstone.open('x')\nvalue: bytes = store['t'][b'k']\n"
    (tmp_path / "right.py").write_text(right)
    assert run("mypy", "--strict", SETTINGS, str(tmp_path / "right.py")).returncode == 0
    (tmp_path / "wrong.py").write_text(right + "store['t']['k'] = 7\n")
    wrong = run("mypy", "--strict", SETTINGS, str(tmp_path / "wrong.py"))
    assert wrong.returncode == 1 and wrong.stdout.count("error:") >= 1, wrong.stdout
