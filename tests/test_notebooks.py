"""Every notebook runs from its first cell to its last, in the interpreter that runs the tests."""

import base64
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(notebook):
    return [
        base64.b64decode(output["data"]["image/png"])
        for cell in code_cells(notebook)
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    said = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert not [output for output in said if output.get("name") == "stderr"]
    assert len(pictures(notebook)) == sum("simkv.plots." in cell.source for cell in code_cells(notebook))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path):
    for cell in code_cells(nbformat.read(path, as_version=4)):
        assert not cell.outputs
        assert cell.execution_count is None
