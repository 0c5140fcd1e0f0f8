"""What a demo prints as it runs: what will be done, a bar of the input with the kills on it, and no long silence."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.engine.hosts import open_store, run
from support.engine.memory_engine import MemoryEngine, World
from support.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"
WEEKS = 53


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import demo

    monkeypatch.setattr(demo, "OUTPUT", tmp_path)
    monkeypatch.setattr(demo, "FOLDER", tmp_path / "answers")
    return demo


def test_a_few_lines_say_what_will_be_done(demo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    weeks, _ = demo.prepare()
    assert len(weeks) == WEEKS
    printed = capsys.readouterr().out
    assert 3 <= len(printed.splitlines()) <= 4
    for word in ("ephemeral", "lazy", "batch", "eager", f"SIGKILL {len(demo.ATTACKS)} times", "compared"):
        assert word in printed


def test_a_bar_shows_the_weeks_and_the_kills_among_them(
    demo: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "come_in", lambda _files, _folder: None)
    monkeypatch.setattr(demo, "rows_of", lambda _folder, _query: [])
    monkeypatch.setattr(demo, "run", lambda _folder, _flow, point: point is not None)
    demo.attack([Path(f"{week}.csv") for week in range(WEEKS)], [])
    printed = capsys.readouterr().out
    bars = [line for line in printed.splitlines() if f"of {WEEKS} weeks" in line]
    assert [bar.count("✖") for bar in bars] == list(range(len(demo.ATTACKS) + 1))
    for bar in bars:
        assert bar.count("█") + bar.count("·") == WEEKS
        assert f" {bar.count('█')} of {WEEKS} weeks" in bar
    assert printed.count("SIGKILL as ") == len(demo.ATTACKS)


def test_a_store_can_be_watched_as_soon_as_it_is_there(
    demo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import under_attack

    printed = ""

    def address() -> re.Match[str] | None:
        nonlocal printed
        printed += capsys.readouterr().out
        return re.search(r"in a browser: (http://127\.0\.0\.1:\d+/)#token=", printed)

    with under_attack.watchable(tmp_path):
        run(MemoryEngine(World()), open_store(tmp_path / "store"))
        found = until(address)
        assert found
        with urllib.request.urlopen(found[1], timeout=60) as answer:
            assert b"Boatlift" in answer.read()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(found[1], timeout=60)


def test_where_no_store_comes_nothing_is_watched(demo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import under_attack

    with under_attack.watchable(tmp_path):
        pass
    assert capsys.readouterr().out == ""


def test_a_run_that_takes_long_says_what_it_does(
    demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import under_attack

    assert under_attack.SILENCE < 60
    monkeypatch.setattr(under_attack, "SILENCE", 0.01)
    with pytest.raises(under_attack.WrongError, match=r"\[FLOW_NOT_FOUND\]"):
        under_attack.run(tmp_path, "nosuch:flow")
    assert "… 0 s: " in capsys.readouterr().out
