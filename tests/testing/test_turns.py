"""Long tests take turns: shares of the same time, which together are everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.turns import RECORD, deal, left_out

COSTS = st.dictionaries(st.text(min_size=1), st.floats(3, 900), max_size=60)
TESTS = Path(__file__).resolve().parent.parent


@given(COSTS, st.integers(1, 12))
def test_shares_differ_by_no_more_than_the_longest_test(seconds: dict[str, float], turns: int) -> None:
    shares = deal(seconds, turns)
    times = [sum(seconds[name] for name in seconds if shares[name] == share) for share in range(turns)]
    assert shares.keys() == seconds.keys()
    assert max(times) - min(times) <= max(seconds.values(), default=0.0) + 1e-6


@given(COSTS, st.integers(1, 12), st.integers(0, 100))
def test_successive_turns_run_every_long_test_once(seconds: dict[str, float], turns: int, first: int) -> None:
    runs = [seconds.keys() - left_out(seconds, str(turn), turns) for turn in range(first, first + turns)]
    assert sorted(name for run in runs for name in run) == sorted(seconds)


@pytest.mark.parametrize("turn", [None, RECORD])
def test_without_a_turn_everything_runs(turn: str | None) -> None:
    assert not left_out({"a": 9.0}, turn, 4)


def _run(folder: Path, *arguments: str, **environment: str) -> str:
    program = (
        "import sys, pytest; from pathlib import Path; from support import turns; "
        "turns.LEFT_OUT = Path('left-out.txt').resolve(); turns.ROOT = Path.cwd(); "
        "sys.exit(pytest.main(sys.argv[1:], plugins=[turns.Turns(__import__('os').environ, Path('durations.json'))]))"
    )
    inherited = {name: value for name, value in os.environ.items() if name not in ("TURN", "TURNS")}
    done = subprocess.run(
        [sys.executable, "-c", program, "-v", "-p", "no:cacheprovider", "--rootdir", ".", *arguments],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(TESTS), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("workers", [[], ["-n", "1", "-p", "xdist"]], ids=["alone", "worker"])
def test_a_run_names_its_share_and_what_it_left_out(tmp_path: Path, workers: list[str]) -> None:
    if workers:
        (tmp_path / "conftest.py").write_text(
            "import os\nfrom pathlib import Path\nfrom support import turns\n"
            "def pytest_configure(config):\n"
            "    if hasattr(config, 'workerinput'):\n"
            "        config.pluginmanager.register(turns.Turns(os.environ, Path('durations.json')))\n"
        )
    (tmp_path / "test_a.py").write_text("def test_long(): ...\ndef test_longer(): ...\ndef test_short(): ...\n")
    (tmp_path / "durations.json").write_text(json.dumps({"test_a.py::test_long": 5, "test_a.py::test_longer": 9}))
    told = _run(tmp_path, *workers, TURN="7", TURNS="2")
    assert "turns: 1 of 2 tests of 2 s and more run: share 1 of 2 (TURN=7)" in told
    assert "2 passed" in told
    assert "test_a.py 1" in told
    assert (tmp_path / "left-out.txt").read_text() == "test_a.py::test_longer\n"
    assert "3 passed" in _run(tmp_path, *workers)


def test_times_are_recorded_and_names_that_are_gone_leave(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_short(): ...\ndef test_kept(): ...\n")
    kept = {"test_a.py::test_gone": 9, "test_a.py::test_kept[1]": 5, "test_a.py::test_short": 7, "test_b.py::test_x": 4}
    (tmp_path / "durations.json").write_text(json.dumps(kept))
    _run(tmp_path, "-k", "short", TURN=RECORD)
    assert json.loads((tmp_path / "durations.json").read_text()) == {"test_a.py::test_kept[1]": 5}
