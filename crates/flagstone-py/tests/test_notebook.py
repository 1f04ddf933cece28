"""The notebook runs from top to bottom, and is kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_draws(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept"
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    last = notebook.cells[-1].outputs[-1].data
    # As a page, or as a specification, by what shows the notebook.
    drawn = "".join(str(data) for data in last.values())
    assert "vega" in drawn and "throughput_tps" in drawn and "line" in drawn


def test_a_cell_that_fails_fails_the_test():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    with pytest.raises(Exception, match="ZeroDivisionError"):
        NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
