"""Executes docs/tutorial/notebook.ipynb, and writes its outputs into it (`.venv/bin/python scripts/notebook.py`).

tests/integration/test_tutorial_notebook.py executes it too, and holds the outputs against those that are written.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "tutorial" / "notebook.ipynb"


def executed(folder: Path, source: Path = NOTEBOOK) -> nbformat.NotebookNode:
    """Return the notebook after its execution in a folder, by a kernel of this Python.

    What is printed is left out, since it depends on the machine: the warnings of Spark.
    """
    notebook = nbformat.read(source, as_version=4)
    client = NotebookClient(
        notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": str(folder)}}, record_timing=False
    )
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.output_type != "stream"]
    return notebook


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(executed(Path(folder)), NOTEBOOK)
    print(f"wrote {NOTEBOOK}")
