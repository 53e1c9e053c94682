"""The notebook runs from top to bottom."""

from pathlib import Path

import pytest
from conftest import PATIENCE

NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "paper-figures.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_and_draws(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    monkeypatch.delenv("OPENSRD_FULL", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=4 * PATIENCE,
        kernel_name="python3",
        resources={"metadata": {"path": tmp_path}},
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    images = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(images) == 6
    assert all(output.output_type != "error" for output in outputs)
