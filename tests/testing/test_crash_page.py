"""The code of the guide's page about crash tests does what it says."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import blocks

AT = "sink.commit(kept):after:2"


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_verdicts_are_those_that_are_printed(tmp_path: Path) -> None:
    """The test takes one crash of the twenty."""
    right, luck, wrong, own = [each.text for each in blocks() if each.page.stem == "crash-test"]
    (visits,) = [each.text for each in blocks() if each.text.startswith("# visits.py")]
    (tmp_path / "visits.py").write_text(visits, encoding="utf-8")
    (tmp_path / "luck.py").write_text(luck, encoding="utf-8")
    assert printed(right, tmp_path, "--at", AT) == [
        (0, "right: visits:flow holds the same after 20 crashes, seed 0".replace("20 crashes", "1 crash"))
    ]
    assert "20 crashes" in right
    assert not (tmp_path / "visits.db").exists()
    said = [line.removeprefix("# ") for line in wrong.splitlines()[1:]]
    for (status, line), expected in zip(printed(wrong, tmp_path), said, strict=True):
        assert status == 1
        assert line.startswith(expected.removesuffix("…"))
    (tmp_path / "test_visits.py").write_text(own, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_visits.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def printed(block: str, folder: Path, *options: str) -> list[tuple[int, str]]:
    """Run a block's command; return its status with each line behind its table."""
    command = [str(Path(sys.prefix, "bin", "boatlift")), *shlex.split(block.splitlines()[0])[1:], *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    table = max(number for number, line in enumerate(lines) if line.startswith("└"))
    return [(done.returncode, line) for line in lines[table + 1 :]]
