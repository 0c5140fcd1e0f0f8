"""What `boatlift run` tells while it runs: a table on a terminal, lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import boatlift as bl
from boatlift.console import live
from boatlift.console.live import Live
from boatlift.runtime.host import MESSAGES_AHEAD
from boatlift.runtime.progress import Progress

LAST = "mine: stopped cleanly; took 1 new steps with 1,000 rows from sources; replayed 1 steps of processors"


def told(shown: Live) -> None:
    with shown:
        shown.show(Progress("restore", "sums", 3))
        shown.show(Progress("step", "sums", 4, 1000, 10, 500.0, replay=True, behind=MESSAGES_AHEAD))
        shown.show(Progress("checkpoint", "sums", 4))
        shown.show(Progress("take", "rows", 5))
        shown.show(Progress("step", "sums", 5, 1000, 10, 250.0, behind=0, newInputRows=1000))
        shown.show(Progress("step", "lows", 5, 1000, 10, 250.0, behind=0))
        shown.show(Progress("commit", "answers", 5))


def test_lines_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    told(Live(bl.Dataflow("mine"), quiet=False))
    assert capsys.readouterr().out.splitlines() == [
        "restored sums from its checkpoint at step 3",
        "sums: replayed 4, 1000 rows in 500 ms, last checkpoint -",
        "sums: step 5, 1000 rows in 250 ms, last checkpoint 4",
        "lows: step 5, 1000 rows in 250 ms, last checkpoint -",
        LAST,
    ]


def test_only_the_last_line_if_it_is_to_be_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    told(Live(bl.Dataflow("mine"), quiet=True))
    assert capsys.readouterr().out == f"{LAST}\n"


def test_a_takeover_is_told_on_standard_error_however_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Live(bl.Dataflow("mine"), quiet=True) as shown:
        shown.show(Progress("takeover", "mine", -1, said="taken over from process 7 on there"))
    assert capsys.readouterr().err == "boatlift: mine: taken over from process 7 on there\n"


def test_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(live, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    shown = Live(bl.Dataflow("mine"), quiet=False)
    with shown:
        shown.show(Progress("step", "sums", 4, 1000, 10, 500.0, replay=True, behind=MESSAGES_AHEAD, newInputRows=1000))
    for part in ("mine: 1,000 rows", "steps behind", "2,000", f"{MESSAGES_AHEAD}+", "replaying"):
        assert part in screen.getvalue()


def test_an_error_is_no_clean_stop(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), Live(bl.Dataflow("mine"), quiet=False):
        raise ZeroDivisionError
    assert "stopped cleanly" not in capsys.readouterr().out
