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


def told(shown: Live) -> None:
    with shown:
        shown.show(Progress("restore", "sums", 3))
        shown.show(Progress("step", "sums", 4, 1000, 10, 500.0, replay=True, behind=MESSAGES_AHEAD))
        shown.show(Progress("checkpoint", "sums", 4))
        shown.show(Progress("step", "sums", 5, 1000, 10, 250.0, behind=0))
        shown.show(Progress("commit", "answers", 5))


def test_lines_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    told(Live(bl.Dataflow("mine"), quiet=False))
    assert capsys.readouterr().out.splitlines() == [
        "restored sums from its checkpoint at step 3",
        "sums: replayed 4, 1000 rows in 500 ms, last checkpoint -",
        "sums: step 5, 1000 rows in 250 ms, last checkpoint 4",
        "mine: stopped cleanly after 2 steps and 2000 rows",
    ]


def test_only_the_last_line_if_it_is_to_be_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    told(Live(bl.Dataflow("mine"), quiet=True))
    assert capsys.readouterr().out == "mine: stopped cleanly after 2 steps and 2000 rows\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_where_a_source_listens_is_told_on_standard_error(capsys: pytest.CaptureFixture[str], quiet: bool) -> None:
    with Live(bl.Dataflow("mine"), quiet=quiet) as shown:
        shown.show(Progress("listening", "orders", -1, where="http://127.0.0.1:8080/orders"))
    assert capsys.readouterr().err == ("" if quiet else "orders: listening on http://127.0.0.1:8080/orders\n")


def test_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(live, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    shown = Live(bl.Dataflow("mine"), quiet=False)
    with shown:
        shown.show(Progress("step", "sums", 4, 1000, 10, 500.0, replay=True, behind=MESSAGES_AHEAD))
    for part in ("mine: 1,000 rows", "steps behind", "2,000", f"{MESSAGES_AHEAD}+", "replaying"):
        assert part in screen.getvalue()


def test_an_error_is_no_clean_stop(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), Live(bl.Dataflow("mine"), quiet=False):
        raise ZeroDivisionError
    assert "stopped cleanly" not in capsys.readouterr().out
