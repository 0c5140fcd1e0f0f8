"""The progress of `boatlift run`: a table on a terminal, lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import boatlift as bl
from boatlift.console import live
from boatlift.console.live import Live
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.term import MESSAGES_AHEAD

LAST = (
    "mine: stopped cleanly after 1 new step: 1,000 rows of rows, 500 rows of more; 10 to answers; "
    "replayed 1 steps of processors"
)


def show_a_run(shown: Live) -> None:
    with shown:
        shown.show(Progress("restore", "sums", 3))
        shown.show(Progress("step", "sums", 4, 1000, 10, 500.0, replay=True, behind=MESSAGES_AHEAD))
        shown.show(Progress("checkpoint", "sums", 4))
        shown.show(Progress("take", "rows", 5))
        shown.show(Progress("step", "sums", 5, 1000, 10, 250.0, behind=0, newInputRows=1000, newInputOf="rows"))
        shown.show(Progress("step", "lows", 5, 500, 10, 250.0, behind=0, newInputRows=500, newInputOf="more"))
        shown.show(Progress("commit", "answers", 5, numOutputRows=10))


def test_lines_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_a_run(Live(bl.Dataflow("mine"), quiet=False))
    assert capsys.readouterr().out.splitlines() == [
        "sums: replaying, step 4, 1000 rows read in 500 ms",
        "sums: step 5, 1000 rows read in 250 ms, last checkpoint 4",
        "lows: step 5, 500 rows read in 250 ms",
        LAST,
    ]


def test_only_the_last_line_with_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    show_a_run(Live(bl.Dataflow("mine"), quiet=True))
    assert capsys.readouterr().out == f"{LAST}\n"


def test_a_takeover_is_printed_on_standard_error_even_with_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Live(bl.Dataflow("mine"), quiet=True) as shown:
        shown.show(Progress("takeover", "mine", -1, said="taken over from process 7 on there"))
    assert capsys.readouterr().err == "boatlift: mine: taken over from process 7 on there\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_the_address_of_a_source_is_printed_on_standard_error(capsys: pytest.CaptureFixture[str], quiet: bool) -> None:
    with Live(bl.Dataflow("mine"), quiet=quiet) as shown:
        shown.show(Progress("listening", "orders", -1, where="http://127.0.0.1:8080/orders"))
    assert capsys.readouterr().err == ("" if quiet else "boatlift: orders: listening on http://127.0.0.1:8080/orders\n")


def test_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(live, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100))
    shown = Live(bl.Dataflow("mine"), quiet=False)
    with shown:
        shown.show(Progress("step", "sums", 4, 1000, 10, 500.0, replay=True, behind=MESSAGES_AHEAD, newInputRows=1000))
    for part in ("mine: 1,000 rows", "steps behind", "2,000", f"{MESSAGES_AHEAD}+", "replaying"):
        assert part in screen.getvalue()
    assert "last checkpoint" not in screen.getvalue(), "none was made in this run"
    shown.show(Progress("checkpoint", "sums", 4))
    Console(file=screen, width=100).print(shown._draw())
    assert "last checkpoint" in screen.getvalue()


def test_an_error_is_no_clean_stop(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), Live(bl.Dataflow("mine"), quiet=False):
        raise ZeroDivisionError
    assert "stopped cleanly" not in capsys.readouterr().out


def stages(*done: Progress, quiet: bool = False, available_now: bool = False) -> None:
    flow = bl.Dataflow("mine")
    for name in ("rows", "more"):
        flow.source(name, bl.generator({"n": "id"}, rows_per_step=1)).sink(f"{name}_out", bl.parquet(name))
    shown = Live(flow, quiet=quiet, available_now=available_now)
    with shown:
        for progress in done:
            shown.show(progress)


def idle(source: str, behind: int = 0) -> Progress:
    return Progress("idle", source, -1, behind=behind)


STEP = Progress("step", "sums", 4, 1000, 10, 500.0, replay=True)


def test_the_stages_of_a_run_are_printed_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    stages(
        Progress("compile", "mine", -1), Progress("recover", "mine", -1), Progress("replay", "sums", 5, behind=2), STEP
    )
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        "boatlift: compiling mine",
        "boatlift: opening the store and the sinks",
        "boatlift: sums replays 2 steps, up to step 5",
    ]
    assert told.out.splitlines()[0].startswith("sums: replaying 1 of 2, step 4, 1000 rows read")


def test_it_waits_for_input_once_all_sources_have_none_and_nothing_is_to_be_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stages(idle("rows"), STEP, idle("rows"), idle("more", behind=1))
    assert capsys.readouterr().err == ""
    stages(idle("rows"), idle("more"), idle("rows"), idle("more"))
    assert capsys.readouterr().err == "boatlift: waiting for input\n"
    stages(idle("rows"), idle("more"), STEP, idle("rows"), idle("more"))
    assert capsys.readouterr().err == "boatlift: waiting for input\n" * 2


def test_exhausted_input_is_printed_with_the_steps_left_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    stages(idle("rows"), STEP, idle("more", behind=3), STEP, available_now=True)
    assert capsys.readouterr().err == "boatlift: the input is exhausted, 3 more steps to go\n"
    stages(idle("rows"), STEP, idle("more", behind=1), available_now=True)
    assert capsys.readouterr().err == "boatlift: the input is exhausted, 1 more step to go\n"
    stages(idle("rows"), idle("more"), available_now=True)
    assert capsys.readouterr().err == "boatlift: the input is exhausted\n"


def test_no_stage_is_printed_with_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    begun = [Progress(what, "mine", 5) for what in ("compile", "recover", "restore", "replay", "listening", "stopping")]
    stages(*begun, idle("rows"), idle("more"), quiet=True)
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.splitlines() == ["mine: stopped cleanly after 0 new steps"]


def test_steps_that_wait_for_the_next_run_are_printed_even_with_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    stages(
        Progress("left", "nightly", 4, behind=1),
        Progress("left", "sums", 4, behind=2),
        quiet=True,
    )
    assert capsys.readouterr().err.splitlines() == [
        "boatlift: the run was stopped: 1 step waits at nightly for the next run",
        "boatlift: the run was stopped: 2 steps wait at sums for the next run",
    ]
