"""The notebook of the tutorial is executed by a kernel, and gives the outputs that are written in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from scripts.notebook import NOTEBOOK, executed

pytestmark = pytest.mark.spark

WRITTEN = nbformat.read(NOTEBOOK, as_version=4)


def outputs(notebook: Any) -> list[list[dict[str, str]]]:
    """The outputs of each cell by media type."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[dict(output.data) for output in cell.outputs] for cell in cells]


def test_it_runs_from_the_first_cell_to_the_last_and_gives_what_is_written(tmp_path: Path) -> None:
    done = executed(tmp_path)
    assert outputs(done) == outputs(WRITTEN), "run `.venv/bin/python scripts/notebook.py`"
    shown = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    html = [output.data["text/html"] for output in shown if "text/html" in output.data]
    assert sum("<svg" in each for each in html) == 3
    assert "Since the cell ran before: changed: pages, kept." in html[-2]
    (live,) = [output for output in shown if output.output_type == "display_data"]
    assert "visits has ended" in live.data["text/html"], "the display was drawn until the end"


def test_what_is_written_names_no_folder_of_a_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert "/home/" not in text
    assert "/tmp/" not in text
    assert str(NOTEBOOK.parents[2]) not in text
